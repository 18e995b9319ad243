// Attention without the matrix of scores: each thread owns one query and walks over tiles of keys
// and values in shared memory, with a running maximum and sum (the online softmax).
#ifndef EXAMPLES_CUDA_ATTENTION_CUH_
#define EXAMPLES_CUDA_ATTENTION_CUH_

#include "common.cuh"

namespace kernels {

struct FullMask {
  static constexpr const char* kName = "full";
  __device__ static bool Allows(int, int) { return true; }
};
struct CausalMask {
  static constexpr const char* kName = "causal";
  __device__ static bool Allows(int query, int key) { return key <= query; }
};
// The last 64 keys only.
struct WindowMask {
  static constexpr const char* kName = "window";
  __device__ static bool Allows(int query, int key) { return key <= query && query - key < 64; }
};

template <typename T, typename Mask, int HeadDim, int KeyTile, int Threads>
__global__ void __launch_bounds__(Threads)
    AttentionKernel(const T* __restrict__ queries, const T* __restrict__ keys,
                    const T* __restrict__ values, T* __restrict__ out, int length, float scale) {
  __shared__ T key_tile[KeyTile][HeadDim];
  __shared__ T value_tile[KeyTile][HeadDim];
  const int query = blockIdx.x * Threads + threadIdx.x;
  const std::size_t head = static_cast<std::size_t>(blockIdx.y) * length * HeadDim;
  float q[HeadDim];
  float sums[HeadDim] = {};
  Unroll<HeadDim>([&](auto d) {
    q[d] = query < length ? scale * Load(queries[head + query * HeadDim + d]) : 0.0f;
  });
  float maximum = -1e30f;
  float weight_sum = 0;

  for (int key0 = 0; key0 < length; key0 += KeyTile) {
    __syncthreads();
    for (int i = threadIdx.x; i < KeyTile * HeadDim; i += Threads) {
      const bool inside = key0 + i / HeadDim < length;
      key_tile[i / HeadDim][i % HeadDim] = inside ? keys[head + key0 * HeadDim + i] : T(0);
      value_tile[i / HeadDim][i % HeadDim] = inside ? values[head + key0 * HeadDim + i] : T(0);
    }
    __syncthreads();
    float scores[KeyTile];
    float tile_maximum = maximum;
    Unroll<KeyTile>([&](auto k) {
      float score = 0;
      Unroll<HeadDim>([&](auto d) { score += q[d] * Load(key_tile[k][d]); });
      const bool allowed = key0 + k < length && Mask::Allows(query, key0 + k);
      scores[k] = allowed ? score : -1e30f;
      tile_maximum = fmaxf(tile_maximum, scores[k]);
    });
    const float correction = __expf(maximum - tile_maximum);
    maximum = tile_maximum;
    weight_sum *= correction;
    Unroll<HeadDim>([&](auto d) { sums[d] *= correction; });
    Unroll<KeyTile>([&](auto k) {
      const float weight = scores[k] > -1e29f ? __expf(scores[k] - maximum) : 0.0f;
      weight_sum += weight;
      Unroll<HeadDim>([&](auto d) { sums[d] += weight * Load(value_tile[k][d]); });
    });
  }
  if (query >= length) return;
  const float inverse = weight_sum > 0 ? 1.0f / weight_sum : 0.0f;
  Unroll<HeadDim>([&](auto d) { out[head + query * HeadDim + d] = Store<T>(sums[d] * inverse); });
}

template <typename T, typename Mask, int HeadDim, int KeyTile>
void RunAttention(const Workspace& workspace) {
  constexpr int kLength = 256;
  constexpr int kHeads = 2;
  constexpr int kThreads = 64;
  AttentionKernel<T, Mask, HeadDim, KeyTile, kThreads>
      <<<dim3(kLength / kThreads, kHeads), kThreads>>>(
          static_cast<const T*>(workspace.in), static_cast<const T*>(workspace.other),
          static_cast<const T*>(workspace.in), static_cast<T*>(workspace.out), kLength, 0.125f);
}

template <typename T, typename Mask, int HeadDim, int... KeyTile>
void AddAttention(Registry& registry, IntList<KeyTile...> tiles) {
  ForEachInt(tiles, [&](auto tile) {
    constexpr int kTile = decltype(tile)::value;
    registry.Add("attention",
                 TypeName<T>() + "_" + Mask::kName + "_d" + std::to_string(HeadDim) + "_k" +
                     std::to_string(kTile),
                 RunAttention<T, Mask, HeadDim, kTile>);
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_ATTENTION_CUH_
