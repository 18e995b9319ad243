// Fourier transforms of short signals, one signal a thread, all in registers: radix 2, decimation
// in time, completely unrolled, with twiddle factors computed at compile time.
#ifndef EXAMPLES_CUDA_FFT_CUH_
#define EXAMPLES_CUDA_FFT_CUH_

#include "common.cuh"

namespace kernels {

// sin and cos of 2 pi i / n, for 0 <= i < n, as power series: std::sin is not constexpr.
__host__ __device__ constexpr double CosineOfTurn(int i, int n) {
  const double x = 6.283185307179586 * i / n;
  double term = 1;
  double sum = 1;
  for (int k = 1; k < 24; ++k) {
    term *= -x * x / ((2 * k - 1) * (2 * k));
    sum += term;
  }
  return sum;
}
__host__ __device__ constexpr double SineOfTurn(int i, int n) {
  const double x = 6.283185307179586 * i / n;
  double term = x;
  double sum = x;
  for (int k = 1; k < 24; ++k) {
    term *= -x * x / ((2 * k) * (2 * k + 1));
    sum += term;
  }
  return sum;
}

template <typename T>
struct Complex {
  T re;
  T im;
  __device__ friend Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
  __device__ friend Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
  __device__ friend Complex operator*(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};

struct Forward {
  static constexpr const char* kName = "forward";
  static constexpr int kSign = -1;
};
struct Inverse {
  static constexpr const char* kName = "inverse";
  static constexpr int kSign = 1;
};

// The transform of in[Offset + Stride * i], i < N, into out[0, N).
template <typename T, typename Direction, int N, int Stride, int Offset, typename In>
__device__ __forceinline__ void Transform(const In& in, Complex<T> (&out)[N]) {
  if constexpr (N == 1) {
    out[0] = in[Offset];
  } else {
    Complex<T> even[N / 2];
    Complex<T> odd[N / 2];
    Transform<T, Direction, N / 2, Stride * 2, Offset>(in, even);
    Transform<T, Direction, N / 2, Stride * 2, Offset + Stride>(in, odd);
    Unroll<N / 2>([&](auto i) {
      constexpr double kCosine = CosineOfTurn(decltype(i)::value, N);
      constexpr double kSine = Direction::kSign * SineOfTurn(decltype(i)::value, N);
      const Complex<T> turned = Complex<T>{T(kCosine), T(kSine)} * odd[i];
      out[i] = even[i] + turned;
      out[i + N / 2] = even[i] - turned;
    });
  }
}

template <typename T, typename Direction, int N>
__global__ void FftKernel(const Complex<T>* __restrict__ in, Complex<T>* __restrict__ out,
                          int count) {
  const int signal = blockIdx.x * blockDim.x + threadIdx.x;
  if (signal >= count) return;
  // Interleaved storage: neighbouring threads read neighbouring addresses.
  Complex<T> values[N];
  Complex<T> result[N];
  Unroll<N>([&](auto i) { values[i] = in[i * count + signal]; });
  Transform<T, Direction, N, 1, 0>(values, result);
  Unroll<N>([&](auto i) { out[i * count + signal] = result[i]; });
}

template <typename T, typename Direction, int N>
void RunFft(const Workspace& workspace) {
  constexpr int kCount = 1024;
  FftKernel<T, Direction, N><<<kCount / 64, 64>>>(static_cast<const Complex<T>*>(workspace.in),
                                                  static_cast<Complex<T>*>(workspace.out), kCount);
}

template <typename T, int... N>
void AddFft(Registry& registry, IntList<N...> sizes) {
  ForEachInt(sizes, [&](auto size) {
    constexpr int kSize = decltype(size)::value;
    const std::string name = TypeName<T>() + "_" + std::to_string(kSize) + "_";
    registry.Add("fft", name + Forward::kName, RunFft<T, Forward, kSize>);
    registry.Add("fft", name + Inverse::kName, RunFft<T, Inverse, kSize>);
  });
}

}  // namespace kernels

#endif  // EXAMPLES_CUDA_FFT_CUH_
