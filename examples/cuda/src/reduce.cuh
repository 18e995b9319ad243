// Reduction of an array to one state a block: each thread folds kItems values, then warps by
// shuffles, then the block by shared memory.
#ifndef EXAMPLES_CUDA_REDUCE_CUH_
#define EXAMPLES_CUDA_REDUCE_CUH_

#include "operators.cuh"

namespace kernels {

template <typename Op, typename T>
using StateOf = decltype(Op::Lift(T(), 0));

template <typename Op, typename T, int Width = 32>
__device__ __forceinline__ StateOf<Op, T> ReduceWarp(StateOf<Op, T> state) {
  if constexpr (Width > 1) {
    const auto other = ShuffleWords(
        state, [](unsigned word) { return __shfl_xor_sync(0xffffffffu, word, Width / 2); });
    return ReduceWarp<Op, T, Width / 2>(Op::Combine(state, other));
  } else {
    return state;
  }
}

// Folds values[Begin, Begin + Count) as a balanced tree: shorter dependency chains, better
// rounding.
template <typename Op, typename T, int Begin, int Count, typename Values>
__device__ __forceinline__ StateOf<Op, T> FoldTree(const Values& values) {
  if constexpr (Count == 1) {
    return values[Begin];
  } else {
    return Op::Combine(FoldTree<Op, T, Begin, Count / 2>(values),
                       FoldTree<Op, T, Begin + Count / 2, Count - Count / 2>(values));
  }
}

template <typename T, typename Op, int Threads, int Items>
__global__ void __launch_bounds__(Threads)
    ReduceKernel(const T* __restrict__ in, StateOf<Op, Accumulator<T>>* __restrict__ out,
                 int count) {
  using A = Accumulator<T>;
  using State = StateOf<Op, A>;
  static_assert(Threads % 32 == 0);
  __shared__ State warps[Threads / 32];
  State total = Op::template Identity<A>();
  const int stride = gridDim.x * Threads * Items;
  for (int base = blockIdx.x * Threads * Items; base < count; base += stride) {
    State values[Items];
    Unroll<Items>([&](auto i) {
      const int at = base + i * Threads + threadIdx.x;
      values[i] = at < count ? Op::Lift(Load(in[at]), at) : Op::template Identity<A>();
    });
    total = Op::Combine(total, FoldTree<Op, A, 0, Items>(values));
  }
  total = ReduceWarp<Op, A>(total);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = FoldTree<Op, A, 0, Threads / 32>(warps);
}

template <typename T, typename Op, int Threads, int Items>
void RunReduce(const Workspace& workspace) {
  constexpr int kCount = 1 << 18;
  ReduceKernel<T, Op, Threads, Items>
      <<<64, Threads>>>(static_cast<const T*>(workspace.in),
                        static_cast<StateOf<Op, Accumulator<T>>*>(workspace.out), kCount);
}

template <typename T, typename Op, int... Threads, int... Items>
void AddReduce(Registry& registry, IntList<Threads...> threads, IntList<Items...> items) {
  ForEachInt(threads, [&](auto thread_count) {
    ForEachInt(items, [&](auto item_count) {
      constexpr int kThreads = decltype(thread_count)::value;
      constexpr int kItems = decltype(item_count)::value;
      registry.Add("reduce",
                   TypeName<T>() + "_" + Op::kName + "_" + std::to_string(kThreads) + "x" +
                       std::to_string(kItems),
                   RunReduce<T, Op, kThreads, kItems>);
    });
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_REDUCE_CUH_
