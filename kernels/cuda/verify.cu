// The verdict on B drafted chains, in one launch, each logit read once.
//
//   accept x iff   GREEDY x = argmax z   COUPLED x = argmax probs / E   REJECTION u q(x) < p(x)
//   then one token from the first row not accepted: the row's own draw, or in REJECTION a race of
//   max(0, p - q); after the last row, a bonus from the row behind it
//
// Shapes: logits [R, V], R = sum(num_drafted + 1), V <= 524288, float, bf16 or f16, any row stride;
//   edits as in batch.cuh, support [N, M], M <= 1024, dense [N, V], cuts [R],
//   partials [R, num_tiles], counters [B] zero; results [B], logprobs [B, num_logprobs].
// Launch: grid (num_tiles, R), 256 threads. A block reduces one tile to a Partial; the last block
//   of an item judges it, a warp a row. Tiles and orders are fixed, so the bits do not depend on
//   grid, batch or GPU. Every element of the outputs is written; nothing else needs clearing.
// Source: contract/verdict.py; Leviathan et al. 2211.17192, Daliri et al. 2408.07978. Oracle: reference/backend.py.
#include "round.cuh"

constexpr int ROWS_AT_ONCE = STRIPS;  // a warp each
enum End { GOES_ON = 0, STOPS = 1, FAULTY = 2 };

struct Drafts {
  const Drafted* drafted;
  const int* support_ids;
  const float* support_probs;
  int num_entries;
  const float* dense;
  int width;

  __device__ __forceinline__ DraftRow row(int n) const {
    const i64 entries = (i64)n * num_entries;
    return {drafted[n].token,        drafted[n].kind, width,
            support_ids + entries,   support_probs + entries,
            num_entries,             dense + (i64)n * width};
  }
};

// One row of an item, judged; the same in all lanes of its warp.
struct Judged {
  End end;
  int fault;
  u64 best;   // the row's own draw, or the fastest id that no draft row covers
  float own;  // draft probability of the drafted token
  Mass mass;
};

template <class T>
DEVICE Judged judge(const Round<T>& round, const Item& item, int j, const DraftRow& draft) {
  const int r = item.first_row + j;
  Judged it = {STOPS, 0, 0, 0.0f, merge(round.of_row(r), round.num_tiles, false)};
  it.fault = fault_of(it.mass.peak);
  if (it.fault) {
    it.end = FAULTY;
    return it;
  }
  it.best = round.best(item, r, it.mass, j);
  if (j == item.num_drafted) return it;
  bool is_accepted = id_of(it.best) == draft.token;
  if (item.rule == REJECTION) {
    it.own = draft.own();
    if (!is_positive(it.own)) return it;
    const float target = it.mass.prob(round.row(item, r).z(draft.token));
    const float u = uniform(item.noise(ACCEPT, j).bits(draft.token));
    is_accepted = __float_as_uint(mul(u, it.own)) < __float_as_uint(target);
  }
  if (is_accepted) it.end = GOES_ON;
  return it;
}

// The recovered or bonus token of a judged row that was not accepted.
template <class T>
DEVICE int final_token(const Round<T>& round, const Item& item, int j, const Judged& it,
                       const DraftRow& draft) {
  if (item.rule != REJECTION || j == item.num_drafted) return id_of(it.best);
  const int r = item.first_row + j;
  const Row<T> row = round.row(item, r);
  const Noise noise = item.noise(FINAL, j);
  const bool holds_up = is_positive(it.own), is_dense = draft.kind == DENSE;
  u64 best = it.best;
  if (holds_up && !is_dense) {
    best = faster(best, draft.race_covered(row, it.mass, noise));
  } else if (is_dense || draft.kind == SPARSE) {
    best = 0;  // the first pass had no race, or left out ids that run after all
  }
  const float* dense = holds_up && is_dense ? draft.dense : nullptr;
  while (!best) {
    best = race_row(row, round.of_row(r), it.mass, noise, dense);
    dense = nullptr;  // nothing left over: from the target's own weights
  }
  return id_of(best);
}

// Where an item's judgement goes.
struct Outcome {
  Result* result;
  float* logprobs;
  int num_logprobs;

  // What was not reached is zero; after a fault everything is.
  __device__ __forceinline__ void clear(int last, bool is_faulty) const {
    for (int j = threadIdx.x; j < num_logprobs; j += THREADS) {
      if (is_faulty || j > last) logprobs[j] = 0.0f;
    }
  }
};

// The last block's part: a warp a row, until one is not accepted.
template <class T>
DEVICE void finish(const Round<T>& round, const Drafts& drafts, const Item& item, int b,
                 const Outcome& out) {
  SMEM(int, ends, ROWS_AT_ONCE);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  int stop = ROWS_AT_ONCE;
  for (int start = 0; stop == ROWS_AT_ONCE; start += ROWS_AT_ONCE) {
    const int j = start + warp, r = item.first_row + j;
    const bool is_row = j <= item.num_drafted;
    const DraftRow draft = j < item.num_drafted ? drafts.row(r - b) : DraftRow{-1, MISSING};
    Judged it;
    if (is_row) it = judge(round, item, j, draft);
    if (lane == 0) ends[warp] = is_row ? it.end : GOES_ON;
    __syncthreads();
    for (stop = 0; stop < ROWS_AT_ONCE && ends[stop] == GOES_ON;) stop++;
    const bool is_faulty = stop < ROWS_AT_ONCE && ends[stop] == FAULTY;
    if (is_row && warp <= stop && !is_faulty) {
      const bool is_final = warp == stop;
      const int token = is_final ? final_token(round, item, j, it, draft) : draft.token;
      const float logprob = round.logprob(item, it.mass, r, token);
      if (lane == 0) {
        out.logprobs[j] = logprob;
        if (is_final) *out.result = {j, token, NO_FAULT};
      }
    }
    if (is_faulty && warp == stop && lane == 0) *out.result = {0, 0, it.fault};
    __syncthreads();
    if (stop < ROWS_AT_ONCE) out.clear(start + stop, is_faulty);
  }
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) verify(
    const T* logits, i64 stride, int width, const Item* items, const int* item_of_row,
    const Drafted* drafted, const int* support_ids, const float* support_probs, int num_entries,
    const float* dense, const int* edit_starts, const Edit* edit_entries, const u8* allowed,
    int allowed_bytes, const Cut* cuts, Partial* partials, u32* counters, Result* results,
    float* logprobs, int num_logprobs) {
  const int b = item_of_row[blockIdx.y];
  const Item item = items[b];
  const Round<T> round = {logits, stride, width, (int)gridDim.x,
                          {edit_starts, edit_entries, allowed, allowed_bytes}, cuts, partials};
  const Drafts drafts = {drafted, support_ids, support_probs, num_entries, dense, width};
  const int r = blockIdx.y;
  const bool is_rejection = item.rule == REJECTION;
  Contest contest = {item.rule, item.noise(is_rejection ? FINAL : TOKEN, r - item.first_row), 0,
                     true};
  if (is_rejection && r < item.first_row + item.num_drafted) {
    const DraftRow draft = drafts.row(r - b);
    contest.is_on = draft.kind != DENSE;
    contest.excluded = draft.covered(strip_first(blockIdx.x, threadIdx.x >> 5));
  }
  round.reduce(item, r, contest);
  if (!is_last(counters + b, gridDim.x * (item.num_drafted + 1))) return;
  finish(round, drafts, item, b,
         {results + b, logprobs + (i64)b * num_logprobs, num_logprobs});
}
