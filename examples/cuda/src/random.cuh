// Random numbers by counter (Philox 4x32), in several distributions, kItems groups of four a
// thread.
#ifndef EXAMPLES_CUDA_RANDOM_CUH_
#define EXAMPLES_CUDA_RANDOM_CUH_

#include "common.cuh"

namespace kernels {

struct Counter {
  std::uint32_t word[4];
};

template <int Rounds>
__device__ __forceinline__ Counter Philox(Counter counter, std::uint32_t key0, std::uint32_t key1) {
  Unroll<Rounds>([&](auto) {
    const std::uint32_t high0 = __umulhi(0xd2511f53u, counter.word[0]);
    const std::uint32_t low0 = 0xd2511f53u * counter.word[0];
    const std::uint32_t high1 = __umulhi(0xcd9e8d57u, counter.word[2]);
    const std::uint32_t low1 = 0xcd9e8d57u * counter.word[2];
    counter = {{high1 ^ counter.word[1] ^ key0, low1, high0 ^ counter.word[3] ^ key1, low0}};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  });
  return counter;
}

// (0, 1): never 0, so that its logarithm exists.
template <typename T>
__device__ __forceinline__ T ToUnit(std::uint32_t x) {
  return (static_cast<T>(x) + T(0.5)) * T(2.3283064365386963e-10);
}

struct Uniform {
  static constexpr const char* kName = "uniform";
  template <typename T>
  __device__ static void Draw(const Counter& c, T (&out)[4]) {
    Unroll<4>([&](auto i) { out[i] = ToUnit<T>(c.word[i]); });
  }
};
// Box and Muller.
struct Normal {
  static constexpr const char* kName = "normal";
  template <typename T>
  __device__ static void Draw(const Counter& c, T (&out)[4]) {
    Unroll<2>([&](auto i) {
      const T radius = sqrt(T(-2) * log(ToUnit<T>(c.word[2 * i])));
      const T angle = T(6.283185307179586) * ToUnit<T>(c.word[2 * i + 1]);
      out[2 * i] = radius * cos(angle);
      out[2 * i + 1] = radius * sin(angle);
    });
  }
};
struct Exponential {
  static constexpr const char* kName = "exponential";
  template <typename T>
  __device__ static void Draw(const Counter& c, T (&out)[4]) {
    Unroll<4>([&](auto i) { out[i] = -log(ToUnit<T>(c.word[i])); });
  }
};
struct Cauchy {
  static constexpr const char* kName = "cauchy";
  template <typename T>
  __device__ static void Draw(const Counter& c, T (&out)[4]) {
    Unroll<4>(
        [&](auto i) { out[i] = tan(T(3.141592653589793) * (ToUnit<T>(c.word[i]) - T(0.5))); });
  }
};

template <typename T, typename Distribution, int Rounds, int Items>
__global__ void RandomKernel(T* __restrict__ out, int count, std::uint32_t seed) {
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  Unroll<Items>([&](auto i) {
    const std::uint32_t group = thread * Items + i;
    T values[4];
    Distribution::Draw(Philox<Rounds>(Counter{{group, 0, 0, 0}}, seed, 0x1bd11bdau), values);
    Unroll<4>([&](auto j) {
      if (static_cast<int>(group * 4 + j) < count) out[group * 4 + j] = values[j];
    });
  });
}

template <typename T, typename Distribution, int Rounds, int Items>
void RunRandom(const Workspace& workspace) {
  constexpr int kCount = 1 << 16;
  RandomKernel<T, Distribution, Rounds, Items>
      <<<kCount / (4 * Items * 128) + 1, 128>>>(static_cast<T*>(workspace.out), kCount, 42u);
}

template <typename T, typename Distribution, int... Rounds, int... Items>
void AddRandom(Registry& registry, IntList<Rounds...> rounds, IntList<Items...> items) {
  ForEachInt(rounds, [&](auto round_count) {
    ForEachInt(items, [&](auto item_count) {
      constexpr int kRounds = decltype(round_count)::value;
      constexpr int kItems = decltype(item_count)::value;
      registry.Add("random",
                   TypeName<T>() + "_" + Distribution::kName + "_" + std::to_string(kRounds) +
                       "rounds_" + std::to_string(kItems),
                   RunRandom<T, Distribution, kRounds, kItems>);
    });
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_RANDOM_CUH_
