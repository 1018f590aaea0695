// A round's rows: where a launch finds them, how it shapes them, and their log-probs.
#pragma once
#include "draft_row.cuh"
#include "tile.cuh"

template <class T> struct Round {
  const T* logits;
  i64 stride;
  int width, num_tiles;
  EditTable edits;
  const Cut* cuts;
  Partial* partials;

  __device__ __forceinline__ Row<T> row(const Item& item, int r) const {
    return {logits + r * stride, width, item.shape(cuts, r), edits.of(r)};
  }
  __device__ __forceinline__ Partial* of_row(int r) const {
    return partials + (i64)r * num_tiles;
  }
  // Whether the log-probs need sums of their own.
  __device__ __forceinline__ bool needs_raw(const Item& item) const {
    return !item.is_plain() || !edits.is_empty();
  }
  // This block's tile of row r.
  __device__ __forceinline__ void reduce(const Item& item, int r, const Contest& contest) const {
    reduce_tile(row(item, r), needs_raw(item), contest, of_row(r) + blockIdx.x, nullptr);
  }
  // The row's own draw, or the fastest id that no draft row covers.
  __device__ __forceinline__ u64 best(const Item& item, int r, const Mass& mass,
                                      int depth) const {
    if (item.rule == GREEDY) return argmax_tiles(of_row(r), num_tiles, mass.peak);
    const Purpose purpose = item.rule == REJECTION ? FINAL : TOKEN;
    return race_tiles(of_row(r), num_tiles, mass, item.noise(purpose, depth));
  }
  __device__ __forceinline__ float logprob(const Item& item, const Mass& mass, int r,
                                           int token) const {
    const float z = add(float_of(logits[r * stride + token]), 0.0f);
    if (!needs_raw(item)) return mass.logprob(z);
    const Mass raw = merge(of_row(r), num_tiles, true);
    return fault_of(raw.peak) ? NO_LOGPROB : raw.logprob(z);
  }
};
