// Cuts of a row, found by one block: the k-th largest value, the nucleus. The contract's item 4.
//
// Passes over the row narrow a bracket of keys, three pivots a pass. A strip whose largest value is
// below the bracket is not read again, so after a pass or two little of the row is. Counts are
// integers and masses are summed in the contract's order: the cut does not depend on the block.
#pragma once
#include "batch.cuh"
#include "race.cuh"

constexpr int MAX_STRIPS = MAX_TILES * STRIPS;
constexpr int PIVOTS = 3;

// What a pass over the ids with low <= key < high, and those above, saw.
struct Seen {
  int lowest, highest;  // keys of those between
  int count[PIVOTS];    // ids from each pivot on
  float mass[PIVOTS];   // their Z
};

struct Pivots {
  int key[PIVOTS];  // ascending
};

DEVICE int between(int low, int high, float value) {
  const int key = key_of(value);
  return key <= low ? low + 1 : key >= high ? high - 1 : key;
}

// Inside (low, high): the middle of the keys, so that the search ends, and two by value, so that it
// ends soon.
DEVICE Pivots pivots_of(int low, int high) {
  const float least = value_of(low), most = value_of(high);
  int a = low + (int)(((u32)high - (u32)low) >> 1);
  int b = between(low, high, add(mul(least, 0.5f), mul(most, 0.5f)));
  int c = between(low, high, add(mul(least, 0.25f), mul(most, 0.75f)));
  if (a > b) { const int swap = a; a = b; b = swap; }
  if (b > c) { const int swap = b; b = c; c = swap; }
  if (a > b) { const int swap = a; a = b; b = swap; }
  return {{a, b, c}};
}

template <class T> struct Search {
  Row<T> row;
  float peak;     // M
  int* peaks;     // [MAX_STRIPS] shared: key of each strip's largest value
  float* sums;    // [PIVOTS * MAX_STRIPS] shared
  int* counters;  // [2 + PIVOTS] shared

  __device__ __forceinline__ int num_tiles() const { return (row.width + TILE - 1) / TILE; }
  __device__ __forceinline__ int num_strips() const { return num_tiles() * STRIPS; }

  __device__ __forceinline__ int load(int strip, float* z) const {
    const int first = strip_first(strip / STRIPS, strip % STRIPS);
    row.load(first, z);
    return first;
  }

  // Fills `peaks` and `peak`.
  __device__ __forceinline__ void measure() {
    SMEM(float, tops, 32);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float top = MINUS_INF;
    for (int strip = warp; strip < num_strips(); strip += blockDim.x >> 5) {
      float z[PER_THREAD];
      load(strip, z);
      const float own = strip_maximum(z);
      top = maximum(top, own);
      if (lane == 0) peaks[strip] = key_of(own);
    }
    if (lane == 0) tops[warp] = top;
    __syncthreads();
    peak = warp_maximum(lane < blockDim.x >> 5 ? tops[lane] : MINUS_INF);
  }

  __device__ __forceinline__ float tile_peak(int tile) const {
    int top = NO_KEY;
#pragma unroll
    for (int s = 0; s < STRIPS; s++) top = max(top, peaks[tile * STRIPS + s]);
    return value_of(top);
  }

  // One pass. The mass, if wanted, costs an exponential for each id from the first pivot on.
  __device__ __forceinline__ Seen pass(int low, int high, const Pivots& pivots, bool is_mass) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (threadIdx.x < 2 + PIVOTS) {
      counters[threadIdx.x] = threadIdx.x == 0 ? 2147483647 : threadIdx.x == 1 ? NO_KEY : 0;
    }
    __syncthreads();
    int lowest = 2147483647, highest = NO_KEY, counts[PIVOTS] = {0, 0, 0};
    for (int strip = warp; strip < num_strips(); strip += blockDim.x >> 5) {
      float strip_sums[PIVOTS] = {0.0f, 0.0f, 0.0f};
      if (peaks[strip] >= low) {
        float z[PER_THREAD], weights[PER_THREAD];
        load(strip, z);
        const float own_peak = tile_peak(strip / STRIPS);
#pragma unroll
        for (int e = 0; e < PER_THREAD; e++) {
          const int key = key_of(z[e]);
          if (key >= low && key < high) {
            lowest = min(lowest, key);
            highest = max(highest, key);
          }
#pragma unroll
          for (int i = 0; i < PIVOTS; i++) counts[i] += key >= pivots.key[i];
          weights[e] =
              is_mass && key >= pivots.key[0] ? exp32(sub(z[e], own_peak)) : 0.0f;
        }
        if (is_mass) {
#pragma unroll
          for (int i = 0; i < PIVOTS; i++) {
#pragma unroll
            for (int e = 0; e < PER_THREAD; e++) {
              if (key_of(z[e]) < pivots.key[i]) weights[e] = 0.0f;
            }
            strip_sums[i] = strip_sum(weights);
          }
        }
      }
      if (is_mass && lane == 0) {
#pragma unroll
        for (int i = 0; i < PIVOTS; i++) sums[i * MAX_STRIPS + strip] = strip_sums[i];
      }
    }
    atomicMin(&counters[0], lowest);
    atomicMax(&counters[1], highest);
#pragma unroll
    for (int i = 0; i < PIVOTS; i++) {
      if (counts[i]) atomicAdd(&counters[2 + i], counts[i]);
    }
    __syncthreads();
    Seen seen = {counters[0], counters[1], {}, {}};
#pragma unroll
    for (int i = 0; i < PIVOTS; i++) {
      seen.count[i] = counters[2 + i];
      if (is_mass) seen.mass[i] = mass_of(sums + i * MAX_STRIPS);
    }
    __syncthreads();
    return seen;
  }

  // The row's Z from its strips' sums; every warp for itself.
  __device__ __forceinline__ float mass_of(const float* strips) const {
    float tiles[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int tile = (threadIdx.x & 31) * 4 + i;
      tiles[i] = 0.0f;
      if (tile < num_tiles()) {
        tiles[i] = mul(tree8(strips + tile * STRIPS), exp32(sub(tile_peak(tile), peak)));
      }
    }
    return warp_sum(add(add(tiles[0], tiles[1]), add(tiles[2], tiles[3])));
  }

  // The largest key within [low, high) from which on there is enough; from `low` on there is.
  __device__ __forceinline__ int narrow(int low, int high, bool is_mass, int count, float mass) {
    while ((u32)high - (u32)low > 1) {
      const Pivots pivots = pivots_of(low, high);
      const Seen seen = pass(low, high, pivots, is_mass);
#pragma unroll
      for (int i = 0; i < PIVOTS; i++) {
        const bool is_enough = is_mass ? __float_as_int(seen.mass[i]) >= __float_as_int(mass)
                                       : seen.count[i] >= count;
        if (is_enough) low = max(low, pivots.key[i]);
        else high = min(high, pivots.key[i]);
      }
      low = max(low, seen.lowest);
      high = min(high, seen.highest + 1);
    }
    return low;
  }

  // A key from which on there are the k largest values, and ties; all if there are fewer. k >= 1.
  __device__ __forceinline__ int kth(int k) {
    const int top = key_of(peak) + 1;
    int low = kth_peak(k);
    if (low == NO_KEY) {
      low = LOWEST_FINITE_KEY;
      const Seen all = pass(low, top, {{low, low, low}}, false);
      if (all.count[0] <= k) return low;
      low = all.lowest;
    }
    return narrow(low, top, false, k, 0.0f);
  }

  // The k-th largest of the strips' largest: at least k values are not below it. Else NO_KEY.
  __device__ __forceinline__ int kth_peak(int k) {
    if (threadIdx.x == 0) counters[0] = NO_KEY;
    __syncthreads();
    for (int strip = threadIdx.x; strip < num_strips() && k <= num_strips(); strip += blockDim.x) {
      int rank = 0;
      for (int other = 0; other < num_strips(); other++) {
        rank += peaks[other] > peaks[strip] || (peaks[other] == peaks[strip] && other < strip);
      }
      if (rank == k - 1 && peaks[strip] >= LOWEST_FINITE_KEY) counters[0] = peaks[strip];
    }
    __syncthreads();
    const int found = counters[0];
    __syncthreads();
    return found;
  }

  // The largest key from which on the mass is at least top_p of that from `low` on.
  __device__ __forceinline__ int nucleus(int low, float top_p) {
    const int top = key_of(peak) + 1;
    const Seen all = pass(low, top, {{low, low, low}}, true);
    return narrow(all.lowest, top, true, 0, mul(top_p, all.mass[0]));
  }
};
