// All noise: Philox4x32-10 keyed as contract/philox.py says, and the race key that it decides.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3".
#pragma once
#include "arithmetic.cuh"

enum Purpose { TOKEN = 0, ACCEPT = 1, FINAL = 2, DRAFT = 3 };

struct Words { u32 word[4]; };

DEVICE Words philox(u32 c0, u32 c1, u32 c2, u32 c3, u64 key) {
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const u32 left = __umulhi(0xD2511F53u, c0), right = __umulhi(0xCD9E8D57u, c2);
    const u32 low_left = 0xD2511F53u * c0, low_right = 0xCD9E8D57u * c2;
    c0 = right ^ c1 ^ k0;
    c1 = low_right;
    c2 = left ^ c3 ^ k1;
    c3 = low_left;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// A runner of a race: the larger key wins, equal scores go to the lower id; 0 is no runner.
DEVICE u64 runner(float score, int id) {
  return is_positive(score) ? (u64)__float_as_uint(score) << 32 | (u32)~id : 0;
}
DEVICE float score_of(u64 runner) { return __uint_as_float((u32)(runner >> 32)); }
DEVICE int id_of(u64 runner) { return (int)~(u32)runner; }
DEVICE u64 faster(u64 a, u64 b) { return a > b ? a : b; }

// The random numbers of one row and purpose.
struct Noise {
  u64 seed;
  u32 position, domain;  // domain: purpose | choice << 8

  // Of the ids 4 * group to 4 * group + 3.
  __device__ __forceinline__ Words group(int group) const {
    return philox((u32)group, position, domain, 0, seed);
  }
  __device__ __forceinline__ u32 bits(int id) const {
    const Words four = group(id >> 2);
    const int lane = id & 3;
    return lane == 0 ? four.word[0] : lane == 1 ? four.word[1]
         : lane == 2 ? four.word[2] : four.word[3];
  }
  __device__ __forceinline__ u64 runner_of(float weight, int id) const {
    return runner(divide(weight, exponential(bits(id))), id);
  }
};
