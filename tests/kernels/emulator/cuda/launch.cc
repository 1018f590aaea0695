// One launch: its blocks and threads made, run, and released; the floating-point mode; arguments.
// Blocks run one after another, in a random schedule several at once.
#include <cstdio>
#include <cstring>
#include <memory>

#ifndef __aarch64__
#include <xmmintrin.h>
#endif

#include "schedule.h"

namespace emulator {
namespace {

constexpr unsigned RESIDENT = 4;  // blocks at once in a random schedule
#ifdef EMULATOR_TSAN
constexpr bool REUSES_MEMORY = false;  // a reused stack would look like a race, or hide one
#else
constexpr bool REUSES_MEMORY = true;
#endif

std::vector<std::unique_ptr<Block>> blocks;
std::vector<Thread*> in_use, idle;  // an idle thread's stack can be used again

Thread* new_thread() {
  Thread* thread;
  if (idle.empty()) {
    thread = new Thread;
    fiber_allocate(thread->fiber);
  } else {
    thread = idle.back();
    idle.pop_back();
  }
  in_use.push_back(thread);
  return thread;
}

void add_thread(Block& block, unsigned number) {
  const Index size = launch->block;
  Thread* thread = new_thread();
  thread->number = number;
  thread->index = {number % size.x, number / size.x % size.y, number / size.x / size.y};
  thread->lane = number % WARP;
  thread->block = &block;
  thread->warp = &block.warps[number / WARP];
  thread->site = {nullptr, 0, "its start"};
  thread->warp->lanes[thread->lane] = thread;
  thread->warp->members |= 1u << thread->lane;
  thread->warp->ready = thread->warp->members;
  fiber_prepare(thread->fiber, thread_main, number);
  block.threads.push_back(thread);
}

void add_block(uint64_t number) {
  const Index grid = launch->grid, size = launch->block;
  auto block = std::make_unique<Block>();
  block->index = {unsigned(number % grid.x), unsigned(number / grid.x % grid.y),
                  unsigned(number / grid.x / grid.y)};
  block->num_threads = size.x * size.y * size.z;
  block->warps.resize((block->num_threads + WARP - 1) / WARP);
  for (unsigned i = 0; i < block->num_threads; i++) add_thread(*block, i);
  if (launch->shared_bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 16, launch->shared_bytes)) abort();
    memset(memory, int(launch->poison), launch->shared_bytes);
    block->dynamic = {static_cast<char*>(memory), launch->shared_bytes};
  }
  for (Warp& warp : block->warps) run.order.push_back(&warp);
  run.num_alive += block->num_threads;
  blocks.push_back(std::move(block));
}

template <class T> void arrange(std::vector<T>& items) {
  const size_t n = items.size();
  if (launch->seed == 1)
    for (size_t i = 0; i < n / 2; i++) std::swap(items[i], items[n - 1 - i]);
  if (is_random())
    for (size_t i = n; i > 1; i--) std::swap(items[i - 1], items[random_bits() % i]);
}

void report_deadlock() {
  run.error = "deadlock:";
  int named = 0;
  for (auto& block : blocks)
    for (Thread* thread : block->threads)
      if (!(thread->warp->returned >> thread->lane & 1) && named++ < 3)
        run.error += " " + name(*thread) + " waits at " + place(thread->site) + ";";
}

void run_resident_blocks() {
  arrange(run.order);
  run_until_nobody_can_go();
  if (run.num_alive && run.error.empty()) report_deadlock();
  run.order.clear();
}

void release_blocks() {
  for (auto& block : blocks) {
    for (SharedArray& array : block->shared) free(array.memory);
    free(block->dynamic.memory);
  }
  blocks.clear();
  for (Thread* thread : in_use) {
    fiber_destroy(thread->fiber);
    if (REUSES_MEMORY) {
      idle.push_back(thread);
    } else {
      fiber_free(thread->fiber);
      delete thread;
    }
  }
  in_use.clear();
}

void run_grid() {
  const Index grid = launch->grid;
  std::vector<uint64_t> numbers(uint64_t(grid.x) * grid.y * grid.z);
  for (size_t i = 0; i < numbers.size(); i++) numbers[i] = i;
  arrange(numbers);
  const unsigned resident = is_random() ? RESIDENT : 1;
  for (size_t first = 0; first < numbers.size() && run.error.empty(); first += resident) {
    for (size_t i = first; i < numbers.size() && i < first + resident; i++) add_block(numbers[i]);
    run_resident_blocks();
    if (REUSES_MEMORY) release_blocks();
  }
#ifdef EMULATOR_TSAN
  __tsan_acquire(&run.finished);
  if (!run.error.empty()) return;  // threads that did not end would race with their own release
#endif
  release_blocks();
}

// Subnormals kept, or flushed as -ftz=true would, while kernels run.
class DenormalMode {
 public:
  explicit DenormalMode(bool flush) : saved_(get()) {
    set(flush ? saved_ | FLUSH : saved_ & ~FLUSH);
  }
  ~DenormalMode() { set(saved_); }

 private:
#if defined(__aarch64__)
  static constexpr uint64_t FLUSH = 1ull << 24;
  static uint64_t get() { uint64_t mode; asm volatile("mrs %0, fpcr" : "=r"(mode)); return mode; }
  static void set(uint64_t mode) { asm volatile("msr fpcr, %0" ::"r"(mode)); }
#else
  static constexpr uint64_t FLUSH = 0x8040;  // results to zero, operands as zero
  static uint64_t get() { return _mm_getcsr(); }
  static void set(uint64_t mode) { _mm_setcsr(unsigned(mode)); }
#endif
  const uint64_t saved_;
};

// What a driver does not notice: it copies as many bytes as the kernel takes, whatever is there.
std::string misfit(const Kernel& kernel, const Argument* arguments, unsigned count) {
  if (count != kernel.num_parameters)
    return "Got " + std::to_string(count) + " arguments, the kernel takes " +
           std::to_string(kernel.num_parameters);
  for (unsigned i = 0; i < count; i++) {
    const Parameter& parameter = kernel.parameters[i];
    const std::string got = "Got argument " + std::to_string(i) + ", ";
    if (arguments[i].is_array && !parameter.is_pointer)
      return got + "an array, the kernel takes a value of " + std::to_string(parameter.bytes) +
             " bytes";
    if (arguments[i].bytes != parameter.bytes)
      return got + "of " + std::to_string(arguments[i].bytes) + " bytes, the kernel takes " +
             std::to_string(parameter.bytes);
  }
  return "";
}

}  // namespace
}  // namespace emulator

// Runs one grid. Returns 0, or 1 with the reason in launch->error.
extern "C" __attribute__((visibility("default"))) int emulator_launch(
    emulator::Launch* given, unsigned kernel, const emulator::Argument* arguments, unsigned count) {
  using namespace emulator;
  launch = given;
  run = Run{};
  run.kernel = emulator_kernels[kernel];
  run.random = given->seed * 2654435761u | 1;
#ifdef EMULATOR_TSAN
  run.host.tsan_fiber = __tsan_get_current_fiber();
#endif
  run.error = misfit(*run.kernel, arguments, count);
  for (unsigned i = 0; i < count; i++) run.arguments.push_back(arguments[i].value);
  if (run.error.empty()) {
    DenormalMode mode(given->flush_denormals);
    run_grid();
  }
  given->num_switches = run.num_switches;
  snprintf(given->error, sizeof given->error, "%s", run.error.c_str());
  return !run.error.empty();
}
