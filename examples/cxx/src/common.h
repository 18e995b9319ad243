// What all parts of this program share: compile-time loops and the list of its checks. Every .cc
// file adds checks that run what it has instantiated; main.cc runs them all.
#ifndef EXAMPLES_CXX_COMMON_H_
#define EXAMPLES_CXX_COMMON_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace parts {

struct Check {
  std::string name;
  bool (*run)();
};

class Checks {
 public:
  void Add(const std::string& name, bool (*run)()) { checks_.push_back({name, run}); }
  const std::vector<Check>& all() const { return checks_; }

 private:
  std::vector<Check> checks_;
};

template <int N>
using Int = std::integral_constant<int, N>;

template <typename F, int... I>
inline void UnrollSequence(F&& f, std::integer_sequence<int, I...>) {
  (f(Int<I>{}), ...);
}

// Calls f(Int<0>{}), ..., f(Int<N - 1>{}).
template <int N, typename F>
inline void Unroll(F&& f) {
  UnrollSequence(std::forward<F>(f), std::make_integer_sequence<int, N>{});
}

template <int Begin, int End, typename F>
inline void UnrollRange(F&& f) {
  if constexpr (End > Begin) {
    Unroll<End - Begin>([&](auto i) { f(Int<Begin + decltype(i)::value>{}); });
  }
}

template <int... N>
struct Sizes {};

template <typename F, int... N>
void ForEachSize(Sizes<N...>, F f) {
  (f(Int<N>{}), ...);
}

// Reproducible numbers in [0, 1).
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  double Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }

 private:
  std::uint64_t state_;
};

}  // namespace parts

#endif  // EXAMPLES_CXX_COMMON_H_
