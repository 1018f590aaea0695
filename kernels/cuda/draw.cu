// One drafted token per row, and the distribution it was drawn from.
//
//   GREEDY argmax z   COUPLED the target's own race   REJECTION a private race over the top_m
//   largest z, of equals the lowest ids, with probabilities exp(z - M) / their sum
//
//   and guesses of what the target will draw there: the leaders of its own race over this row
//
// Shapes: logits [R, V], V <= 524288, float, bf16 or f16, any row stride, of which the first
//   `width` ids are drawn; items [R], edits as in batch.cuh, cuts [R], partials [R, num_tiles],
//   strip_peaks [R, num_tiles, 8],
//   leaders [R, num_tiles, num_guesses], counters [R] zero; draws [R], support [R, top_m],
//   top_m <= 1024, guesses [R, num_guesses].
// Launch: grid (num_tiles, R), 256 threads; the last block of a row draws. Every element of the
//   outputs is written.
// Source: contract/verdict.py items 7, 10 and 11. Oracle: reference/backend.py.
#include "leaders.cuh"
#include "search.cuh"

constexpr int MAX_TOP_M = 1024;

struct Drawn {
  int token, error;
  float prob;
};

// The support's ids, in order, and their weights; returns how many.
template <class T>
DEVICE int collect(const Search<T>& search, int cut, int room, int* ids, float* weights) {
  SMEM(u64, warps, STRIPS);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  int num_above = 0, num_equal = 0;  // in the tiles before
  for (int tile = 0; tile < search.num_tiles(); tile++) {
    if (key_of(search.tile_peak(tile)) < cut) continue;
    float z[PER_THREAD];
    const int first = search.load(tile * STRIPS + warp, z);
    // Four counts of 16 bits, in the order of their ids: above and equal, lower half then upper.
    u64 own = 0;
#pragma unroll
    for (int e = 0; e < PER_THREAD; e++) {
      const int key = key_of(z[e]), shift = e >> 3 << 5;
      own += (u64)(key > cut) << shift | (u64)(key == cut) << (shift + 16);
    }
    u64 before = own;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
      const u64 other = __shfl_up_sync(ALL_LANES, before, d);
      if (lane >= d) before += other;
    }
    if (lane == 31) warps[warp] = before;
    __syncthreads();
    before -= own;
    u64 all = 0;
#pragma unroll
    for (int w = 0; w < STRIPS; w++) {
      if (w < warp) before += warps[w];
      all += warps[w];
    }
    __syncthreads();
    const int lower_above = (int)(all & 0xffff), lower_equal = (int)(all >> 16 & 0xffff);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const u32 counts = (u32)(before >> 32 * half);
      int above = num_above + (int)(counts & 0xffff) + (half ? lower_above : 0);
      int equal = num_equal + (int)(counts >> 16) + (half ? lower_equal : 0);
#pragma unroll
      for (int e = 8 * half; e < 8 * half + 8; e++) {
        const int key = key_of(z[e]);
        if (key > cut || (key == cut && equal < room)) {
          const int at = above + min(equal, room);
          ids[at] = strip_id(first, e);
          weights[at] = exp32(sub(z[e], search.peak));
        }
        above += key > cut;
        equal += key == cut;
      }
    }
    num_above += lower_above + (int)(all >> 32 & 0xffff);
    num_equal += lower_equal + (int)(all >> 48);
  }
  __syncthreads();
  return num_above + min(num_equal, room);
}

// One value per thread, the tree over threads.
DEVICE float block_sum(float x, float* warps) {
  x = warp_sum(x);
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = x;
  __syncthreads();
  return tree8(warps);
}

// The top_m ids of the row, their probabilities, and the draw.
template <class T>
DEVICE void draw_support(Search<T>& search, const int* strip_peaks, int top_m, const Noise& noise,
                         int* support_ids, float* support_probs, Drawn* drawn) {
  SMEM(int, ids, MAX_TOP_M);
  SMEM(float, weights, MAX_TOP_M);
  SMEM(float, warp_sums, STRIPS);
  SMEM(u64, winners, STRIPS);
  const volatile int* const peaks = strip_peaks;
  for (int i = threadIdx.x; i < search.num_strips(); i += THREADS) search.peaks[i] = peaks[i];
  for (int i = threadIdx.x; i < MAX_TOP_M; i += THREADS) weights[i] = 0.0f;
  __syncthreads();
  const int top = key_of(search.peak) + 1, cut = search.kth(top_m);
  const Seen above = search.pass(LOWEST_FINITE_KEY, top, {{cut + 1, cut + 1, cut + 1}}, false);
  const int count = collect(search, cut, top_m - above.count[0], ids, weights);
  const float* four = weights + 4 * threadIdx.x;
  const float own = add(add(four[0], four[1]), add(four[2], four[3]));
  const float inverse = divide(1.0f, block_sum(own, warp_sums));
  u64 best = 0;
  for (int i = threadIdx.x; i < top_m; i += THREADS) {
    const float prob = mul(weights[i], inverse);
    support_ids[i] = i < count ? ids[i] : -1;
    support_probs[i] = i < count ? prob : 0.0f;
    if (i < count) best = faster(best, noise.runner_of(prob, ids[i]));
  }
  best = warp_fastest(best);
  if ((threadIdx.x & 31) == 0) winners[threadIdx.x >> 5] = best;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < STRIPS; w++) best = faster(best, winners[w]);
  for (int i = threadIdx.x; i < count; i += THREADS) {
    if (ids[i] == id_of(best)) *drawn = {ids[i], NO_FAULT, mul(weights[i], inverse)};
  }
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) draw(
    const T* logits, i64 stride, int width, const Item* items, const int* edit_starts,
    const Edit* edit_entries, const u8* allowed, int allowed_bytes, const Cut* cuts,
    Partial* partials, int* strip_peaks, Leader* leaders, u32* counters, int top_m,
    int num_guesses, Drawn* draws, int* support_ids, float* support_probs, int* guesses) {
  SMEM(int, peaks, MAX_STRIPS);
  SMEM(float, sums, PIVOTS * MAX_STRIPS);
  SMEM(int, counters_of_search, 2 + PIVOTS);
  const int num_tiles = gridDim.x, r = blockIdx.y;
  const Item item = items[r];
  const EditTable edits = {edit_starts, edit_entries, allowed, allowed_bytes};
  const bool is_rejection = item.rule == REJECTION;
  const Noise of_target = item.noise(is_rejection ? FINAL : TOKEN, 0);
  const Row<T> row = {logits + r * stride, width, item.shape(cuts, r), edits.of(r)};
  Partial* const own_partials = partials + (i64)r * num_tiles;
  int* const own_peaks = strip_peaks + (i64)r * num_tiles * STRIPS;
  Leader* const own_leaders = leaders + (i64)r * num_tiles * num_guesses;
  const float tile_peak =
      reduce_tile(row, false, {item.rule, of_target, 0, !is_rejection},
                  own_partials + blockIdx.x, own_peaks + blockIdx.x * STRIPS);
  lead_tile(row, tile_peak, item.rule, of_target, num_guesses,
            own_leaders + blockIdx.x * num_guesses);
  if (!is_last(counters + r, (u32)num_tiles)) return;

  const Mass mass = merge(own_partials, num_tiles, false);
  const int fault = fault_of(mass.peak);
  int* const own_ids = support_ids + (i64)r * top_m;
  float* const own_probs = support_probs + (i64)r * top_m;
  int* const own_guesses = guesses + (i64)r * num_guesses;
  if (!fault) {
    lead_row(own_leaders, num_tiles * num_guesses, mass, item.rule, of_target, num_guesses,
             own_guesses);
  }
  if (is_rejection && !fault) {
    Search<T> search = {row, mass.peak, peaks, sums, counters_of_search};
    draw_support(search, own_peaks, top_m, item.noise(DRAFT, 0), own_ids, own_probs, draws + r);
    return;
  }
  for (int i = threadIdx.x; i < top_m; i += THREADS) {
    own_ids[i] = -1;
    own_probs[i] = 0.0f;
  }
  for (int i = threadIdx.x; fault && i < num_guesses; i += THREADS) own_guesses[i] = -1;
  if (threadIdx.x >= 32) return;
  const u64 best = fault                    ? 0
                   : item.rule == GREEDY    ? argmax_tiles(own_partials, num_tiles, mass.peak)
                                            : race_tiles(own_partials, num_tiles, mass, of_target);
  if (threadIdx.x > 0) return;
  draws[r] = fault ? Drawn{0, fault, 0.0f}
                   : Drawn{id_of(best), NO_FAULT, mass.prob(row.z(id_of(best)))};
}
