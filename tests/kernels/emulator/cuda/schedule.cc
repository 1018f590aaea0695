// The scheduler. The lanes of a warp go on until all of them wait, then comes the next warp; a
// random schedule takes warps and lanes in any order and stops threads at atomics and fences.
#include "schedule.h"

namespace emulator {

Thread* running;
const Launch* launch;
Run run;

namespace {

unsigned pick_lane(uint32_t ready) {
  if (launch->seed == 0) return __builtin_ctz(ready);
  if (launch->seed == 1) return WARP - 1 - __builtin_clz(ready);
  const unsigned turn = random_bits() % WARP;
  const uint32_t turned = ready >> turn | ready << (WARP - turn) % WARP;
  return (__builtin_ctz(turned) + turn) % WARP;
}

Thread* pick() {
  const size_t n = run.order.size();
  if (is_random() && random_bits() % 8 == 0) run.at = random_bits() % n;
  for (size_t tried = 0; tried < n; tried++) {
    Warp* warp = run.order[run.at];
    if (warp->ready) return warp->lanes[pick_lane(warp->ready)];
    if (++run.at == n) run.at = 0;
  }
  return nullptr;
}

void go_to(Fiber& from, Thread* thread, bool is_last = false) {
  run.num_switches++;
  running = thread;
  fiber_switch(from, thread ? thread->fiber : run.host, is_last);
}

[[noreturn]] void leave() {
  Thread* self = running;
#ifdef EMULATOR_TSAN
  __tsan_release(&run.finished);
#endif
  for (;;) go_to(self->fiber, run.error.empty() ? pick() : nullptr, true);
}

}  // namespace

uint32_t random_bits() {
  run.random ^= run.random << 13;
  run.random ^= run.random >> 17;
  return run.random ^= run.random << 5;
}

void thread_main() {
  fiber_arrived(run.host);
  run.kernel->run(run.arguments.data());
  Thread& self = *running;
  Warp& warp = *self.warp;
  const uint32_t bit = 1u << self.lane;
  self.site.what = "its end";
  if (self.block->num_waiting)
    fail("returned while others wait at " + place(self.block->site));
  for (const Meeting& meeting : warp.meetings)
    if (meeting.arrived && meeting.mask & bit)
      fail("returned while its warp waits for it at " + place(meeting.site));
  warp.ready &= ~bit;
  warp.returned |= bit;
  self.block->num_returned++;
  run.num_alive--;
  leave();
}

void run_until_nobody_can_go() {
  run.at = 0;
  go_to(run.host, pick());
}

void suspend() {
  Thread* self = running;
  Thread* next = pick();
  if (next != self) go_to(self->fiber, next);
}

void preempt() {
  if (is_random() && random_bits() % 4 == 0) {
    run.at = random_bits() % run.order.size();
    suspend();
  }
}

void fail(const std::string& message) {
  run.error = name(*running) + " " + message;
  leave();
}

std::string place(Site site) {
  const std::string what = site.what;
  return site.file ? what + ", " + site.file + ":" + std::to_string(site.line) : what;
}

std::string name(const Thread& thread) {
  const Index block = thread.block->index;
  return "block (" + std::to_string(block.x) + ", " + std::to_string(block.y) + ", " +
         std::to_string(block.z) + ") thread " + std::to_string(thread.number);
}

}  // namespace emulator
