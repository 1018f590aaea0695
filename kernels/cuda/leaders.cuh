// The first ids of a race over a row, or of its order by z: a draft's guesses of the target's draw.
// Each tile sends as many as are asked. The contract's item 11.
#pragma once
#include "tile.cuh"

struct Leader {
  float z;
  int id;  // -1: nobody
};

// A runner by z; -inf does not run.
DEVICE u64 runner_by_z(float z, int id) {
  const int key = key_of(z);
  return key < LOWEST_FINITE_KEY ? 0 : (u64)((u32)key ^ 0x80000000u) << 32 | (u32)~id;
}

DEVICE u64 block_fastest(u64 x) {
  SMEM(u64, warps, STRIPS);
  x = warp_fastest(x);
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = x;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < STRIPS; w++) x = faster(x, warps[w]);
  __syncthreads();
  return x;
}

// The tile's first `count`, by the block that owns it; `peak` is the tile's.
template <class T>
DEVICE void lead_tile(const Row<T>& row, float peak, int rule, const Noise& noise, int count,
                      Leader* out) {
  float z[PER_THREAD];
  u64 runners[PER_THREAD];
  const int first = strip_first(blockIdx.x, threadIdx.x >> 5);
  row.load(first, z);
#pragma unroll
  for (int e = 0; e < PER_THREAD; e++) {
    const int id = strip_id(first, e);
    if (rule == GREEDY) runners[e] = runner_by_z(z[e], id);
    else runners[e] = noise.runner_of(exp32(sub(z[e], peak)), id);
  }
  for (int n = 0; n < count; n++) {
    u64 own = 0;
#pragma unroll
    for (int e = 0; e < PER_THREAD; e++) own = faster(own, runners[e]);
    const u64 best = block_fastest(own);
    if (best == 0 && threadIdx.x == 0) out[n] = {MINUS_INF, -1};
#pragma unroll
    for (int e = 0; e < PER_THREAD; e++) {
      if (best == 0 || runners[e] != best) continue;
      out[n] = {z[e], id_of(best)};
      runners[e] = 0;
    }
  }
  __syncthreads();  // thread 0 will tell the other blocks of what all threads wrote
}

// The row's first `count` of its tiles' leaders, by the last block; `leaders` are used up.
DEVICE void lead_row(Leader* leaders, int num_leaders, const Mass& mass, int rule,
                     const Noise& noise, int count, int* guesses) {
  volatile u64* const runners = (volatile u64*)leaders;
  for (int i = threadIdx.x; i < num_leaders; i += THREADS) {
    const u64 bits = runners[i];
    const float z = __uint_as_float((u32)bits);
    const int id = (int)(bits >> 32);
    runners[i] = id < 0           ? 0
                 : rule == GREEDY ? runner_by_z(z, id)
                                  : noise.runner_of(mass.prob(z), id);
  }
  u64 previous = ~0ull;
  for (int n = 0; n < count; n++) {
    u64 own = 0;
    for (int i = threadIdx.x; i < num_leaders; i += THREADS) {
      if (runners[i] < previous) own = faster(own, runners[i]);
    }
    previous = block_fastest(own);
    if (threadIdx.x == 0) guesses[n] = previous ? id_of(previous) : -1;
  }
}
