// The distribution that a drafted token came from: one-hot, sparse or dense. By whole warps.
// The contract's item 8.
#pragma once
#include "batch.cuh"
#include "race.cuh"

constexpr int MAX_SUPPORT = 1024;  // entries of a sparse row: 32 lanes of 32

DEVICE bool is_probability(float x) {
  const u32 bits = __float_as_uint(x);
  return bits <= 0x7f800000u || bits == 0x80000000u;  // not negative, no NaN; -0 is zero
}
DEVICE float excess(float target, float draft) {
  const float left = sub(target, draft);
  return is_positive(left) ? left : 0.0f;
}

// 32 entries of a sparse row, one a lane.
struct Entries {
  int id;
  float prob;
  bool is_there;
  bool is_end;  // the row ends within these
};

// What a dense row gives its token, 0 if it does not hold up. One warp reads the row.
DEVICE float dense_own(const float* dense, int token, int width) {
  bool is_good = true;
  for (int first = 8 * (threadIdx.x & 31); first < width; first += 256) {
    float draft[8];
    load8(dense, first, width, draft);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      is_good = is_good && (first + e >= width || is_probability(draft[e]));
    }
  }
  const float prob = dense[token];
  return __all_sync(ALL_LANES, is_good) && is_positive(prob) ? prob : 0.0f;
}

struct DraftRow {
  int token, kind, width;  // width: V
  const int* ids;          // [num_entries]
  const float* probs;
  int num_entries;
  const float* dense;  // [V]

  __device__ __forceinline__ bool is_token_known() const { return 0 <= token && token < width; }

  __device__ __forceinline__ Entries entries(int first) const {
    const int lane = threadIdx.x & 31, i = first + lane;
    const int id = i < num_entries ? ids[i] : -1;
    const u32 ends = __ballot_sync(ALL_LANES, id == -1);
    const bool is_there = !(ends & ((2u << lane) - 1));  // no end up to here
    return {id, is_there ? probs[i] : 0.0f, is_there, ends != 0};
  }

  // Which of this thread's ids of a strip the row covers.
  __device__ __forceinline__ u32 covered(int first) const {
    if (kind == ONE_HOT) return mine(token, first);
    if (kind != SPARSE) return 0;
    u32 found = 0;
    for (int i = 0; i < num_entries; i += 32) {
      const Entries some = entries(i);
      const int strip_of_it = (some.id & (HALF - 1)) >> 8, tile_of_it = some.id / TILE;
      const bool is_here = strip_of_it == (first & (HALF - 1)) >> 8 && tile_of_it == first / TILE;
      u32 here = __ballot_sync(ALL_LANES, some.is_there && is_here && is_positive(some.prob));
      for (; here; here &= here - 1) {
        found |= mine(__shfl_sync(ALL_LANES, some.id, __ffs(here) - 1), first);
      }
      if (some.is_end) break;
    }
    return found;
  }
  static __device__ __forceinline__ u32 mine(int id, int first) {
    const u32 low = (u32)(id - first), high = (u32)(id - first - HALF);
    return low < 8 ? 1u << low : high < 8 ? 256u << high : 0;
  }

  // What the row gives its token; 0: it does not hold up, or is not there.
  __device__ __forceinline__ float own() const {
    if (!is_token_known() || kind == MISSING) return 0.0f;
    if (kind == ONE_HOT) return 1.0f;
    return kind == SPARSE ? sparse_own() : dense_own(dense, token, width);
  }

  __device__ __forceinline__ float sparse_own() const {
    const int lane = threadIdx.x & 31;
    float found = 0.0f;
    int last = -1;
    u32 bad = 0;
    for (int i = 0; i < num_entries; i += 32) {
      const Entries some = entries(i);
      const int above = __shfl_up_sync(ALL_LANES, some.id, 1);
      const bool is_good = some.id > (lane == 0 ? last : above) && some.id < width &&
                           is_probability(some.prob);
      bad |= __ballot_sync(ALL_LANES, some.is_there && !is_good);
      const u32 at = __ballot_sync(ALL_LANES, some.is_there && is_good && some.id == token);
      if (at) found = __shfl_sync(ALL_LANES, some.prob, __ffs(at) - 1);
      last = __shfl_sync(ALL_LANES, some.id, 31);
      if (some.is_end || bad) break;
    }
    return bad || !is_positive(found) ? 0.0f : found;
  }

  // The fastest covered id of a one-hot or sparse row that holds up, by what the draft left of it.
  template <class T>
  __device__ __forceinline__ u64 race_covered(const Row<T>& row, const Mass& mass,
                                              const Noise& noise) const {
    if (kind == ONE_HOT) {
      const float left = excess(mass.prob(row.z(token)), 1.0f);
      return is_positive(left) ? noise.runner_of(left, token) : 0;
    }
    u64 best = 0;
    for (int i = 0; i < num_entries; i += 32) {
      const Entries some = entries(i);
      if (some.is_there && is_positive(some.prob)) {
        const float left = excess(mass.prob(row.z(some.id)), some.prob);
        if (is_positive(left)) best = faster(best, noise.runner_of(left, some.id));
      }
      if (some.is_end) break;
    }
    return warp_fastest(best);
  }
};

// The race over a whole row again, with one warp: against a dense draft row, or with `dense` null
// against none. For what the first pass could not know: dense rows, and rows that do not hold up.
template <class T>
DEVICE u64 race_row(const Row<T>& row, const Partial* partials, const Mass& mass,
                    const Noise& noise, const float* dense) {
  u64 best = 0;
  for (int tile = 0; tile * TILE < row.width; tile++) {
    const float peak = read(partials + tile).peak;
    u64 free = 0;
#pragma unroll 1
    for (int strip = 0; strip < STRIPS; strip++) {
      float z[PER_THREAD], draft[8];
      const int first = strip_first(tile, strip);
      row.load(first, z);
#pragma unroll
      for (int e = 0; e < PER_THREAD; e++) {
        if (dense && (e & 7) == 0) load8(dense, strip_id(first, e), row.width, draft);
        const bool is_covered = dense && is_positive(draft[e & 7]);
        const float left = is_covered ? excess(mass.prob(z[e]), draft[e & 7]) : 0.0f;
        if (is_positive(left)) best = faster(best, noise.runner_of(left, strip_id(first, e)));
        z[e] = is_covered ? 0.0f : exp32(sub(z[e], peak));
      }
      free = faster(free, race_strip(z, first, noise));
    }
    if (free) {
      best = faster(best, noise.runner_of(mass.prob(row.z(id_of(free))), id_of(free)));
    }
  }
  return warp_fastest(best);
}
