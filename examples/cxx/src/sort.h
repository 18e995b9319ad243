// Batcher's odd-even merge sort for fixed sizes, written out by templates.
#ifndef EXAMPLES_CXX_SORT_H_
#define EXAMPLES_CXX_SORT_H_

#include <algorithm>

#include "common.h"

namespace parts {

template <int I, int J, typename T, int N, typename Less>
inline void CompareSwap(T (&items)[N], Less less) {
  if (less(items[J], items[I])) std::swap(items[I], items[J]);
}

template <int Low, int Count, int Step, typename T, int N, typename Less>
inline void MergeNetwork(T (&items)[N], Less less) {
  constexpr int kNext = Step * 2;
  if constexpr (kNext < Count) {
    MergeNetwork<Low, Count, kNext>(items, less);
    MergeNetwork<Low + Step, Count, kNext>(items, less);
    Unroll<(Count - Step) / kNext>([&](auto i) {
      constexpr int kFirst = Low + Step + decltype(i)::value * kNext;
      if constexpr (kFirst + Step < Low + Count) CompareSwap<kFirst, kFirst + Step>(items, less);
    });
  } else {
    CompareSwap<Low, Low + Step>(items, less);
  }
}

template <int Low, int Count, typename T, int N, typename Less>
inline void SortNetwork(T (&items)[N], Less less) {
  if constexpr (Count > 1) {
    SortNetwork<Low, Count / 2>(items, less);
    SortNetwork<Low + Count / 2, Count / 2>(items, less);
    MergeNetwork<Low, Count, 1>(items, less);
  }
}

template <typename T, typename Less, int N>
bool CheckSort() {
  static_assert((N & (N - 1)) == 0, "the network is built for powers of two");
  Numbers numbers(N);
  for (int round = 0; round < 20; ++round) {
    T items[N];
    for (T& item : items) item = T(static_cast<int>(numbers.Next() * 1000));
    SortNetwork<0, N>(items, Less());
    if (!std::is_sorted(std::begin(items), std::end(items), Less())) return false;
  }
  return true;
}

template <typename T, typename Less, int... N>
void AddSort(Checks& checks, const std::string& name, Sizes<N...> sizes) {
  ForEachSize(sizes, [&](auto n) {
    checks.Add("sort/" + name + "_" + std::to_string(n()), CheckSort<T, Less, decltype(n)::value>);
  });
}

}  // namespace parts

#endif  // EXAMPLES_CXX_SORT_H_
