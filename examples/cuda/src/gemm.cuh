// C = A * B, tiled: a block computes kTileM x kTileN of C from slices of kTileK columns of A and
// rows of B in shared memory; each thread keeps kThreadM x kThreadN sums in registers.
#ifndef EXAMPLES_CUDA_GEMM_CUH_
#define EXAMPLES_CUDA_GEMM_CUH_

#include "common.cuh"

namespace kernels {

template <int TileM, int TileN, int TileK, int ThreadM, int ThreadN>
struct GemmShape {
  static constexpr int kTileM = TileM;
  static constexpr int kTileN = TileN;
  static constexpr int kTileK = TileK;
  static constexpr int kThreadM = ThreadM;
  static constexpr int kThreadN = ThreadN;
  static constexpr int kThreadsN = TileN / ThreadN;
  static constexpr int kThreads = (TileM / ThreadM) * kThreadsN;
  static std::string Name() {
    return std::to_string(TileM) + "x" + std::to_string(TileN) + "x" + std::to_string(TileK) + "_" +
           std::to_string(ThreadM) + "x" + std::to_string(ThreadN);
  }
};

// What happens to a sum before it is stored.
struct Identity {
  static constexpr const char* kName = "plain";
  template <typename A>
  __device__ static A Apply(A x) {
    return x;
  }
};
struct Relu {
  static constexpr const char* kName = "relu";
  template <typename A>
  __device__ static A Apply(A x) {
    return x > A(0) ? x : A(0);
  }
};
struct Gelu {
  static constexpr const char* kName = "gelu";
  template <typename A>
  __device__ static A Apply(A x) {
    const A cube = x * x * x;
    return A(0.5) * x * (A(1) + tanh(A(0.7978845608) * (x + A(0.044715) * cube)));
  }
};

template <typename T, typename Shape, typename Epilogue>
__global__ void __launch_bounds__(Shape::kThreads)
    GemmKernel(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n,
               int k) {
  using Sum = Accumulator<T>;
  __shared__ T a_tile[Shape::kTileK][Shape::kTileM];
  __shared__ T b_tile[Shape::kTileK][Shape::kTileN];
  const int row0 = blockIdx.y * Shape::kTileM;
  const int col0 = blockIdx.x * Shape::kTileN;
  const int thread_row = threadIdx.x / Shape::kThreadsN * Shape::kThreadM;
  const int thread_col = threadIdx.x % Shape::kThreadsN * Shape::kThreadN;

  Sum sums[Shape::kThreadM][Shape::kThreadN] = {};
  for (int k0 = 0; k0 < k; k0 += Shape::kTileK) {
    for (int i = threadIdx.x; i < Shape::kTileM * Shape::kTileK; i += Shape::kThreads) {
      const int row = row0 + i / Shape::kTileK;
      const int col = k0 + i % Shape::kTileK;
      a_tile[i % Shape::kTileK][i / Shape::kTileK] = row < m && col < k ? a[row * k + col] : T(0);
    }
    for (int i = threadIdx.x; i < Shape::kTileN * Shape::kTileK; i += Shape::kThreads) {
      const int row = k0 + i / Shape::kTileN;
      const int col = col0 + i % Shape::kTileN;
      b_tile[i / Shape::kTileN][i % Shape::kTileN] = row < k && col < n ? b[row * n + col] : T(0);
    }
    __syncthreads();
    Unroll<Shape::kTileK>([&](auto step) {
      Sum a_values[Shape::kThreadM];
      Sum b_values[Shape::kThreadN];
      Unroll<Shape::kThreadM>([&](auto i) { a_values[i] = Load(a_tile[step][thread_row + i]); });
      Unroll<Shape::kThreadN>([&](auto j) { b_values[j] = Load(b_tile[step][thread_col + j]); });
      Unroll<Shape::kThreadM>([&](auto i) {
        Unroll<Shape::kThreadN>([&](auto j) { sums[i][j] += a_values[i] * b_values[j]; });
      });
    });
    __syncthreads();
  }
  Unroll<Shape::kThreadM>([&](auto i) {
    Unroll<Shape::kThreadN>([&](auto j) {
      const int row = row0 + thread_row + i;
      const int col = col0 + thread_col + j;
      if (row < m && col < n) c[row * n + col] = Store<T>(Epilogue::Apply(sums[i][j]));
    });
  });
}

template <typename T, typename Shape, typename Epilogue>
void RunGemm(const Workspace& workspace) {
  constexpr int kSize = 512;
  const dim3 grid((kSize + Shape::kTileN - 1) / Shape::kTileN,
                  (kSize + Shape::kTileM - 1) / Shape::kTileM);
  GemmKernel<T, Shape, Epilogue><<<grid, Shape::kThreads>>>(
      static_cast<const T*>(workspace.in), static_cast<const T*>(workspace.other),
      static_cast<T*>(workspace.out), kSize, kSize, kSize);
}

template <typename T, typename... Shape, typename... Epilogue>
void AddGemm(Registry& registry, TypeList<Shape...> shapes, TypeList<Epilogue...> epilogues) {
  ForEachType(shapes, [&](auto shape) {
    using S = typename decltype(shape)::type;
    ForEachType(epilogues, [&](auto epilogue) {
      using E = typename decltype(epilogue)::type;
      registry.Add("gemm", TypeName<T>() + "_" + S::Name() + "_" + E::kName, RunGemm<T, S, E>);
    });
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_GEMM_CUH_
