// Associative operators for reductions and scans.
#ifndef EXAMPLES_CUDA_OPERATORS_CUH_
#define EXAMPLES_CUDA_OPERATORS_CUH_

#include "common.cuh"

namespace kernels {

struct Sum {
  static constexpr const char* kName = "sum";
  template <typename T>
  using State = T;
  template <typename T>
  __device__ static T Identity() {
    return T(0);
  }
  template <typename T>
  __device__ static T Lift(T value, int) {
    return value;
  }
  template <typename T>
  __device__ static T Combine(T a, T b) {
    return a + b;
  }
};

struct Maximum {
  static constexpr const char* kName = "max";
  template <typename T>
  using State = T;
  template <typename T>
  __device__ static T Identity() {
    return T(-128);  // the least value of the narrowest type
  }
  template <typename T>
  __device__ static T Lift(T value, int) {
    return value;
  }
  template <typename T>
  __device__ static T Combine(T a, T b) {
    return a < b ? b : a;
  }
};

// A value and where it was found; of equals the first.
struct ArgMaximum {
  static constexpr const char* kName = "argmax";
  template <typename T>
  struct State {
    T value;
    int index;
  };
  template <typename T>
  __device__ static State<T> Identity() {
    return {T(-128), 0x7fffffff};
  }
  template <typename T>
  __device__ static State<T> Lift(T value, int index) {
    return {value, index};
  }
  template <typename T>
  __device__ static State<T> Combine(State<T> a, State<T> b) {
    const bool take_b = a.value < b.value || (!(b.value < a.value) && b.index < a.index);
    return take_b ? b : a;
  }
};

// Count, mean and sum of squared differences, combined without loss (Chan et al.).
struct Moments {
  static constexpr const char* kName = "moments";
  template <typename T>
  struct State {
    T count;
    T mean;
    T squares;
  };
  template <typename T>
  __device__ static State<T> Identity() {
    return {T(0), T(0), T(0)};
  }
  template <typename T>
  __device__ static State<T> Lift(T value, int) {
    return {T(1), value, T(0)};
  }
  template <typename T>
  __device__ static State<T> Combine(State<T> a, State<T> b) {
    const T count = a.count + b.count;
    if (!(count > T(0))) return a;
    const T delta = b.mean - a.mean;
    return {count, a.mean + delta * b.count / count,
            a.squares + b.squares + delta * delta * a.count * b.count / count};
  }
};

// Moves a state to the lane `distance` below or above, word by word, whatever it is made of.
template <typename State, typename Shuffle>
__device__ __forceinline__ State ShuffleWords(State state, Shuffle shuffle) {
  static_assert(sizeof(State) % sizeof(unsigned) == 0);
  constexpr int kWords = sizeof(State) / sizeof(unsigned);
  unsigned words[kWords];
  memcpy(words, &state, sizeof state);
  Unroll<kWords>([&](auto i) { words[i] = shuffle(words[i]); });
  memcpy(&state, words, sizeof state);
  return state;
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_OPERATORS_CUH_
