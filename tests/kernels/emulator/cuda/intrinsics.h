// CUDA's numeric intrinsics, atomics and vector types on the CPU. Float results are IEEE, rounded
// to nearest; approximations (__expf, ex2.approx, ...) are left out: they have no defined bits.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulator {
template <class To, class From> To reinterpret(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace emulator

inline unsigned __float_as_uint(float x) { return emulator::reinterpret<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return emulator::reinterpret<float>(x); }
inline int __float_as_int(float x) { return emulator::reinterpret<int>(x); }
inline float __int_as_float(int x) { return emulator::reinterpret<float>(x); }
inline long long __double_as_longlong(double x) { return emulator::reinterpret<long long>(x); }
inline double __longlong_as_double(long long x) { return emulator::reinterpret<double>(x); }

inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
inline float __int2float_rn(int a) { return float(a); }
inline float __uint2float_rn(unsigned a) { return float(a); }
inline float __ull2float_rn(unsigned long long a) { return float(a); }
inline int __float2int_rz(float a) { return int(a); }
inline unsigned __float2uint_rz(float a) { return unsigned(a); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; i++) reversed |= (x >> i & 1) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}

template <class A, class B> std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(a) > T(b) ? T(a) : T(b);
}
template <class A, class B> std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(a) < T(b) ? T(a) : T(b);
}
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline float min(float a, float b) { return __builtin_fminf(a, b); }

// Cache hints change nothing here.
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> void __stcg(T* p, T value) { *p = value; }
template <class T> void __stcs(T* p, T value) { *p = value; }

// Atomics order nothing but themselves, as on the device. A random schedule may switch before one.
namespace emulator {
void preempt();

template <class T, class F> T update(T* p, F next) {
  preempt();
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  Bits* word = reinterpret_cast<Bits*>(p);
  Bits seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &seen, reinterpret<Bits>(T(next(reinterpret<T>(seen)))),
                                      false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return reinterpret<T>(seen);
}
template <class T> struct Identity { using type = T; };
template <class T> using As = typename Identity<T>::type;  // deduced from the pointer alone
}  // namespace emulator

#define EMULATOR_ATOMIC(name, result)                              \
  template <class T> T name(T* p, emulator::As<T> v) {             \
    return emulator::update(p, [=](T o) { return T(result); });    \
  }
EMULATOR_ATOMIC(atomicAdd, o + v)
EMULATOR_ATOMIC(atomicSub, o - v)
EMULATOR_ATOMIC(atomicMax, o < v ? v : o)
EMULATOR_ATOMIC(atomicMin, v < o ? v : o)
EMULATOR_ATOMIC(atomicExch, v)
EMULATOR_ATOMIC(atomicOr, o | v)
EMULATOR_ATOMIC(atomicAnd, o & v)
EMULATOR_ATOMIC(atomicXor, o ^ v)
#undef EMULATOR_ATOMIC
template <class T> T atomicCAS(T* p, emulator::As<T> expected, emulator::As<T> v) {
  return emulator::update(p, [=](T o) { return o == expected ? v : o; });
}
inline unsigned atomicInc(unsigned* p, unsigned last) {
  return emulator::update(p, [=](unsigned o) { return o >= last ? 0u : o + 1; });
}
inline unsigned atomicDec(unsigned* p, unsigned last) {
  return emulator::update(p, [=](unsigned o) { return o == 0 || o > last ? last : o - 1; });
}
