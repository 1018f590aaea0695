// What crosses into a launch and out of it: one record per item, drafted token and outcome.
// records.py declares the same for NumPy.
#pragma once
#include "row.cuh"

enum Rule { GREEDY = 0, COUPLED = 1, REJECTION = 2 };
enum DraftKind { MISSING = 0, ONE_HOT = 1, SPARSE = 2, DENSE = 3 };
enum Fault { NO_FAULT = 0, NO_FINITE_LOGIT = 1, NOT_A_NUMBER = 2 };

// A sequence, its sampling parameters and its rows: first_row to first_row + num_drafted. Row r of
// item b is followed by drafted token r - b, if any.
struct Item {
  u64 seed;
  u32 choice;
  int position;  // of the token that first_row draws
  int num_drafted, first_row;
  int rule;
  float temperature, top_p, min_p;
  int top_k;
  u32 is_filtered;  // whether any filter is on

  // Of the row that draws the token `depth` after the first.
  __device__ __forceinline__ Noise noise(Purpose purpose, int depth) const {
    return {seed, (u32)(position + depth), purpose | choice << 8};
  }
  // How the item shapes a row whose cut, if it is filtered, is cuts[row].
  __device__ __forceinline__ Shape shape(const Cut* cuts, int row) const {
    if (rule == GREEDY) return unfiltered(1.0f);
    const float inverse = divide(1.0f, temperature);
    return is_filtered ? Shape{inverse, cuts[row], min_p} : unfiltered(inverse);
  }
  // Whether it samples from the plain softmax, so that Z serves the log-prob as well.
  __device__ __forceinline__ bool is_plain() const {
    return rule == GREEDY || (temperature == 1.0f && !is_filtered);
  }
};

struct Drafted {
  int token, kind;
};

struct Result {
  int num_accepted, token, error;
};

// The edits of a launch: row r's are entries starts[r] to starts[r + 1], and mask `allowed` + r *
// allowed_bytes. Null: none.
struct EditTable {
  const int* starts;
  const Edit* entries;
  const u8* allowed;
  int allowed_bytes;
  __device__ __forceinline__ bool is_empty() const { return !starts && !allowed; }
  __device__ __forceinline__ Edits of(int row) const {
    Edits edits = {nullptr, 0, allowed ? allowed + (i64)row * allowed_bytes : nullptr};
    if (starts) edits = {entries + starts[row], starts[row + 1] - starts[row], edits.allowed};
    return edits;
  }
};

DEVICE int fault_of(float peak) {
  return key_of(peak) >= 0x7f800000 ? NOT_A_NUMBER : peak == MINUS_INF ? NO_FINITE_LOGIT : NO_FAULT;
}

// Whether this block is the last of `num_blocks` to arrive; all threads call, all learn it. What
// the others wrote before is visible to it. The counter is zero again afterwards: a launch that is
// replayed from a CUDA graph finds it as it was.
DEVICE bool is_last(u32* counter, u32 num_blocks) {
  SMEM(u32, arrived, 1);
  if (threadIdx.x == 0) {
    __threadfence();
    arrived[0] = atomicInc(counter, num_blocks - 1);
  }
  __syncthreads();
  const bool is_it = arrived[0] == num_blocks - 1;
  if (is_it) __threadfence();
  return is_it;
}
