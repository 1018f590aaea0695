// What a kernel compiled for the CPU and the scheduler that runs it share.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fiber.h"

namespace emulator {

constexpr unsigned WARP = 32, MAX_THREADS = 1024;

struct Index { unsigned x, y, z; };

// A place in a source at which threads wait for each other.
struct Site { const char* file; int line; const char* what; };

struct Block;
struct Warp;

struct Thread {
  Fiber fiber;
  Index index;      // threadIdx
  unsigned number;  // within the block
  unsigned lane;
  Warp* warp;
  Block* block;
  Site site;        // where it last waited
};

// Lanes that meet at a *_sync primitive. Two generations of values: a lane may read what the last
// meeting left while others already arrive at the next.
struct Meeting {
  uint32_t mask = 0, arrived = 0, unread = 0, generation = 0;
  Site site;
  uint64_t values[2][WARP];
};

struct Warp {
  uint32_t members = 0, ready = 0, at_barrier = 0, returned = 0;  // one bit a lane
  Thread* lanes[WARP];
  Meeting meetings[8];  // by mask
};

struct Votes { bool any, all; int count; };

struct SharedArray { char* memory; size_t bytes; };

struct Block {
  Index index;  // blockIdx
  unsigned num_threads, num_waiting = 0, num_returned = 0, generation = 0;
  Site site;         // of the barrier that threads wait at
  Votes votes[2];    // by generation
  std::vector<Thread*> threads;
  std::vector<Warp> warps;
  std::vector<SharedArray> shared;  // by slot; no memory: not used yet
  size_t shared_bytes = 0;
  SharedArray dynamic = {nullptr, 0};
};

struct Launch {  // filled in by Python; keep emulator.py's _Launch in step
  Index grid, block;
  uint32_t shared_bytes;  // dynamic
  uint32_t seed;          // 0 forward, 1 backward, more: a random schedule
  uint32_t poison;        // byte that shared memory holds at first
  uint32_t flush_denormals;
  uint64_t num_switches;  // out
  char error[1024];       // out
};

struct Argument {  // likewise _Argument
  void* value;        // of an array: points at its address
  uint64_t bytes;     // of the value; a pointer's own are 8
  uint32_t is_array;
};

struct Parameter { unsigned bytes; bool is_pointer; };
struct Kernel { void (*run)(void**); unsigned num_parameters; const Parameter* parameters; };

extern Thread* running;
extern const Launch* launch;

void preempt();  // a random schedule may let another thread go first
Votes barrier(Site site, bool predicate);
const uint64_t* meet(Site site, uint32_t mask, uint64_t value);
void sync_warp(Site site, uint32_t mask);
void fence();
void* shared_array(int& slot, size_t bytes, size_t alignment);
[[noreturn]] void fail(const std::string& message);

// Between the two halves of the runtime.
void suspend();
std::string place(Site site);
std::string name(const Thread& thread);

}  // namespace emulator

extern "C" {
extern const emulator::Kernel* const emulator_kernels[];  // written by build.py after the source
int emulator_launch(emulator::Launch*, unsigned kernel, const emulator::Argument*, unsigned count);
}
