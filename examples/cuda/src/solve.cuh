// Many small linear systems, one a thread, the matrix in registers: Cholesky for symmetric ones, LU
// without pivoting for diagonally dominant ones. All loops are written out.
#ifndef EXAMPLES_CUDA_SOLVE_CUH_
#define EXAMPLES_CUDA_SOLVE_CUH_

#include "common.cuh"

namespace kernels {

// Unroll over [Begin, End); nothing for an empty range.
template <int Begin, int End, typename F>
__device__ __forceinline__ void UnrollRange(F&& f) {
  if constexpr (End > Begin) {
    Unroll<End - Begin>([&](auto i) { f(Int<Begin + decltype(i)::value>{}); });
  }
}

struct Cholesky {
  static constexpr const char* kName = "cholesky";
  template <typename T, int N>
  __device__ static void Solve(T (&a)[N][N], T (&x)[N]) {
    Unroll<N>([&](auto j) {
      constexpr int kJ = decltype(j)::value;
      UnrollRange<0, kJ>([&](auto k) { a[j][j] -= a[j][k] * a[j][k]; });
      a[j][j] = sqrt(a[j][j]);
      const T inverse = T(1) / a[j][j];
      UnrollRange<kJ + 1, N>([&](auto i) {
        UnrollRange<0, kJ>([&](auto k) { a[i][j] -= a[i][k] * a[j][k]; });
        a[i][j] *= inverse;
      });
    });
    Unroll<N>([&](auto i) {
      UnrollRange<0, decltype(i)::value>([&](auto k) { x[i] -= a[i][k] * x[k]; });
      x[i] /= a[i][i];
    });
    Unroll<N>([&](auto reverse) {
      constexpr int kI = N - 1 - decltype(reverse)::value;
      UnrollRange<kI + 1, N>([&](auto k) { x[kI] -= a[k][kI] * x[k]; });
      x[kI] /= a[kI][kI];
    });
  }
};

struct Lu {
  static constexpr const char* kName = "lu";
  template <typename T, int N>
  __device__ static void Solve(T (&a)[N][N], T (&x)[N]) {
    Unroll<N>([&](auto k) {
      constexpr int kK = decltype(k)::value;
      const T inverse = T(1) / a[k][k];
      UnrollRange<kK + 1, N>([&](auto i) {
        a[i][k] *= inverse;
        UnrollRange<kK + 1, N>([&](auto j) { a[i][j] -= a[i][k] * a[k][j]; });
        x[i] -= a[i][k] * x[k];
      });
    });
    Unroll<N>([&](auto reverse) {
      constexpr int kI = N - 1 - decltype(reverse)::value;
      UnrollRange<kI + 1, N>([&](auto j) { x[kI] -= a[kI][j] * x[j]; });
      x[kI] /= a[kI][kI];
    });
  }
};

template <typename T, typename Method, int N>
__global__ void SolveKernel(const T* __restrict__ matrices, const T* __restrict__ right,
                            T* __restrict__ out, int count) {
  const int system = blockIdx.x * blockDim.x + threadIdx.x;
  if (system >= count) return;
  T a[N][N];
  T x[N];
  Unroll<N>([&](auto i) {
    x[i] = right[i * count + system];
    Unroll<N>([&](auto j) { a[i][j] = matrices[(i * N + j) * count + system]; });
    a[i][i] += T(N);  // any input becomes solvable
  });
  Method::template Solve<T, N>(a, x);
  Unroll<N>([&](auto i) { out[i * count + system] = x[i]; });
}

template <typename T, typename Method, int N>
void RunSolve(const Workspace& workspace) {
  constexpr int kCount = 1024;
  SolveKernel<T, Method, N><<<kCount / 64, 64>>>(static_cast<const T*>(workspace.in),
                                                 static_cast<const T*>(workspace.other),
                                                 static_cast<T*>(workspace.out), kCount);
}

template <typename T, typename Method, int... N>
void AddSolve(Registry& registry, IntList<N...> sizes) {
  ForEachInt(sizes, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    registry.Add("solve", TypeName<T>() + "_" + Method::kName + "_" + std::to_string(kSize),
                 RunSolve<T, Method, kSize>);
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_SOLVE_CUH_
