// A fiber: a stack of its own and the switch from one to another.
// On x86-64 the switch is ten instructions; elsewhere ucontext, slower and otherwise the same.
// The sanitizers are told of every switch, or they would see one thread jumping between stacks.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
#define EMULATOR_ASSEMBLY
#else
#include <ucontext.h>
#endif
#ifdef EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace emulator {

constexpr size_t STACK_BYTES = 128 * 1024, GUARD_BYTES = 4096;

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  // lowest usable address; null for the host, which runs on its own stack
  size_t stack_bytes = STACK_BYTES;
#ifndef EMULATOR_ASSEMBLY
  ucontext_t context;
#endif
  void* asan_stack = nullptr;  // what ASan keeps of a fiber while another runs
  void* tsan_fiber = nullptr;
};

#ifdef EMULATOR_ASSEMBLY
extern "C" void emulator_switch(void** from, void* to);
// Leaves by a jump: a return would be predicted to go where this fiber was called from.
asm(R"(
.text
.local emulator_switch
.type emulator_switch, @function
emulator_switch:
  push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
  pop %rcx
  jmp *%rcx
)");
#endif

inline void fiber_allocate(Fiber& fiber) {
  void* memory = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE)) abort();
  fiber.stack = static_cast<char*>(memory) + GUARD_BYTES;
}

inline void fiber_free(Fiber& fiber) {
  munmap(fiber.stack - GUARD_BYTES, GUARD_BYTES + STACK_BYTES);
}

// `main` runs at the next switch to the fiber and never returns. `colour` shifts the stack's top:
// stacks that begin at the same page offset would share a few cache sets between them.
inline void fiber_prepare(Fiber& fiber, void (*main)(), unsigned colour) {
  const size_t shift = colour % 61 * 192;
#ifdef EMULATOR_ASAN
  __asan_unpoison_memory_region(fiber.stack, STACK_BYTES);
#endif
#ifdef EMULATOR_TSAN
  fiber.tsan_fiber = __tsan_create_fiber(0);
#endif
#ifdef EMULATOR_ASSEMBLY
  void** top = reinterpret_cast<void**>(fiber.stack + STACK_BYTES - 64 - shift);
  *--top = nullptr;  // where a return address would be
  *--top = reinterpret_cast<void*>(main);
  for (int saved = 0; saved < 6; saved++) *--top = nullptr;
  fiber.stack_pointer = top;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = STACK_BYTES - shift;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, main, 0);
#endif
}

inline void fiber_destroy(Fiber& fiber) {
#ifdef EMULATOR_TSAN
  __tsan_destroy_fiber(fiber.tsan_fiber);
#endif
  (void)fiber;
}

// The first thing a fiber does. The first one of a launch learns where the host's stack lies.
inline void fiber_arrived(Fiber& host) {
#ifdef EMULATOR_ASAN
  const void* bottom;
  size_t bytes;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (host.stack) return;
  host.stack = static_cast<char*>(const_cast<void*>(bottom));
  host.stack_bytes = bytes;
#endif
  (void)host;
}

// No happens-before comes from a switch: order comes from barriers and fences alone.
inline void fiber_switch(Fiber& from, Fiber& to, bool is_last = false) {
  (void)is_last;
#ifdef EMULATOR_ASAN
  __sanitizer_start_switch_fiber(is_last ? nullptr : &from.asan_stack, to.stack, to.stack_bytes);
#endif
#ifdef EMULATOR_TSAN
  __tsan_switch_to_fiber(to.tsan_fiber, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef EMULATOR_ASSEMBLY
  emulator_switch(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.context, &to.context);
#endif
#ifdef EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(from.asan_stack, nullptr, nullptr);
#endif
}

}  // namespace emulator
