// Lists of types, permuted and sorted at compile time by an insertion sort on an order of their
// keys, then used: a tuple of the sorted types whose members are filled and folded one by one.
#ifndef EXAMPLES_CXX_TYPES_H_
#define EXAMPLES_CXX_TYPES_H_

#include <tuple>

#include "common.h"

namespace parts {

template <int Key, int Salt>
struct Member {
  static constexpr int kKey = Key;
  double value = Key + Salt * 0.5;
};

template <typename... T>
struct List {};

template <typename Head, typename Tail>
struct Prepend;
template <typename Head, typename... T>
struct Prepend<Head, List<T...>> {
  using Type = List<Head, T...>;
};

template <typename New, typename Sorted>
struct Insert;
template <typename New>
struct Insert<New, List<>> {
  using Type = List<New>;
};
template <typename New, typename Head, typename... T>
struct Insert<New, List<Head, T...>> {
  static constexpr auto Choose() {
    if constexpr (New::kKey <= Head::kKey) {
      return std::type_identity<List<New, Head, T...>>{};
    } else {
      return std::type_identity<
          typename Prepend<Head, typename Insert<New, List<T...>>::Type>::Type>{};
    }
  }
  using Type = typename decltype(Choose())::type;
};

template <typename Unsorted>
struct Sort;
template <>
struct Sort<List<>> {
  using Type = List<>;
};
template <typename Head, typename... T>
struct Sort<List<Head, T...>> {
  using Type = typename Insert<Head, typename Sort<List<T...>>::Type>::Type;
};

// Keys in a scrambled order: multiples of an odd number modulo a power of two.
template <int Salt, typename Sequence>
struct Scrambled;
template <int Salt, int... I>
struct Scrambled<Salt, std::integer_sequence<int, I...>> {
  using Type = List<Member<(I * 37 + Salt) % 1024, Salt>...>;
};

template <typename... T>
bool IsSorted(List<T...>) {
  const int keys[] = {T::kKey...};
  for (std::size_t i = 1; i < sizeof...(T); ++i) {
    if (keys[i] < keys[i - 1]) return false;
  }
  return true;
}

template <typename... T>
double SumOf(List<T...>) {
  const std::tuple<T...> members;
  return std::apply([](const auto&... member) { return (member.value + ...); }, members);
}

template <int Salt, int N>
bool CheckTypes() {
  using Unsorted = typename Scrambled<Salt, std::make_integer_sequence<int, N>>::Type;
  using Sorted = typename Sort<Unsorted>::Type;
  return IsSorted(Sorted()) && std::abs(SumOf(Sorted()) - SumOf(Unsorted())) < 1e-6;
}

template <int Salt, int... N>
void AddTypes(Checks& checks, Sizes<N...> sizes) {
  ForEachSize(sizes, [&](auto n) {
    checks.Add("types/" + std::to_string(n()) + "_" + std::to_string(Salt),
               CheckTypes<Salt, decltype(n)::value>);
  });
}

}  // namespace parts

#endif  // EXAMPLES_CXX_TYPES_H_
