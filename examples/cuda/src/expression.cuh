// Element-wise formulas as expression templates: a formula is a type, and a kernel evaluates it for
// several elements a thread without any temporary array.
#ifndef EXAMPLES_CUDA_EXPRESSION_CUH_
#define EXAMPLES_CUDA_EXPRESSION_CUH_

#include "common.cuh"

namespace kernels::expression {

template <int Index>
struct Variable {
  template <typename T>
  __device__ T Evaluate(const T (&inputs)[2]) const {
    return inputs[Index];
  }
};

// A constant as a fraction: template parameters that are floating-point numbers are not in C++17.
template <int Numerator, int Denominator>
struct Constant {
  template <typename T>
  __device__ T Evaluate(const T (&)[2]) const {
    return T(Numerator) / T(Denominator);
  }
};

template <typename Op, typename A>
struct Unary {
  template <typename T>
  __device__ T Evaluate(const T (&inputs)[2]) const {
    return Op::Apply(A().Evaluate(inputs));
  }
};
template <typename Op, typename A, typename B>
struct Binary {
  template <typename T>
  __device__ T Evaluate(const T (&inputs)[2]) const {
    return Op::Apply(A().Evaluate(inputs), B().Evaluate(inputs));
  }
};

#define KERNELS_UNARY(Name, formula) \
  struct Name##Op {                  \
    template <typename T>            \
    __device__ static T Apply(T x) { \
      return formula;                \
    }                                \
  };                                 \
  template <typename A>              \
  using Name = Unary<Name##Op, A>
#define KERNELS_BINARY(Name, formula)     \
  struct Name##Op {                       \
    template <typename T>                 \
    __device__ static T Apply(T x, T y) { \
      return formula;                     \
    }                                     \
  };                                      \
  template <typename A, typename B>       \
  using Name = Binary<Name##Op, A, B>

KERNELS_UNARY(Exp, exp(x));
KERNELS_UNARY(Log1p, log1p(fabs(x)));
KERNELS_UNARY(Sine, sin(x));
KERNELS_UNARY(Cosine, cos(x));
KERNELS_UNARY(Tanh, tanh(x));
KERNELS_UNARY(Sqrt, sqrt(fabs(x)));
KERNELS_UNARY(Erf, erf(x));
KERNELS_UNARY(Gamma, lgamma(fabs(x) + T(1)));
KERNELS_UNARY(Cbrt, cbrt(x));
KERNELS_BINARY(Plus, x + y);
KERNELS_BINARY(Minus, x - y);
KERNELS_BINARY(Times, x* y);
KERNELS_BINARY(Over, x / (T(1) + y * y));
KERNELS_BINARY(Power, pow(fabs(x) + T(1), y));
KERNELS_BINARY(Hypot, hypot(x, y));
#undef KERNELS_UNARY
#undef KERNELS_BINARY

using X = Variable<0>;
using Y = Variable<1>;

// A polynomial with coefficients 1/1, 1/2, ..., 1/N in Horner's form.
template <typename A, int N, int I = 1>
struct HornerOf {
  using Type = Plus<Constant<1, I>, Times<A, typename HornerOf<A, N, I + 1>::Type>>;
};
template <typename A, int N>
struct HornerOf<A, N, N> {
  using Type = Constant<1, N>;
};
template <typename A, int N>
using Horner = typename HornerOf<A, N>::Type;

}  // namespace kernels::expression

namespace kernels {

template <typename T, typename Formula, int Items>
__global__ void FormulaKernel(const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ out,
                              int count) {
  const int base = blockIdx.x * blockDim.x * Items + threadIdx.x;
  Unroll<Items>([&](auto i) {
    const int at = base + i * blockDim.x;
    if (at < count) {
      const T inputs[2] = {x[at], y[at]};
      out[at] = Formula().Evaluate(inputs);
    }
  });
}

template <typename T, typename Formula, int Items>
void RunFormula(const Workspace& workspace) {
  constexpr int kCount = 1 << 16;
  constexpr int kThreads = 128;
  FormulaKernel<T, Formula, Items>
      <<<(kCount + kThreads * Items - 1) / (kThreads * Items), kThreads>>>(
          static_cast<const T*>(workspace.in), static_cast<const T*>(workspace.other),
          static_cast<T*>(workspace.out), kCount);
}

template <typename T, typename Formula, int... Items>
void AddFormula(Registry& registry, const std::string& name, IntList<Items...> items) {
  ForEachInt(items, [&](auto item_count) {
    constexpr int kItems = decltype(item_count)::value;
    registry.Add("formula", TypeName<T>() + "_" + name + "_" + std::to_string(kItems),
                 RunFormula<T, Formula, kItems>);
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_EXPRESSION_CUH_
