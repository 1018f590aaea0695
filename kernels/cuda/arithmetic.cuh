// Float32 arithmetic with the contract's bits: reference/arithmetic.py in CUDA. Includes nothing, like every
// source here, so that NVRTC needs no toolkit.
//
// CuPy compiles with -ftz=true and the compiler may contract a * b + c. The operations below say
// what they do whatever the flags: PTX instructions that keep subnormals and round once. For the
// same reason floats are compared by their bits: a comparison under -ftz takes subnormals for zero.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE static __device__ __forceinline__
#ifdef CUEMU  // g++ executes the source in the tests
#define BINARY(name, ptx, host) DEVICE float name(float a, float b) { return host; }
DEVICE float fma32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
#else
#define SMEM(T, name, n) __shared__ T name[n]
#define BINARY(name, ptx, host)                           \
  DEVICE float name(float a, float b) {                   \
    float c;                                              \
    asm(ptx " %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); \
    return c;                                             \
  }
DEVICE float fma32(float a, float b, float c) {
  float d;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}
#endif
#define NOT_A_FLOAT __int_as_float(0x7fffffff)  // what max.NaN gives
#define NO_LOGPROB __int_as_float(0x7fc00000)  // NumPy's NaN
#define MINUS_INF __int_as_float(0xff800000)
BINARY(add, "add.rn.f32", a + b)
BINARY(sub, "sub.rn.f32", a - b)
BINARY(mul, "mul.rn.f32", a * b)
BINARY(divide, "div.rn.f32", a / b)
BINARY(maximum, "max.NaN.f32", a != a || b != b ? NOT_A_FLOAT : a > b ? a : b)
#undef BINARY

constexpr int NO_KEY = -2147483647 - 1;  // below the key of every float
constexpr int LOWEST_FINITE_KEY = -0x7f800000;

// An int that compares as x does. Its own inverse on the bits.
DEVICE int key_of(float x) {
  const int bits = __float_as_int(x);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
DEVICE float value_of(int key) { return __int_as_float(key ^ ((key >> 31) & 0x7fffffff)); }

// For floats that are not negative and no NaN; a negative x is not positive either.
DEVICE bool is_positive(float x) { return __float_as_int(x) > 0; }
DEVICE float lesser(float a, float b) { return __float_as_int(a) < __float_as_int(b) ? a : b; }

// e**x for x <= 0 to 2 ulp; 0 for x <= -64 and for NaN.
DEVICE float exp32(float x) {
  const float rounded = fma32(x, 1.44269504f, 12582912.0f);
  const u32 power = __float_as_uint(rounded) - 0x4b400000u;
  const float k = sub(rounded, 12582912.0f);
  const float f = fma32(k, 2.12194440e-4f, fma32(k, -0.693359375f, x));
  float p = fma32(1.9875691500e-4f, f, 1.3981999507e-3f);
  p = fma32(p, f, 8.3334519073e-3f);
  p = fma32(p, f, 4.1665795894e-2f);
  p = fma32(p, f, 1.6666665459e-1f);
  p = fma32(p, f, 5.0000001201e-1f);
  p = fma32(p, mul(f, f), add(f, 1.0f));
  return x > -64.0f ? __uint_as_float(__float_as_uint(p) + (power << 23)) : 0.0f;
}

// log((1 + f) * 2**k).
DEVICE float log_of(float f, float k) {
  const float z = mul(f, f);
  float p = fma32(7.0376836292e-2f, f, -1.1514610310e-1f);
  p = fma32(p, f, 1.1676998740e-1f);
  p = fma32(p, f, -1.2420140846e-1f);
  p = fma32(p, f, 1.4249322787e-1f);
  p = fma32(p, f, -1.6668057665e-1f);
  p = fma32(p, f, 2.0000714765e-1f);
  p = fma32(p, f, -2.4999993993e-1f);
  p = fma32(p, f, 3.3333331174e-1f);
  const float y = fma32(k, -2.12194440e-4f, mul(mul(p, f), z));
  return fma32(k, 0.693359375f, add(f, fma32(-0.5f, z, y)));
}

// x = (1 + f) * 2**k with 1 + f within [sqrt(1/2), sqrt(2)).
DEVICE float split(float x, float* k) {
  const int bits = __float_as_int(x), power = (bits - 0x3f3504f3) >> 23;
  *k = (float)power;
  return sub(__uint_as_float((u32)bits - ((u32)power << 23)), 1.0f);
}

DEVICE float log32(float x) {
  float k;
  const float f = split(x, &k);
  return log_of(f, k);
}

constexpr float LANE_STEP = 2.3283064365386963e-10f;  // 2**-32

// Exp(1) from 32 random bits: -log1p(-(x + 0.5) / 2**32), precise near zero.
DEVICE float exponential(u32 bits) {
  const bool is_near_zero = bits < 0x4b000000u;
  float k;
  const float f = split(mul(add((float)~bits, 0.5f), LANE_STEP), &k);
  const float near = mul(add((float)bits, 0.5f), -LANE_STEP);
  const float log = log_of(is_near_zero ? near : f, is_near_zero ? 0.0f : k);
  return sub(0.0f, log);  // never zero
}

// [0, 1) from the top 24 of 32 random bits.
DEVICE float uniform(u32 bits) { return mul((float)(bits >> 8), 5.9604644775390625e-8f); }
