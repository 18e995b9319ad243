// Fourier transforms of fixed sizes, radix 2, completely unrolled, with constant twiddle factors.
#ifndef EXAMPLES_CXX_FFT_H_
#define EXAMPLES_CXX_FFT_H_

#include "common.h"

namespace parts {

// cos and sin of 2 pi i / n, for 0 <= i < n; std::cos isn't constexpr.
constexpr double CosineOfTurn(int i, int n) {
  const double x = 6.283185307179586 * i / n;
  double term = 1;
  double sum = 1;
  for (int k = 1; k < 24; ++k) {
    term *= -x * x / ((2 * k - 1) * (2 * k));
    sum += term;
  }
  return sum;
}
constexpr double SineOfTurn(int i, int n) {
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
  friend Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
  friend Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
  friend Complex operator*(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};

// The transform of in[Offset + Stride * i], i < N, into out; Sign is -1 (forward) or 1 (inverse).
template <int Sign, int N, int Stride, int Offset, typename T>
inline void Transform(const Complex<T>* in, Complex<T> (&out)[N]) {
  if constexpr (N == 1) {
    out[0] = in[Offset];
  } else {
    Complex<T> even[N / 2];
    Complex<T> odd[N / 2];
    Transform<Sign, N / 2, Stride * 2, Offset>(in, even);
    Transform<Sign, N / 2, Stride * 2, Offset + Stride>(in, odd);
    Unroll<N / 2>([&](auto i) {
      constexpr double kCosine = CosineOfTurn(decltype(i)::value, N);
      constexpr double kSine = Sign * SineOfTurn(decltype(i)::value, N);
      const Complex<T> turned = Complex<T>{T(kCosine), T(kSine)} * odd[i];
      out[i] = even[i] + turned;
      out[i + N / 2] = even[i] - turned;
    });
  }
}

// There and back again.
template <typename T, int N>
bool CheckFft() {
  Numbers numbers(N);
  Complex<T> signal[N];
  Complex<T> spectrum[N];
  Complex<T> back[N];
  for (Complex<T>& value : signal)
    value = {static_cast<T>(numbers.Next()), static_cast<T>(numbers.Next())};
  Transform<-1, N, 1, 0>(signal, spectrum);
  Transform<1, N, 1, 0>(spectrum, back);
  for (int i = 0; i < N; ++i) {
    if (std::abs(back[i].re / N - signal[i].re) > T(1e-4)) return false;
    if (std::abs(back[i].im / N - signal[i].im) > T(1e-4)) return false;
  }
  return true;
}

template <typename T, int... N>
void AddFft(Checks& checks, const std::string& type, Sizes<N...> sizes) {
  ForEachSize(sizes, [&](auto n) {
    checks.Add("fft/" + type + "_" + std::to_string(n()), CheckFft<T, decltype(n)::value>);
  });
}

}  // namespace parts

#endif  // EXAMPLES_CXX_FFT_H_
