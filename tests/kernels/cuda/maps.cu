// The device functions over arrays, to be compared with reference/arithmetic.py and contract/philox.py.
__global__ void maps(const float* x, const u32* bits, int count, float* exps, float* logs,
                     float* exponentials, float* uniforms) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    exps[i] = exp32(x[i]);
    logs[i] = log32(-x[i]);
    exponentials[i] = exponential(bits[i]);
    uniforms[i] = uniform(bits[i]);
  }
}

__global__ void words(const u32* counters, const u64* keys, u32* out) {
  const u32* c = counters + 4 * threadIdx.x;
  const Words four = philox(c[0], c[1], c[2], c[3], keys[threadIdx.x]);
  for (int i = 0; i < 4; i++) out[4 * threadIdx.x + i] = four.word[i];
}

// The race's quick test against the score itself: how many it throws out that would have won.
__global__ void wrongs(const float* weights, const u32* bits, const float* leads, int count,
                       int* wrong, int* thrown) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const bool is_out = is_hopeless(weights[i], bits[i], leads[i]);
    const float score = divide(weights[i], exponential(bits[i]));
    atomicAdd(thrown, (int)is_out);
    atomicAdd(wrong, (int)(is_out && score >= leads[i]));
  }
}
