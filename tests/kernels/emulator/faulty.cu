// Small kernels, sound and faulty, for the tests of the emulator. One fault each; `// <-` marks the
// lines that its message names.
#ifndef CUEMU
#define SMEM(T, name, n) __shared__ T name[n]
#define SMEM_DYN(T, name) extern __shared__ T name[]
#endif
#define FULL 0xffffffffu

// ---- sound

template <int N> __global__ void sum(const float* x, float* y, int n) {
  SMEM(float, part, N / 32);
  float v = 0;
  for (int i = threadIdx.x + blockIdx.x * N; i < n; i += N * gridDim.x) v += x[i];
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(FULL, v, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x) return;
  v = 0;
  for (int i = 0; i < N / 32; i++) v += part[i];
  y[blockIdx.x] = v;
}

__global__ void where(int* out) {  // every index of a grid of any shape
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int size = blockDim.x * blockDim.y * blockDim.z;
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * size + thread] = block * 1000 + thread;
}

__global__ void warp_words(int* out) {  // out[lane * 12 ...]
  const int lane = threadIdx.x, v = lane * lane;
  int* o = out + lane * 12;
  o[0] = __shfl_sync(FULL, v, 5);
  o[1] = __shfl_sync(FULL, v, 1, 8);
  o[2] = __shfl_up_sync(FULL, v, 3);
  o[3] = __shfl_down_sync(FULL, v, 3);
  o[4] = __shfl_xor_sync(FULL, v, 4);
  o[5] = __ballot_sync(FULL, v % 3 == 1);
  o[6] = __any_sync(FULL, lane == 31) * 2 + __all_sync(FULL, lane < 31);
  o[7] = __reduce_add_sync(FULL, v);
  o[8] = __reduce_max_sync(FULL, v % 7);
  o[9] = lane < 8 ? __shfl_sync(0xffu, v, 7) : __shfl_sync(0xffffff00u, v, 9);
  o[10] = __syncthreads_count(lane % 5 == 0);
  o[11] = __syncthreads_or(lane == 40) * 2 + __syncthreads_and(lane < 32);
}

__global__ void last_block(const int* x, int* part, unsigned* counter, int* total) {
  SMEM(int, is_last, 1);
  if (threadIdx.x == 0) {
    part[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    is_last[0] = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last[0] || threadIdx.x) return;
  __threadfence();
  int t = 0;
  for (int i = 0; i < gridDim.x; i++) t += part[i];
  *total = t;
}

__global__ void order(int* log, int* next) {
  log[atomicAdd(next, 1)] = blockIdx.x * 64 + threadIdx.x;
}

__global__ void product(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] * 0.25f; }

__global__ void dynamic(int* y, int n) {
  SMEM_DYN(int, values);
  values[threadIdx.x] = n;
  y[threadIdx.x] = values[threadIdx.x];
}

__global__ void types(char a, short b, int c, long long d, double e, int* out) {
  out[0] = a + b + c + int(d) + int(e);
}

// ---- what the emulator refuses

__global__ void divergent_barrier(int* y) {
  if (threadIdx.x < 40) {
    __syncthreads();  // <-
  } else {
    __syncthreads();  // <-
  }
  y[0] = 1;
}

__global__ void early_return(int* y) {
  if (threadIdx.x == 7) return;
  __syncthreads();  // <-
  y[0] = 1;
}

__global__ void late_barrier(int* y) {  // the others return; the last one waits for nobody
  if (threadIdx.x != 7) return;
  __syncthreads();  // <-
  y[0] = 1;
}

__global__ void divergent_shuffle(int* y) {
  int v = threadIdx.x;
  if (v < 16) {
    v = __shfl_xor_sync(FULL, v, 1);  // <-
  } else {
    v = __shfl_xor_sync(FULL, v, 1);  // <-
  }
  y[threadIdx.x] = v;
}

__global__ void not_in_mask(int* y) {
  y[threadIdx.x] = __ballot_sync(0xffffu, 1);  // <-
}

__global__ void reads_outside_mask(int* y) {
  if (threadIdx.x < 8) y[threadIdx.x] = __shfl_sync(0xffu, 1, 9);  // <-
}

__global__ void gone_lane(int* y) {
  if (threadIdx.x == 3) return;
  y[threadIdx.x] = __any_sync(FULL, 1);  // <-
}

__global__ void deadlock(int* y) {  // half of each warp at the barrier, half at a warp's meeting
  if (threadIdx.x % 32 < 16) {
    __syncthreads();  // <-
  } else {
    __syncwarp();
  }
  y[0] = 1;
}

__global__ void too_much_shared(int* y) {
  SMEM(int, a, 8192);
  SMEM(int, b, 8192);
  y[0] = a[0] + b[0];
}

__global__ void traps(int* y) {
  if (threadIdx.x == 9) __trap();  // <-
}

// ---- what shows as a result that depends on schedule or poison

__global__ void unset_shared(int* y) {
  SMEM(int, v, 64);
  if (threadIdx.x) v[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = v[threadIdx.x];
}

__global__ void missing_barrier(int* y) {
  SMEM(int, v, 64);
  v[threadIdx.x] = 0;
  __syncthreads();
  v[threadIdx.x] = threadIdx.x;
  y[threadIdx.x] = v[(threadIdx.x + 33) % 64];
}

__global__ void counter_in_parts(unsigned* counter, int* y) {  // read and reset apart
  if (atomicAdd(counter, 1u) == gridDim.x - 1) y[0]++;
  if (atomicAdd(counter, 0u) == gridDim.x) atomicExch(counter, 0u), y[1]++;
}

// ---- what a sanitizer finds

__global__ void past_global(const int* x, int* y, int n) { y[threadIdx.x] = x[threadIdx.x + n]; }

__global__ void past_shared(int* y) {
  SMEM(int, v, 63);
  v[threadIdx.x] = 1;
  y[threadIdx.x] = 1;
}

__global__ void past_dynamic(int* y) {
  SMEM_DYN(int, v);
  v[threadIdx.x] = 1;
  y[threadIdx.x] = 1;
}

__global__ void misaligned(const float* x, float* y) { y[threadIdx.x] = ((const float4*)x)->x; }

__global__ void misaligned_shared(int* y) {  // an array of int is aligned for int
  SMEM(int, v, 64);
  ((int4*)v)[0] = {1, 2, 3, 4};
  y[threadIdx.x] = 0;
}

__global__ void overflow(int* y, int n) { y[threadIdx.x] = n + 1; }

__global__ void shuffle_as_fence(int* y) {  // a shuffle orders no memory
  SMEM(int, v, 32);
  v[threadIdx.x] = threadIdx.x;
  const int one = __shfl_sync(FULL, 1, 0);
  y[threadIdx.x] = v[threadIdx.x ^ 1] + one;
}

__global__ void warp_fence(int* y) {  // the sound twin
  SMEM(int, v, 32);
  v[threadIdx.x] = threadIdx.x;
  __syncwarp();
  y[threadIdx.x] = v[threadIdx.x ^ 1] + 1;
}

__global__ void unfenced_block(const int* x, int* part, unsigned* counter, int* total) {
  if (threadIdx.x) return;
  part[blockIdx.x] = x[blockIdx.x];
  if (atomicInc(counter, gridDim.x - 1) != gridDim.x - 1) return;
  int t = 0;
  for (int i = 0; i < gridDim.x; i++) t += part[i];
  *total = t;
}

__global__ void reader_unfenced(const int* x, int* part, unsigned* counter, int* total) {
  if (threadIdx.x) return;
  part[blockIdx.x] = x[blockIdx.x];
  __threadfence();
  if (atomicInc(counter, gridDim.x - 1) != gridDim.x - 1) return;
  int t = 0;
  for (int i = 0; i < gridDim.x; i++) t += part[i];
  *total = t;
}

__global__ void two_writers(int* y) {
  if (threadIdx.x == 0) y[0] = blockIdx.x;
}
