// The first pass: one block reads one tile of one row once and leaves a `Partial`.
#pragma once
#include "batch.cuh"
#include "race.cuh"

// How a tile finds its winner.
struct Contest {
  int rule;       // GREEDY: the largest z; else the race
  Noise noise;
  u32 excluded;   // bit e: this thread's e-th id does not run
  bool is_on;     // false: there is none
};

DEVICE float tile_maximum(const float* strips) {
  float top = strips[0];
#pragma unroll
  for (int s = 1; s < STRIPS; s++) top = maximum(top, strips[s]);
  return top;
}

// One pair of barriers: peaks, then everything that needs them. Where `strip_peaks` is not null, it
// gets the keys of the tile's strips. Returns the tile's largest z.
template <class T>
DEVICE float reduce_tile(const Row<T>& row, bool needs_raw, const Contest& contest, Partial* out,
                         int* strip_peaks) {
  SMEM(float, peaks, STRIPS);
  SMEM(float, raw_peaks, STRIPS);
  SMEM(float, sums, STRIPS);
  SMEM(float, raw_sums, STRIPS);
  SMEM(u64, winners, STRIPS);
  const int strip = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const int first = strip_first(blockIdx.x, strip);
  float z[PER_THREAD], raw[PER_THREAD];

  load_strip(row.logits, first, row.width, raw);
#pragma unroll
  for (int e = 0; e < PER_THREAD; e++) z[e] = raw[e];
  row.refine(first, z);
  const float strip_peak = strip_maximum(z);
  float strip_raw_peak = MINUS_INF;
  if (needs_raw) {
#pragma unroll
    for (int e = 0; e < PER_THREAD; e++) raw[e] = add(raw[e], 0.0f);
    strip_raw_peak = strip_maximum(raw);
  }
  if (lane == 0) {
    peaks[strip] = strip_peak;
    raw_peaks[strip] = strip_raw_peak;
    if (strip_peaks) strip_peaks[strip] = key_of(strip_peak);
  }
  __syncthreads();

  const float peak = tile_maximum(peaks), raw_peak = tile_maximum(raw_peaks);
  if (needs_raw) {
#pragma unroll
    for (int e = 0; e < PER_THREAD; e++) raw[e] = exp32(sub(raw[e], raw_peak));
    const float raw_sum = strip_sum(raw);
    if (lane == 0) raw_sums[strip] = raw_sum;
  }
  const bool is_greedy = contest.rule == GREEDY;
  u64 winner = contest.is_on && is_greedy ? argmax_strip(z, first, peak) : 0;
#pragma unroll
  for (int e = 0; e < PER_THREAD; e++) z[e] = exp32(sub(z[e], peak));
  const float sum = strip_sum(z);
  if (contest.is_on && !is_greedy) {
#pragma unroll
    for (int e = 0; e < PER_THREAD; e++) {
      if (contest.excluded >> e & 1) z[e] = 0.0f;
    }
    winner = race_strip(z, first, contest.noise);
  }
  if (lane == 0) {
    sums[strip] = sum;
    winners[strip] = winner;
  }
  __syncthreads();

  if (threadIdx.x > 0) return peak;
  u64 best = 0;
#pragma unroll
  for (int s = 0; s < STRIPS; s++) best = faster(best, winners[s]);
  const int id = best ? id_of(best) : -1;
  const float best_z = best ? row.z(id) : MINUS_INF;
  *out = {peak, tree8(sums), raw_peak, needs_raw ? tree8(raw_sums) : 0.0f, best_z, id};
  return peak;
}
