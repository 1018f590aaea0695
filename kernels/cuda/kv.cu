// The rows of an accepted tree path move down a paged pool, in place, to where a chain would have
// put them. One launch for every layer's keys and values.
//
// Shapes: planes [P] addresses of pools of rows of row_bytes (a multiple of 16), 16-byte aligned;
//   starts [B + 1]; sources, targets [starts[B]]: no target is a later source of its item.
// Launch: grid (B, P), any block. A thread carries the same bytes of every row, in order: what is
//   still to be read is never written before. Rows lie anywhere: a text's pages are in no order.
//   Items own different rows.
// Oracle: pool[targets] = pool[sources].
#include "arithmetic.cuh"

__global__ void __launch_bounds__(256) move_rows(const u64* planes, int row_bytes,
                                                 const int* starts, const int* sources,
                                                 const int* targets) {
  uint4* const plane = (uint4*)planes[blockIdx.y];
  const int units = row_bytes / 16;
  for (int n = starts[blockIdx.x]; n < starts[blockIdx.x + 1]; n++) {
    const i64 from = (i64)sources[n] * units, to = (i64)targets[n] * units;
    if (from == to) continue;
    for (int i = threadIdx.x; i < units; i += blockDim.x) plane[to + i] = plane[from + i];
  }
}
