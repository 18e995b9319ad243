// Sorting of short sequences, one a thread, by Batcher's odd-even merge network in registers. The
// network is a list of compare-and-swap steps that templates write out.
#ifndef EXAMPLES_CUDA_SORT_CUH_
#define EXAMPLES_CUDA_SORT_CUH_

#include "common.cuh"

namespace kernels {

template <typename K>
struct KeyOnly {
  using Key = K;
  static std::string Name() { return TypeName<K>() + "_keys"; }
  K key;
};
template <typename K, typename V>
struct KeyValue {
  using Key = K;
  static std::string Name() { return TypeName<K>() + "_" + TypeName<V>() + "_pairs"; }
  K key;
  V value;
};

struct Ascending {
  static constexpr const char* kName = "up";
  template <typename K>
  __device__ static bool Before(const K& a, const K& b) {
    return a < b;
  }
};
struct Descending {
  static constexpr const char* kName = "down";
  template <typename K>
  __device__ static bool Before(const K& a, const K& b) {
    return b < a;
  }
};

template <typename Order, int I, int J, typename Item, int N>
__device__ __forceinline__ void CompareSwap(Item (&items)[N]) {
  if (Order::Before(items[J].key, items[I].key)) {
    const Item item = items[I];
    items[I] = items[J];
    items[J] = item;
  }
}

// Merges two sorted halves of items[Low, Low + Count), looking at each Step-th one.
template <typename Order, int Low, int Count, int Step, typename Item, int N>
__device__ __forceinline__ void MergeNetwork(Item (&items)[N]) {
  constexpr int kNext = Step * 2;
  if constexpr (kNext < Count) {
    MergeNetwork<Order, Low, Count, kNext>(items);
    MergeNetwork<Order, Low + Step, Count, kNext>(items);
    Unroll<(Count - Step) / kNext>([&](auto i) {
      constexpr int kFirst = Low + Step + decltype(i)::value * kNext;
      if constexpr (kFirst + Step < Low + Count) CompareSwap<Order, kFirst, kFirst + Step>(items);
    });
  } else {
    CompareSwap<Order, Low, Low + Step>(items);
  }
}

template <typename Order, int Low, int Count, typename Item, int N>
__device__ __forceinline__ void SortNetwork(Item (&items)[N]) {
  if constexpr (Count > 1) {
    SortNetwork<Order, Low, Count / 2>(items);
    SortNetwork<Order, Low + Count / 2, Count / 2>(items);
    MergeNetwork<Order, Low, Count, 1>(items);
  }
}

template <typename Item, typename Order, int N>
__global__ void SortKernel(const Item* __restrict__ in, Item* __restrict__ out, int count) {
  static_assert((N & (N - 1)) == 0, "the network is built for powers of two");
  const int sequence = blockIdx.x * blockDim.x + threadIdx.x;
  if (sequence >= count) return;
  Item items[N];
  Unroll<N>([&](auto i) { items[i] = in[i * count + sequence]; });
  SortNetwork<Order, 0, N>(items);
  Unroll<N>([&](auto i) { out[i * count + sequence] = items[i]; });
}

template <typename Item, typename Order, int N>
void RunSort(const Workspace& workspace) {
  constexpr int kCount = 1024;
  SortKernel<Item, Order, N><<<kCount / 64, 64>>>(static_cast<const Item*>(workspace.in),
                                                  static_cast<Item*>(workspace.out), kCount);
}

template <typename Item, int... N>
void AddSort(Registry& registry, IntList<N...> sizes) {
  ForEachInt(sizes, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    const std::string name = Item::Name() + "_" + std::to_string(kSize) + "_";
    registry.Add("sort", name + Ascending::kName, RunSort<Item, Ascending, kSize>);
    registry.Add("sort", name + Descending::kName, RunSort<Item, Descending, kSize>);
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_SORT_CUH_
