// The race for a token: weights over Exp(1) noise, first inside a tile. The contract's item 7.
#pragma once
#include "row.cuh"

// Whether an id surely loses to `lead`: its noise is at least bits / 2**32, here less a margin for
// the rounding of noise and score.
DEVICE bool is_hopeless(float weight, u32 bits, float lead) {
  const float least = mul(lead, mul((float)bits, LANE_STEP * 0.99998f));
  return __float_as_int(least) > __float_as_int(weight);
}

// The fastest of a strip, the same in all lanes; ids of weight 0 do not run. Most ids are told
// to be hopeless from their random bits alone: a division and a logarithm less for each.
DEVICE u64 race_strip(const float* weights, int first, const Noise& noise) {
  u64 best = 0;
  float lead = 0.0f;
#pragma unroll
  for (int g = 0; g < PER_THREAD / 4; g++) {
    if (g == 1) lead = score_of(warp_fastest(best));
    const int id = strip_id(first, 4 * g);
    const float* w = weights + 4 * g;
    const int any = __float_as_int(w[0]) | __float_as_int(w[1]) | __float_as_int(w[2]) |
                    __float_as_int(w[3]);
    if (any == 0) continue;
    const Words four = noise.group(id >> 2);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if (is_hopeless(w[e], four.word[e], lead)) continue;
      best = faster(best, runner(divide(w[e], exponential(four.word[e])), id + e));
    }
  }
  return warp_fastest(best);
}

// The lowest id of the largest z of a strip, if that is the tile's largest.
DEVICE u64 argmax_strip(const float* z, int first, float peak) {
  u64 best = 0;
#pragma unroll
  for (int e = PER_THREAD - 1; e >= 0; e--) {
    if (__float_as_int(z[e]) == __float_as_int(peak)) best = runner(1.0f, strip_id(first, e));
  }
  return warp_fastest(best);
}

// What a tile tells of itself.
struct Partial {
  float peak, sum;          // m_t, s_t
  float raw_peak, raw_sum;  // of the raw row
  float winner_z;
  int winner;  // -1: nobody ran
};

// Written by other blocks of the same launch: past the L1 cache, which may hold older lines.
DEVICE Partial read(const volatile Partial* p) {
  return {p->peak, p->sum, p->raw_peak, p->raw_sum, p->winner_z, p->winner};
}

// M, Z and 1 / Z.
struct Mass {
  float peak, sum, inverse;
  __device__ __forceinline__ float prob(float z) const {
    return mul(exp32(sub(z, peak)), inverse);
  }
  __device__ __forceinline__ float logprob(float z) const {
    return sub(sub(z, peak), log32(sum));
  }
  __device__ __forceinline__ bool is_number() const { return key_of(peak) < 0x7f800000; }
  __device__ __forceinline__ bool is_faulty() const {
    return !is_number() || peak == MINUS_INF;
  }
};

// Of a whole row, by one warp: lane l has tiles 4l to 4l + 3.
DEVICE Mass merge(const Partial* partials, int num_tiles, bool is_raw) {
  float peaks[4], sums[4];
  float peak = MINUS_INF;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int tile = (threadIdx.x & 31) * 4 + i;
    Partial p = {MINUS_INF, 0.0f, MINUS_INF, 0.0f};
    if (tile < num_tiles) p = read(partials + tile);
    peaks[i] = is_raw ? p.raw_peak : p.peak;
    sums[i] = is_raw ? p.raw_sum : p.sum;
    peak = maximum(peak, peaks[i]);
  }
  peak = warp_maximum(peak);
#pragma unroll
  for (int i = 0; i < 4; i++) sums[i] = mul(sums[i], exp32(sub(peaks[i], peak)));
  const float sum = warp_sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  return {peak, sum, divide(1.0f, sum)};
}

// The fastest of the tiles' winners at the row's scale, by one warp.
DEVICE u64 race_tiles(const Partial* partials, int num_tiles, const Mass& mass,
                      const Noise& noise) {
  u64 best = 0;
  for (int tile = threadIdx.x & 31; tile < num_tiles; tile += 32) {
    const Partial p = read(partials + tile);
    if (p.winner < 0) continue;
    best = faster(best, noise.runner_of(mass.prob(p.winner_z), p.winner));
  }
  return warp_fastest(best);
}

// The lowest id of the row's largest z, by one warp.
DEVICE u64 argmax_tiles(const Partial* partials, int num_tiles, float peak) {
  u64 best = 0;
  for (int tile = threadIdx.x & 31; tile < num_tiles; tile += 32) {
    const Partial p = read(partials + tile);
    if (__float_as_int(p.peak) == __float_as_int(peak)) best = faster(best, runner(1.0f, p.winner));
  }
  return warp_fastest(best);
}
