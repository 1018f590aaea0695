// What acceptance looks like over whole distributions, and what acceptance rates are worth.
//
//   accept = min(1, target / draft), 0 where target is 0;  residual = max(0, target - draft)
//   expected = sum_i prod_{j <= i} rate_j + 1
//
// Shapes: draft_probs, target_probs, accept, residual [count]; rates [B, K], expected [B]; float.
// Launch: any grid and block.
// Source: Leviathan et al. 2211.17192. Oracle: ops/diagnostics.py (the sum over i in order).
#include "arithmetic.cuh"

__global__ void __launch_bounds__(256) acceptance(const float* draft_probs,
                                                  const float* target_probs, i64 count,
                                                  float* accept, float* residual) {
  const i64 step = (i64)gridDim.x * blockDim.x;
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const float target = target_probs[i], draft = draft_probs[i], left = sub(target, draft);
    accept[i] = is_positive(target) ? lesser(1.0f, divide(target, draft)) : 0.0f;
    residual[i] = is_positive(left) ? left : 0.0f;
  }
}

__global__ void __launch_bounds__(256) expected_tokens(const float* rates, int batch, int length,
                                                       float* expected) {
  const int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= batch) return;
  float product = 1.0f, sum = 0.0f;
  for (int i = 0; i < length; i++) {
    product = mul(product, rates[(i64)b * length + i]);
    sum = add(sum, product);
  }
  expected[b] = add(sum, 1.0f);
}
