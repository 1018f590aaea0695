// The verdict on B trees of drafted tokens, in one launch, each logit read once.
//
//   GREEDY, COUPLED: from the root, the child that equals the row's own draw, until there is none
//   REJECTION, siblings in drafted order, without replacement, r = 1 at first:
//     accept x iff u (q_x r) < t_x, else t = max(0, t - q r), q_x = 0, r = mass(t) / mass(q)
//     none accepted: a race of what is left over
//
// Shapes: logits [R, V], R = sum(num_nodes + 1), as for verify; items [B] with num_drafted nodes;
//   rows [R], children [N] of a row one after another; support [R, M], M <= 1024; edits as in
//   batch.cuh; cuts [R], partials [R, num_tiles], counters [B] zero; results [B],
//   path [B, max_path], logprobs [B, max_path + 1].
// Launch: grid (num_tiles, R), 256 threads; the last block of an item walks, with one warp. Every
//   element of the outputs is written.
// Source: reference/trees.py, which is the oracle as well.
#include "round.cuh"

struct TreeRow {
  int item, depth;
  int first_child, num_children;
  int kind;  // of the draft row that the children came from
};

struct Child {
  int token, row;
};

// The tree over `count` values in shared memory, by one warp.
DEVICE float support_sum(const float* values, int count) {
  const int lane = threadIdx.x & 31;
  float sum_of_32 = 0.0f;
  for (int i = 0; i < count; i += 32) {
    const float sum = warp_sum(i + lane < count ? values[i + lane] : 0.0f);
    if (lane == i / 32) sum_of_32 = sum;
  }
  return warp_sum(sum_of_32);
}

// What a row's children came from, and what is left of it. One warp; arrays in shared memory.
struct Siblings {
  const Child* children;
  int num_children;
  DraftRow draft;
  int* ids;  // [count] of the draft row; of a one-hot one, the children's tokens
  float* probs;
  float* left;  // the target's
  int count;

  // Fills the arrays; false: there is no row, or it does not hold up.
  template <class T>
  __device__ __forceinline__ bool open(const Row<T>& row, const Mass& mass) {
    const int lane = threadIdx.x & 31;
    const bool is_one_hot = draft.kind == ONE_HOT;
    count = is_one_hot ? num_children : draft.kind == SPARSE ? draft.num_entries : 0;
    u32 bad = draft.kind == MISSING;
    for (int i = lane; i - lane < count; i += 32) {
      int id = -1;
      float prob = 0.0f;
      if (i < count) {
        id = is_one_hot ? children[i].token : draft.ids[i];
        prob = is_one_hot ? 1.0f : draft.probs[i];
      }
      if (!is_one_hot) {
        const u32 ends = __ballot_sync(ALL_LANES, id == -1);
        const bool is_there = !(ends & ((2u << lane) - 1));
        const int before = i == 0 ? -1 : i < count ? draft.ids[i - 1] : 0;
        const bool is_good = id > before && id < row.width && is_probability(prob);
        bad |= __ballot_sync(ALL_LANES, is_there && !is_good);
        if (ends) count = min(count, i - lane + __ffs(ends) - 1);
      }
      if (i >= count) continue;
      const bool is_known = 0 <= id && id < row.width;
      ids[i] = id;
      probs[i] = is_known ? prob : 0.0f;
      left[i] = is_known ? mass.prob(row.z(id)) : 0.0f;
    }
    __syncwarp();
    return !bad;
  }

  __device__ __forceinline__ int find(int token) const {
    for (int i = threadIdx.x & 31; i - (int)(threadIdx.x & 31) < count; i += 32) {
      const bool is_it = i < count && ids[i] == token && is_positive(probs[i]);
      const u32 at = __ballot_sync(ALL_LANES, is_it);
      if (at) return i - (threadIdx.x & 31) + __ffs(at) - 1;
    }
    return -1;
  }

  // Takes the rejected entry's draft probability out of both.
  __device__ __forceinline__ float reject(int at, float ratio, float rest) {
    const bool is_one_hot = draft.kind == ONE_HOT;
    for (int i = threadIdx.x & 31; i < count; i += 32) {
      if (is_one_hot) left[i] = i == at ? 0.0f : left[i];
      else left[i] = excess(left[i], mul(probs[i], ratio));
      if (i == at) probs[i] = 0.0f;
    }
    __syncwarp();
    const float of_target = add(rest, support_sum(left, count));
    return is_one_hot ? of_target : divide(of_target, support_sum(probs, count));
  }

  // The child that is accepted, or -1.
  __device__ __forceinline__ int judge(const Noise& noise) {
    const float rest = excess(1.0f, support_sum(left, count));
    float ratio = 1.0f;
    for (int c = 0; c < num_children; c++) {
      const int token = children[c].token, at = find(token);
      if (at < 0) continue;
      const float chance = mul(uniform(noise.bits(token)), mul(probs[at], ratio));
      if (__float_as_uint(chance) < __float_as_uint(left[at])) return c;
      __syncwarp();
      ratio = reject(at, ratio, rest);
    }
    return -1;
  }

  // The fastest of the covered ids by what is left of them.
  __device__ __forceinline__ u64 race(const Noise& noise) const {
    u64 best = 0;
    for (int i = threadIdx.x & 31; i < count; i += 32) {
      const bool is_covered = draft.kind == ONE_HOT || is_positive(draft.probs[i]);
      if (is_covered && is_positive(left[i])) best = faster(best, noise.runner_of(left[i], ids[i]));
    }
    return warp_fastest(best);
  }
};

// (the child that is accepted or -1, the token drawn if there is none).
struct Step {
  int child, token;
};

template <class T>
DEVICE Step step(const Round<T>& round, const Item& item, int r, int depth, const Mass& mass,
                 Siblings siblings) {
  u64 best = round.best(item, r, mass, depth);
  const int lane = threadIdx.x & 31;
  if (item.rule != REJECTION) {
    for (int c = 0; c < siblings.num_children; c += 32) {
      const bool is_child = c + lane < siblings.num_children;
      const bool is_it = is_child && siblings.children[c + lane].token == id_of(best);
      const u32 at = __ballot_sync(ALL_LANES, is_it);
      if (at) return {c + __ffs(at) - 1, id_of(best)};
    }
    return {-1, id_of(best)};
  }
  if (siblings.num_children == 0 || siblings.draft.kind == MISSING) return {-1, id_of(best)};
  const Row<T> row = round.row(item, r);
  const Noise noise = item.noise(FINAL, depth);
  best = 0;
  if (siblings.open(row, mass)) {
    const int child = siblings.judge(item.noise(ACCEPT, depth));
    if (child >= 0) return {child, siblings.children[child].token};
    best = faster(round.best(item, r, mass, depth), siblings.race(noise));
  }
  if (!best) best = race_row<T>(row, round.of_row(r), mass, noise, nullptr);
  return {-1, id_of(best)};
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2) tree(
    const T* logits, i64 stride, int width, const Item* items, const TreeRow* rows,
    const Child* children, const int* support_ids, const float* support_probs, int num_entries,
    const int* edit_starts, const Edit* edit_entries, const u8* allowed, int allowed_bytes,
    const Cut* cuts, Partial* partials, u32* counters, Result* results, int* path, float* logprobs,
    int max_path) {
  SMEM(int, ids, MAX_SUPPORT);
  SMEM(float, probs, MAX_SUPPORT);
  SMEM(float, left, MAX_SUPPORT);
  const int b = rows[blockIdx.y].item, lane = threadIdx.x & 31;
  const Item item = items[b];
  const bool is_rejection = item.rule == REJECTION;
  const Round<T> round = {logits, stride, width, (int)gridDim.x,
                          {edit_starts, edit_entries, allowed, allowed_bytes}, cuts, partials};
  const auto siblings_of = [&](int r) {
    const TreeRow at = rows[r];
    const i64 entries = (i64)r * num_entries;
    const DraftRow draft = {-1, at.kind, width, support_ids + entries, support_probs + entries,
                            num_entries};
    return Siblings{children + at.first_child, at.num_children, draft, ids, probs, left, 0};
  };
  {
    const Siblings own = siblings_of(blockIdx.y);
    const int first = strip_first(blockIdx.x, threadIdx.x >> 5);
    const Noise noise = item.noise(is_rejection ? FINAL : TOKEN, rows[blockIdx.y].depth);
    Contest contest = {item.rule, noise, 0, true};
    if (is_rejection && own.num_children) {
      contest.excluded = own.draft.kind == SPARSE ? own.draft.covered(first) : 0;
      for (int c = 0; c < own.num_children && own.draft.kind == ONE_HOT; c++) {
        contest.excluded |= DraftRow::mine(own.children[c].token, first);
      }
    }
    round.reduce(item, blockIdx.y, contest);
  }
  if (!is_last(counters + b, gridDim.x * (item.num_drafted + 1)) || threadIdx.x >= 32) return;

  int* const own_path = path + (i64)b * max_path;
  float* const own_logprobs = logprobs + (i64)b * (max_path + 1);
  int length = 0, fault = NO_FAULT;
  for (int r = item.first_row;; length++) {
    const Mass mass = merge(round.of_row(r), round.num_tiles, false);
    fault = fault_of(mass.peak);
    if (fault) break;
    const Siblings siblings = siblings_of(r);
    const Step taken = step(round, item, r, length, mass, siblings);
    const float logprob = round.logprob(item, mass, r, taken.token);
    if (taken.child >= 0) r = siblings.children[taken.child].row;
    if (lane == 0) {
      own_logprobs[length] = logprob;
      if (taken.child >= 0) own_path[length] = r - item.first_row - 1;
      else results[b] = {length, taken.token, NO_FAULT};
    }
    __syncwarp();
    if (taken.child < 0) break;
  }
  if (fault && lane == 0) results[b] = {0, 0, fault};
  for (int j = lane; j <= max_path; j += 32) {
    if (fault || j > length) own_logprobs[j] = 0.0f;
    if (j < max_path && (fault || j >= length)) own_path[j] = 0;
  }
}
