// What threads of a block share: barriers, warp meetings, fences, shared memory. Each refuses what
// CUDA leaves undefined: some of the threads at another place, gone, or not named in the mask.
#include <cstring>

#include "runtime.h"

namespace emulator {
namespace {

constexpr size_t MAX_STATIC_SHARED = 48 * 1024;
char fenced;  // TSan: fences order what came before one with what comes after a later one

bool is_same(Site a, Site b) { return a.file == b.file && a.line == b.line && a.what == b.what; }

void publish(void* token) {
#ifdef EMULATOR_TSAN
  __tsan_release(token);
#endif
  (void)token;
}

void observe(void* token) {
#ifdef EMULATOR_TSAN
  __tsan_acquire(token);
#endif
  (void)token;
}

Meeting& find_meeting(Warp& warp, uint32_t mask) {
  for (Meeting& meeting : warp.meetings)
    if (meeting.mask == mask) return meeting;
  for (Meeting& meeting : warp.meetings)
    if (!meeting.arrived && !meeting.unread) {
      meeting.mask = mask;
      return meeting;
    }
  fail("meets its warp under a ninth mask at once");
}

std::string list(uint32_t lanes) {
  std::string text;
  for (; lanes; lanes &= lanes - 1)
    text += (text.empty() ? "" : ", ") + std::to_string(__builtin_ctz(lanes));
  return text;
}

}  // namespace

Votes barrier(Site site, bool predicate) {
  Thread& self = *running;
  Block& block = *self.block;
  self.site = site;
  if (block.num_returned) fail("is at " + place(site) + " after others of its block returned");
  const unsigned parity = block.generation & 1;
  Votes& votes = block.votes[parity];
  if (!block.num_waiting) {
    block.site = site;
    votes = {false, true, 0};
  } else if (!is_same(block.site, site)) {
    fail("is at " + place(site) + " while others wait at " + place(block.site) + ": divergent");
  }
  votes = {votes.any || predicate, votes.all && predicate, votes.count + predicate};
  publish(&votes);
  if (++block.num_waiting == block.num_threads) {
    block.num_waiting = 0;
    block.generation++;
    for (Warp& warp : block.warps) {
      warp.ready |= warp.at_barrier;
      warp.at_barrier = 0;
    }
  } else {
    self.warp->at_barrier |= 1u << self.lane;
    self.warp->ready &= ~(1u << self.lane);
    suspend();
  }
  observe(&votes);
  return votes;
}

const uint64_t* meet(Site site, uint32_t mask, uint64_t value) {
  Thread& self = *running;
  Warp& warp = *self.warp;
  const uint32_t bit = 1u << self.lane;
  self.site = site;
  if (!(mask & bit)) fail("is not named in its own mask at " + place(site));
  mask &= warp.members;  // a block's last warp may be short
  if (warp.returned & mask)
    fail("waits at " + place(site) + " for lanes that returned: " + list(warp.returned & mask));
  Meeting& meeting = find_meeting(warp, mask);
  if (!meeting.arrived) {
    meeting.site = site;
  } else if (!is_same(meeting.site, site)) {
    fail("is at " + place(site) + " while lanes of its warp wait at " + place(meeting.site));
  }
  uint64_t* values = meeting.values[meeting.generation & 1];
  values[self.lane] = value;
  meeting.arrived |= bit;
  if (meeting.arrived == mask) {
    meeting.arrived = 0;
    meeting.unread = mask;
    meeting.generation++;
    warp.ready |= mask;
  } else {
    warp.ready &= ~bit;
    suspend();
  }
  meeting.unread &= ~bit;
  return values;
}

// Orders memory among the lanes, which shuffles and votes do not.
void sync_warp(Site site, uint32_t mask) {
  Warp& warp = *running->warp;
  Meeting& meeting = find_meeting(warp, mask & warp.members);
  void* token = meeting.values[meeting.generation & 1];
  publish(token);
  meet(site, mask, 0);
  observe(token);
}

void fence() {
  publish(&fenced);
  preempt();
  observe(&fenced);
}

// Aligned as the element type asks and no better: a wider access must not succeed by luck.
void* shared_array(int& slot, size_t bytes, size_t alignment) {
  static int num_slots = 0;
  Block& block = *running->block;
  if (slot < 0) slot = num_slots++;
  if (block.shared.size() <= size_t(slot)) block.shared.resize(slot + 1, {nullptr, 0});
  SharedArray& array = block.shared[slot];
  const size_t shift = alignment < 16 ? alignment : 0;
  if (!array.memory) {
    block.shared_bytes += bytes;
    if (block.shared_bytes > MAX_STATIC_SHARED)
      fail("needs " + std::to_string(block.shared_bytes) +
           " bytes of static shared memory, expected at most 49152");
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment < 16 ? 16 : alignment, bytes + shift)) abort();
    memset(memory, int(launch->poison), bytes + shift);
    array = {static_cast<char*>(memory), bytes};
    publish(memory);
  }
  observe(array.memory);
  return array.memory + shift;
}

}  // namespace emulator
