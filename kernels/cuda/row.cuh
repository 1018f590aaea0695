// One row of logits: loads, edits, scale, filters, ordered sums. contract/logits_edits.py, the contract's items 1
// to 4.
//
// A block of 256 threads owns a tile of 4096 ids; a thread 8 neighbours in its lower half and the
// same 8 in its upper half, 16-byte loads. A warp's 512 ids are a *strip*, and all a warp needs to
// know of them is in its registers: strips can be reduced in any order by any warp.
#pragma once
#include "noise.cuh"

constexpr u32 ALL_LANES = 0xffffffffu;
constexpr int TILE = 4096, HALF = TILE / 2;
constexpr int STRIPS = 8;          // of a tile
constexpr int THREADS = 32 * STRIPS;
constexpr int PER_THREAD = 16;     // ids of a strip in a thread
constexpr int MAX_TILES = 128;     // V <= 524288

struct bf16 { u16 bits; };
struct f16 { u16 bits; };
DEVICE float float_of(float x) { return x; }
DEVICE float float_of(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
DEVICE float float_of(f16 x) {
#ifdef CUEMU
  _Float16 half;
  memcpy(&half, &x, 2);
  return (float)half;
#else
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#endif
}

// Elements first to first + 7, -inf from `width` on. A row of odd length is misaligned; its loads,
// like the last ones of every row, are single.
template <class T> DEVICE void load8(const T* row, int first, int width, float* out) {
  constexpr int VECTORS = 8 * sizeof(T) / 16, EACH = 16 / sizeof(T);
  if (first + 8 <= width && ((u64)(row + first) & 15) == 0) {
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
      union { uint4 whole; T element[EACH]; } vector;
      vector.whole = *((const uint4*)(row + first) + v);
#pragma unroll
      for (int e = 0; e < EACH; e++) out[v * EACH + e] = float_of(vector.element[e]);
    }
  } else {
#pragma unroll
    for (int e = 0; e < 8; e++) out[e] = first + e < width ? float_of(row[first + e]) : MINUS_INF;
  }
}

// A thread's first id in a strip, and its e-th.
DEVICE int strip_first(int tile, int strip) {
  return tile * TILE + strip * (HALF / STRIPS) + (threadIdx.x & 31) * 8;
}
DEVICE int strip_id(int first, int e) { return first + (e >> 3) * HALF + (e & 7); }

template <class T> DEVICE void load_strip(const T* row, int first, int width, float* out) {
  load8(row, first, width, out);
  load8(row, first + HALF, width, out + 8);
}

// What top-k and top-p leave, as one cut, and min-p. The cut comes from filter.cu.
struct Cut {
  int key;     // of the least z that stays
  float peak;  // M
};

// How an item scales and filters its rows.
struct Shape {
  float inverse;  // of the temperature
  Cut cut;
  float min_p;  // 0: off

  // -inf for what is dropped; a NaN or an infinity stays, for the fault that it is.
  __device__ __forceinline__ float z(float logit) const {
    const float scaled = add(mul(logit, inverse), 0.0f);
    const bool is_finite = (__float_as_uint(scaled) << 1) < 0xff000000u;
    return is_finite && !keeps(scaled) ? MINUS_INF : scaled;
  }
  __device__ __forceinline__ bool keeps(float scaled) const {
    if (key_of(scaled) < cut.key) return false;
    if (!is_positive(min_p)) return true;
    return __float_as_int(exp32(sub(scaled, cut.peak))) >= __float_as_int(min_p);
  }
};
DEVICE Shape unfiltered(float inverse) { return {inverse, {NO_KEY, 0.0f}, 0.0f}; }

struct Edit {
  int id;
  float bias, repetition, penalty;
  __device__ __forceinline__ float of(float logit) const {
    const float x = add(logit, bias);
    return sub(is_positive(x) ? divide(x, repetition) : mul(x, repetition), penalty);
  }
};

// The edits of one row, and the ids its grammar allows; null: all of them.
struct Edits {
  const Edit* entries;  // ascending ids
  int count;
  const u8* allowed;  // a bit per id

  // The first entry whose id is not below this one.
  __device__ __forceinline__ int find(int id) const {
    int low = 0, high = count;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (entries[middle].id < id) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  // Eight ids of this thread; `begin` is its warp's first one, 256 before the next warp's.
  __device__ __forceinline__ void apply(int begin, int first, int width, float* x) const {
    for (int i = find(begin); i < count && entries[i].id < begin + HALF / STRIPS; i++) {
      const Edit edit = entries[i];
#pragma unroll
      for (int e = 0; e < 8; e++) {
        if (edit.id == first + e) x[e] = edit.of(x[e]);
      }
    }
    if (!allowed || first >= width) return;
    const u32 bits = allowed[first >> 3];
#pragma unroll
    for (int e = 0; e < 8; e++) {
      if (!(bits >> e & 1)) x[e] = MINUS_INF;
    }
  }
  __device__ __forceinline__ float of(int id, float logit) const {
    const int i = find(id);
    if (i < count && entries[i].id == id) logit = entries[i].of(logit);
    return allowed && !(allowed[id >> 3] >> (id & 7) & 1) ? MINUS_INF : logit;
  }
};

// A row as it is sampled from.
template <class T> struct Row {
  const T* logits;
  int width;
  Shape shape;
  Edits edits;

  __device__ __forceinline__ float z(int id) const {
    return shape.z(edits.of(id, float_of(logits[id])));
  }
  // The same of this thread's ids in a strip, from their logits, which load_strip has read.
  __device__ __forceinline__ void refine(int first, float* x) const {
    const int begin = first - (threadIdx.x & 31) * 8;
    edits.apply(begin, first, width, x);
    edits.apply(begin + HALF, first + HALF, width, x + 8);
#pragma unroll
    for (int e = 0; e < PER_THREAD; e++) x[e] = shape.z(x[e]);
  }
  __device__ __forceinline__ void load(int first, float* x) const {
    load_strip(logits, first, width, x);
    refine(first, x);
  }
};

DEVICE float warp_sum(float x) {
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) x = add(x, __shfl_xor_sync(ALL_LANES, x, d));
  return x;
}
DEVICE float warp_maximum(float x) {
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) x = maximum(x, __shfl_xor_sync(ALL_LANES, x, d));
  return x;
}
DEVICE u64 warp_fastest(u64 x) {
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) x = faster(x, __shfl_xor_sync(ALL_LANES, x, d));
  return x;
}

// Neighbours, then neighbours of those.
DEVICE float tree8(const float* x) {
  return add(add(add(x[0], x[1]), add(x[2], x[3])), add(add(x[4], x[5]), add(x[6], x[7])));
}
// A strip's part of the tile's sum: the upper half onto the lower, then the tree.
DEVICE float strip_sum(const float* x) {
  float folded[8];
#pragma unroll
  for (int e = 0; e < 8; e++) folded[e] = add(x[e], x[8 + e]);
  return warp_sum(tree8(folded));
}
DEVICE float strip_maximum(const float* x) {
  float top = x[0];
#pragma unroll
  for (int e = 1; e < PER_THREAD; e++) top = maximum(top, x[e]);
  return warp_maximum(top);
}
