// Prefix scans within a block, optionally by segments (a flag in each item's lowest bit begins a
// new one).
#ifndef EXAMPLES_CUDA_SCAN_CUH_
#define EXAMPLES_CUDA_SCAN_CUH_

#include "reduce.cuh"

namespace kernels {

// Turns any operator into one that starts anew at a flag.
template <typename Op, typename A>
struct Segmented {
  struct State {
    StateOf<Op, A> inner;
    unsigned flag;
    unsigned padding;  // an even number of words, whatever the inner state is
  };
  __device__ static State Combine(const State& a, const State& b) {
    return {b.flag != 0 ? b.inner : Op::Combine(a.inner, b.inner), a.flag | b.flag, 0};
  }
};

template <typename Combine, typename State, int Distance = 1>
__device__ __forceinline__ State ScanWarp(State state, Combine combine) {
  if constexpr (Distance < 32) {
    const State other = ShuffleWords(
        state, [](unsigned word) { return __shfl_up_sync(0xffffffffu, word, Distance); });
    if (threadIdx.x % 32 >= Distance) state = combine(other, state);
    return ScanWarp<Combine, State, Distance * 2>(state, combine);
  } else {
    return state;
  }
}

template <typename T, typename Op, int Threads, int Items, bool BySegments>
__global__ void __launch_bounds__(Threads)
    ScanKernel(const T* __restrict__ in, const unsigned char* __restrict__ flags,
               StateOf<Op, Accumulator<T>>* __restrict__ out, int count) {
  using A = Accumulator<T>;
  using S = Segmented<Op, A>;
  using State = typename S::State;
  constexpr int kWarps = Threads / 32;
  __shared__ State warps[kWarps];
  const auto combine = [](const State& a, const State& b) { return S::Combine(a, b); };
  const int base = (blockIdx.x * Threads + threadIdx.x) * Items;

  State values[Items];
  Unroll<Items>([&](auto i) {
    const bool inside = base + i < count;
    values[i].inner = inside ? Op::Lift(Load(in[base + i]), base + i) : Op::template Identity<A>();
    values[i].flag = BySegments && inside ? flags[base + i] & 1u : 0u;
    values[i].padding = 0;
  });
  Unroll<Items - 1>([&](auto i) { values[i + 1] = combine(values[i], values[i + 1]); });

  const State warp_total = ScanWarp(values[Items - 1], combine);
  if (threadIdx.x % 32 == 31) warps[threadIdx.x / 32] = warp_total;
  __syncthreads();
  State before = {Op::template Identity<A>(), 0, 0};
  Unroll<kWarps>([&](auto w) {
    if (w < static_cast<int>(threadIdx.x / 32)) before = combine(before, warps[w]);
  });
  const State left =
      ShuffleWords(warp_total, [](unsigned word) { return __shfl_up_sync(0xffffffffu, word, 1); });
  if (threadIdx.x % 32 != 0) before = combine(before, left);
  Unroll<Items>([&](auto i) {
    if (base + i < count) out[base + i] = combine(before, values[i]).inner;
  });
}

template <typename T, typename Op, int Threads, int Items, bool BySegments>
void RunScan(const Workspace& workspace) {
  constexpr int kCount = 1 << 16;
  constexpr int kBlocks = (kCount + Threads * Items - 1) / (Threads * Items);
  ScanKernel<T, Op, Threads, Items, BySegments><<<kBlocks, Threads>>>(
      static_cast<const T*>(workspace.in), static_cast<const unsigned char*>(workspace.other),
      static_cast<StateOf<Op, Accumulator<T>>*>(workspace.out), kCount);
}

template <typename T, typename Op, bool BySegments, int... Threads, int... Items>
void AddScan(Registry& registry, IntList<Threads...> threads, IntList<Items...> items) {
  ForEachInt(threads, [&](auto thread_count) {
    ForEachInt(items, [&](auto item_count) {
      constexpr int kThreads = decltype(thread_count)::value;
      constexpr int kItems = decltype(item_count)::value;
      registry.Add(BySegments ? "segmented_scan" : "scan",
                   TypeName<T>() + "_" + Op::kName + "_" + std::to_string(kThreads) + "x" +
                       std::to_string(kItems),
                   RunScan<T, Op, kThreads, kItems, BySegments>);
    });
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_SCAN_CUH_
