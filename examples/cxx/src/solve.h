// Small linear systems with all loops written out: Cholesky and LU without pivoting.
#ifndef EXAMPLES_CXX_SOLVE_H_
#define EXAMPLES_CXX_SOLVE_H_

#include "common.h"

namespace parts {

struct Cholesky {
  static constexpr const char* kName = "cholesky";
  template <typename T, int N>
  static void Solve(T (&a)[N][N], T (&x)[N]) {
    Unroll<N>([&](auto j) {
      constexpr int kJ = decltype(j)::value;
      UnrollRange<0, kJ>([&](auto k) { a[j][j] -= a[j][k] * a[j][k]; });
      a[j][j] = std::sqrt(a[j][j]);
      UnrollRange<kJ + 1, N>([&](auto i) {
        UnrollRange<0, kJ>([&](auto k) { a[i][j] -= a[i][k] * a[j][k]; });
        a[i][j] /= a[j][j];
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
  static void Solve(T (&a)[N][N], T (&x)[N]) {
    Unroll<N>([&](auto k) {
      constexpr int kK = decltype(k)::value;
      UnrollRange<kK + 1, N>([&](auto i) {
        a[i][k] /= a[k][k];
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

// Solves a symmetric, diagonally dominant system whose solution is known.
template <typename T, typename Method, int N>
bool CheckSolve() {
  Numbers numbers(N);
  T a[N][N];
  T solution[N];
  T x[N];
  for (int i = 0; i < N; ++i) {
    solution[i] = static_cast<T>(numbers.Next());
    for (int j = 0; j <= i; ++j)
      a[i][j] = a[j][i] = static_cast<T>(numbers.Next() + (i == j ? N : 0));
  }
  for (int i = 0; i < N; ++i) {
    x[i] = T(0);
    for (int j = 0; j < N; ++j) x[i] += a[i][j] * solution[j];
  }
  Method::template Solve<T, N>(a, x);
  for (int i = 0; i < N; ++i) {
    if (std::abs(x[i] - solution[i]) > T(1e-4)) return false;
  }
  return true;
}

template <typename T, typename Method, int... N>
void AddSolve(Checks& checks, const std::string& type, Sizes<N...> sizes) {
  ForEachSize(sizes, [&](auto n) {
    checks.Add(std::string("solve/") + type + "_" + Method::kName + "_" + std::to_string(n()),
               CheckSolve<T, Method, decltype(n)::value>);
  });
}

}  // namespace parts

#endif  // EXAMPLES_CXX_SOLVE_H_
