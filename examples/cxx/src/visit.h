// Physical quantities as a variant of units; a binary operation is a visit over every pair of
// alternatives, and a ternary one over every triple. The units differ by the exponents of length,
// mass and time in their type.
#ifndef EXAMPLES_CXX_VISIT_H_
#define EXAMPLES_CXX_VISIT_H_

#include <variant>

#include "common.h"

namespace parts {

template <typename T, int Length, int Mass, int Time>
struct Quantity {
  T value;
  static std::string Unit() {
    return "m^" + std::to_string(Length) + " kg^" + std::to_string(Mass) + " s^" +
           std::to_string(Time);
  }
};

template <typename T, int L1, int M1, int T1, int L2, int M2, int T2>
auto operator*(Quantity<T, L1, M1, T1> a, Quantity<T, L2, M2, T2> b) {
  return Quantity<T, L1 + L2, M1 + M2, T1 + T2>{a.value * b.value};
}

template <typename T, typename Sequence>
struct AnyQuantityOf;
template <typename T, int... I>
struct AnyQuantityOf<T, std::integer_sequence<int, I...>> {
  using Type = std::variant<Quantity<T, I % 3 - 1, I / 3 % 3 - 1, I / 9 - 1>...>;
};
// `Count` different units.
template <typename T, int Count>
using AnyQuantity = typename AnyQuantityOf<T, std::make_integer_sequence<int, Count>>::Type;

template <typename T, int Count, int I = 0>
AnyQuantity<T, Count> MakeQuantity(int index, T value) {
  if constexpr (I < Count) {
    if (index != I) return MakeQuantity<T, Count, I + 1>(index, value);
    return std::variant_alternative_t<I, AnyQuantity<T, Count>>{value};
  } else {
    return {};
  }
}

template <typename T, int Count>
bool CheckPairs() {
  bool good = true;
  for (int i = 0; i < Count; ++i) {
    for (int j = 0; j < Count; ++j) {
      const auto a = MakeQuantity<T, Count>(i, T(2));
      const auto b = MakeQuantity<T, Count>(j, T(3));
      const std::string unit =
          std::visit([](auto x, auto y) { return decltype(x * y)::Unit(); }, a, b);
      const T value = std::visit([](auto x, auto y) { return (x * y).value; }, a, b);
      good = good && value == T(6) && unit.find("m^") == 0;
    }
  }
  return good;
}

template <typename T, int Count>
bool CheckTriples() {
  bool good = true;
  for (int i = 0; i < Count; ++i) {
    const auto a = MakeQuantity<T, Count>(i, T(2));
    const auto b = MakeQuantity<T, Count>((i * 5 + 1) % Count, T(3));
    const auto c = MakeQuantity<T, Count>((i * 7 + 2) % Count, T(4));
    const std::string unit =
        std::visit([](auto x, auto y, auto z) { return decltype(x * y * z)::Unit(); }, a, b, c);
    const T value = std::visit([](auto x, auto y, auto z) { return (x * y * z).value; }, a, b, c);
    good = good && value == T(24) && unit.find("m^") == 0;
  }
  return good;
}

template <typename T, int... Pairs>
void AddPairs(Checks& checks, const std::string& type, Sizes<Pairs...> counts) {
  ForEachSize(counts, [&](auto n) {
    checks.Add("visit/" + type + "_pairs_" + std::to_string(n()),
               CheckPairs<T, decltype(n)::value>);
  });
}
template <typename T, int... Triples>
void AddTriples(Checks& checks, const std::string& type, Sizes<Triples...> counts) {
  ForEachSize(counts, [&](auto n) {
    checks.Add("visit/" + type + "_triples_" + std::to_string(n()),
               CheckTriples<T, decltype(n)::value>);
  });
}

}  // namespace parts

#endif  // EXAMPLES_CXX_VISIT_H_
