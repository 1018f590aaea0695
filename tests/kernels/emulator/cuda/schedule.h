// Whose turn it is: one launch's warps and threads, taken in an order that the seed decides.
#pragma once
#include "runtime.h"

namespace emulator {

struct Run {
  const Kernel* kernel = nullptr;
  std::vector<void*> arguments;
  Fiber host;
  std::vector<Warp*> order;  // of the resident blocks
  size_t at = 0;             // in order: the warp whose turn it is
  unsigned num_alive = 0;    // threads
  uint32_t random = 1;
  uint64_t num_switches = 0;
  std::string error;
  char finished = 0;         // TSan: what every thread did precedes the launch's end
};
extern Run run;

inline bool is_random() { return launch->seed > 1; }
uint32_t random_bits();
void thread_main();             // what a new fiber runs
void run_until_nobody_can_go(); // from the host

}  // namespace emulator
