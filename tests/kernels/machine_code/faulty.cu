// What the checks of machine code are there to catch.

// More values alive at once than a block of 1024 threads has registers for, and float64.
extern "C" __global__ void __launch_bounds__(1024) spilling(const double* x, double* y, int n) {
  double kept[64];
#pragma unroll
  for (int i = 0; i < 64; i++) kept[i] = x[threadIdx.x + i * n];
  __syncthreads();
  double total = 0;
#pragma unroll
  for (int i = 0; i < 64; i++)
#pragma unroll
    for (int j = 0; j < 3; j++) total = total * kept[i] + kept[(i * 7 + j) % 64];
  y[threadIdx.x] = total;
}

// A product and sum that become one fma, a comparison and a sign under -ftz; the comparison with 1
// is sound.
extern "C" __global__ void loose(const float* x, float* y) {
  const float z = x[0] * x[1] + x[2];
  if (z > x[3]) y[0] = z;
  if (z > 1.0f) y[1] = -x[4];
}
