// CUDA's words for a source compiled by g++ -include device.h: qualifiers, indices, shared memory,
// barriers, warp primitives. A source asks for CUEMU to tell this build from a real one.
// Static shared memory is written SMEM(T, name, n): g++ has no storage class for it.
// Not here: clusters, grid barriers, __activemask, cooperative groups, inline PTX.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime.h"

#define CUEMU 1
#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#include "intrinsics.h"

#define threadIdx (emulator::running->index)
#define blockIdx (emulator::running->block->index)
#define blockDim (emulator::launch->block)
#define gridDim (emulator::launch->grid)
constexpr int warpSize = emulator::WARP;

#define SMEM(T, name, n) \
  static int name##_slot = -1; \
  T* const name = static_cast<T*>(emulator::shared_array(name##_slot, sizeof(T) * (n), alignof(T)))
#define SMEM_DYN(T, name) \
  T* const name = reinterpret_cast<T*>(emulator::running->block->dynamic.memory)

#define EMULATOR_HERE(what) emulator::Site{__FILE__, __LINE__, what}
#define __syncthreads() (void)emulator::barrier(EMULATOR_HERE("__syncthreads()"), false)
#define __syncthreads_or(p) int(emulator::barrier(EMULATOR_HERE("__syncthreads_or()"), (p)).any)
#define __syncthreads_and(p) int(emulator::barrier(EMULATOR_HERE("__syncthreads_and()"), (p)).all)
#define __syncthreads_count(p) emulator::barrier(EMULATOR_HERE("__syncthreads_count()"), (p)).count
#define __syncwarp(...) \
  emulator::sync_warp(EMULATOR_HERE("__syncwarp()"), emulator::full_mask(__VA_ARGS__))
#define __threadfence() emulator::fence()
#define __threadfence_block() emulator::fence()
#define __trap() emulator::fail("stops at " + emulator::place(EMULATOR_HERE("__trap()")))
#define assert(x) \
  ((x) ? void() : emulator::fail("finds " + emulator::place(EMULATOR_HERE("!(" #x ")"))))

#define EMULATOR_SHUFFLE(what, source, ...) \
  emulator::shuffle(EMULATOR_HERE(what), emulator::Source::source, __VA_ARGS__)
#define __shfl_sync(...) EMULATOR_SHUFFLE("__shfl_sync()", LANE, __VA_ARGS__)
#define __shfl_xor_sync(...) EMULATOR_SHUFFLE("__shfl_xor_sync()", XOR, __VA_ARGS__)
#define __shfl_down_sync(...) EMULATOR_SHUFFLE("__shfl_down_sync()", DOWN, __VA_ARGS__)
#define __shfl_up_sync(...) EMULATOR_SHUFFLE("__shfl_up_sync()", UP, __VA_ARGS__)
#define __ballot_sync(m, p) emulator::ballot(EMULATOR_HERE("__ballot_sync()"), m, (p))
#define __any_sync(m, p) int(emulator::ballot(EMULATOR_HERE("__any_sync()"), m, (p)) != 0)
#define __all_sync(m, p) int(emulator::ballot(EMULATOR_HERE("__all_sync()"), m, !(p)) == 0)

#define EMULATOR_REDUCE(what, combined, ...) \
  emulator::reduce(EMULATOR_HERE(what), [](auto a, auto b) { return combined; }, __VA_ARGS__)
#define __reduce_add_sync(...) EMULATOR_REDUCE("__reduce_add_sync()", a + b, __VA_ARGS__)
#define __reduce_max_sync(...) EMULATOR_REDUCE("__reduce_max_sync()", a > b ? a : b, __VA_ARGS__)
#define __reduce_min_sync(...) EMULATOR_REDUCE("__reduce_min_sync()", a < b ? a : b, __VA_ARGS__)
#define __reduce_or_sync(...) EMULATOR_REDUCE("__reduce_or_sync()", a | b, __VA_ARGS__)
#define __reduce_and_sync(...) EMULATOR_REDUCE("__reduce_and_sync()", a & b, __VA_ARGS__)

namespace emulator {

enum class Source { LANE, XOR, DOWN, UP };

inline unsigned full_mask(unsigned mask = 0xffffffffu) { return mask; }

template <class T>
T shuffle(Site site, Source source, unsigned mask, T value, int by, int width = 32) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  const uint64_t* values = meet(site, mask, bits);
  const int lane = running->lane, first = lane & ~(width - 1);
  int from = lane;
  if (source == Source::LANE) from = first + (by & (width - 1));
  if (source == Source::XOR) from = lane ^ by;
  if (source == Source::DOWN) from = lane + by;
  if (source == Source::UP) from = lane - by;
  const bool is_own = from >= first + width || (source == Source::UP && from < first);
  if (is_own) return value;
  if (!((mask & running->warp->members) >> from & 1))
    fail("reads lane " + std::to_string(from) + ", which is not in the mask, at " + place(site));
  memcpy(&value, &values[from], sizeof value);
  return value;
}

inline unsigned ballot(Site site, unsigned mask, bool vote) {
  const uint64_t* values = meet(site, mask, vote);
  unsigned votes = 0;
  for (unsigned lanes = mask & running->warp->members; lanes; lanes &= lanes - 1)
    votes |= unsigned(values[__builtin_ctz(lanes)]) << __builtin_ctz(lanes);
  return votes;
}

template <class T, class F> T reduce(Site site, F combine, unsigned mask, T value) {
  static_assert(sizeof(T) == 4, "warp reductions take 32-bit integers");
  const uint64_t* values = meet(site, mask, uint64_t(value));
  const unsigned lanes = mask & running->warp->members;
  T total = T(values[__builtin_ctz(lanes)]);
  for (unsigned rest = lanes & (lanes - 1); rest; rest &= rest - 1)
    total = combine(total, T(values[__builtin_ctz(rest)]));
  return total;
}

// A kernel as it is launched: what its parameters are, and a call with a pointer to each.
template <class... P> constexpr Parameter parameters[sizeof...(P) + 1] = {
    {sizeof(P), std::is_pointer_v<P>}..., {0, false}};
template <class... P, size_t... I>
void call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_const_t<P>*>(arguments[I])...);
}
template <auto kernel> struct Launchable;
template <class... P, void (*kernel)(P...)> struct Launchable<kernel> {
  static void run(void** arguments) { call(kernel, arguments, std::index_sequence_for<P...>{}); }
  static constexpr Kernel entry = {run, sizeof...(P), parameters<P...>};
};

}  // namespace emulator
