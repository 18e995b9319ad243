// What all kernels share: compile-time loops, number types, and their names.
#ifndef EXAMPLES_CUDA_COMMON_CUH_
#define EXAMPLES_CUDA_COMMON_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "registry.h"

namespace kernels {

// A number that is part of its type. (std::integral_constant converts in host code only.)
template <int N>
struct Int {
  static constexpr int value = N;
  __host__ __device__ constexpr operator int() const { return N; }
};

template <typename F, int... I>
__host__ __device__ __forceinline__ void UnrollSequence(F&& f, std::integer_sequence<int, I...>) {
  (f(Int<I>{}), ...);
}

// Calls f(Int<0>{}), ..., f(Int<N - 1>{}): each index is a constant of its own, so that arrays
// indexed by it stay in registers and branches on it vanish.
template <int N, typename F>
__host__ __device__ __forceinline__ void Unroll(F&& f) {
  UnrollSequence(static_cast<F&&>(f), std::make_integer_sequence<int, N>{});
}

// Sums are kept in a wider type than what is stored.
template <typename T>
struct NumberTraits;
template <>
struct NumberTraits<float> {
  using Accumulator = float;
  static constexpr const char* kName = "f32";
};
template <>
struct NumberTraits<double> {
  using Accumulator = double;
  static constexpr const char* kName = "f64";
};
template <>
struct NumberTraits<__half> {
  using Accumulator = float;
  static constexpr const char* kName = "f16";
};
template <>
struct NumberTraits<__nv_bfloat16> {
  using Accumulator = float;
  static constexpr const char* kName = "bf16";
};
template <>
struct NumberTraits<std::int8_t> {
  using Accumulator = std::int32_t;
  static constexpr const char* kName = "i8";
};
template <>
struct NumberTraits<std::int32_t> {
  using Accumulator = std::int64_t;
  static constexpr const char* kName = "i32";
};
template <>
struct NumberTraits<std::uint32_t> {
  using Accumulator = std::uint64_t;
  static constexpr const char* kName = "u32";
};
template <>
struct NumberTraits<std::int64_t> {
  using Accumulator = std::int64_t;
  static constexpr const char* kName = "i64";
};

template <typename T>
using Accumulator = typename NumberTraits<T>::Accumulator;

template <typename T>
std::string TypeName() {
  return NumberTraits<T>::kName;
}

template <typename T>
__device__ __forceinline__ Accumulator<T> Load(T value) {
  return static_cast<Accumulator<T>>(value);
}

template <typename T>
__device__ __forceinline__ T Store(Accumulator<T> value) {
  return static_cast<T>(value);
}

// A list of types or of constants, to build the product of a kernel's variants.
template <typename... T>
struct TypeList {};
template <int... I>
struct IntList {};

// A type as a value (std::type_identity is C++20, which CMake before 3.26 doesn't offer for nvcc).
template <typename T>
struct TypeTag {
  using type = T;
};

template <typename F, typename... T>
void ForEachType(TypeList<T...>, F f) {
  (f(TypeTag<T>{}), ...);
}
template <typename F, int... I>
void ForEachInt(IntList<I...>, F f) {
  (f(Int<I>{}), ...);
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_COMMON_CUH_
