// One cut per row for top-k, then top-p; min-p needs the row's largest value only.
//
//   key = k-th largest z;  key = the largest c >= key with Z(z >= c) >= top_p * Z(z >= key)
//   what stays: key_of(z) >= key, and exp(z - peak) >= min_p (Shape::keeps)
//
// Shapes: logits [R, V], V <= 524288, float, bf16 or f16, any row stride; edits as in batch.cuh;
//   cuts [R]. Rows of items without filters are left alone.
// Launch: grid (R), a block of up to 512 threads a row; the bits do not depend on it.
// Source: contract/verdict.py item 4. Oracle: reference/row.py.
#include "search.cuh"

template <class T>
__global__ void __launch_bounds__(512, 1) filter(const T* logits, i64 stride, int width,
                                               const Item* items, const int* item_of_row,
                                               const int* edit_starts, const Edit* edit_entries,
                                               const u8* allowed, int allowed_bytes, Cut* cuts) {
  SMEM(int, peaks, MAX_STRIPS);
  SMEM(float, sums, PIVOTS * MAX_STRIPS);
  SMEM(int, counters, 2 + PIVOTS);
  const Item item = items[item_of_row[blockIdx.x]];
  if (!item.is_filtered) return;
  const EditTable edits = {edit_starts, edit_entries, allowed, allowed_bytes};
  const Row<T> row = {logits + blockIdx.x * stride, width,
                      unfiltered(divide(1.0f, item.temperature)), edits.of(blockIdx.x)};
  Search<T> search = {row, 0.0f, peaks, sums, counters};
  search.measure();
  int key = LOWEST_FINITE_KEY;
  if (fault_of(search.peak) == NO_FAULT) {  // else verify finds the fault itself
    if (item.top_k > 0 && item.top_k < width) key = search.kth(item.top_k);
    if (item.top_p < 1.0f) key = search.nucleus(key, item.top_p);
  }
  if (threadIdx.x == 0) cuts[blockIdx.x] = {key, search.peak};
}
