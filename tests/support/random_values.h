// Fills values of the policy at random, member by member, for round trips: a member that a codec
// forgets comes back different. Members are found by the language (Boost.PFR), not by a list that
// could forget one too.
#ifndef HEADROOM_TESTS_SUPPORT_RANDOM_VALUES_H_
#define HEADROOM_TESTS_SUPPORT_RANDOM_VALUES_H_

#include <array>
#include <boost/pfr.hpp>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "server/policy/event.h"
#include "server/policy/state.h"
#include "server/policy/types.h"

namespace headroom::testing {

using Rng = std::mt19937_64;

// Small, large and extreme numbers alike; distributions of <random> differ between libraries.
template <typename T>
T RandomInteger(Rng& rng) {
  const uint64_t bits = rng();
  switch (bits % 8) {
    case 0:
      return 0;
    case 1:
      return std::numeric_limits<T>::max();
    case 2:
      return std::numeric_limits<T>::min();
    default:
      return static_cast<T>(rng() >> (rng() % 64));
  }
}

template <typename Enum>
constexpr uint64_t EnumSize() {
  if constexpr (std::is_same_v<Enum, policy::LaneKind>) {
    return static_cast<uint64_t>(policy::LaneKind::kShared) + 1;
  } else if constexpr (std::is_same_v<Enum, policy::GateEnd>) {
    return static_cast<uint64_t>(policy::GateEnd::kEvicted) + 1;
  } else if constexpr (std::is_same_v<Enum, policy::GatePhase>) {
    return static_cast<uint64_t>(policy::GatePhase::kEnded) + 1;
  } else {
    // Reasons, inputs and ids: all numbers are kept.
    return 0;
  }
}

template <typename T>
void Randomise(Rng& rng, T& value);
template <typename T>
void Randomise(Rng& rng, std::optional<T>& value);
template <typename T, size_t n>
void Randomise(Rng& rng, std::array<T, n>& value);
template <typename T>
void Randomise(Rng& rng, std::vector<T>& value);
template <typename K, typename V>
void Randomise(Rng& rng, std::map<K, V>& value);
template <typename... T>
void Randomise(Rng& rng, std::variant<T...>& value);
inline void Randomise(Rng& rng, std::string& value);
inline void Randomise(Rng& rng, policy::Duration& value);
inline void Randomise(Rng& rng, policy::Time& value);

template <typename T>
void Randomise(Rng& rng, std::optional<T>& value) {
  value.reset();
  if (rng() % 2 == 0) Randomise(rng, value.emplace());
}
template <typename T, size_t n>
void Randomise(Rng& rng, std::array<T, n>& value) {
  for (T& element : value) Randomise(rng, element);
}
template <typename T>
void Randomise(Rng& rng, std::vector<T>& value) {
  value.clear();
  value.resize(rng() % 6);
  for (T& element : value) Randomise(rng, element);
}
template <typename K, typename V>
void Randomise(Rng& rng, std::map<K, V>& value) {
  value.clear();
  for (uint64_t i = rng() % 6; i > 0; --i) {
    K key{};
    Randomise(rng, key);
    Randomise(rng, value[key]);
  }
}
// Derived values are no part of what is compared or stored.
template <typename T>
void Randomise(Rng&, policy::Derived<T>&) {}
inline void Randomise(Rng& rng, std::string& value) {
  value.clear();
  for (uint64_t i = rng() % 20; i > 0; --i) value.push_back(static_cast<char>(rng()));
}
inline void Randomise(Rng& rng, policy::Duration& value) {
  value = policy::Duration(RandomInteger<int64_t>(rng));
}
inline void Randomise(Rng& rng, policy::Time& value) {
  value = policy::Time(policy::Duration(RandomInteger<int64_t>(rng)));
}
template <typename... T>
void Randomise(Rng& rng, std::variant<T...>& value) {
  const size_t chosen = rng() % sizeof...(T);
  size_t index = 0;
  const auto take = [&]<typename One>(One) {
    if (index++ != chosen) return;
    One one{};
    Randomise(rng, one);
    value = std::move(one);
  };
  (take(T{}), ...);
}

template <typename T>
void Randomise(Rng& rng, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = rng() % 2 == 0;
  } else if constexpr (std::is_same_v<T, double>) {
    // Finite: not-a-number never compares equal.
    value = static_cast<double>(RandomInteger<int64_t>(rng)) / 1024;
  } else if constexpr (std::is_enum_v<T>) {
    using Number = std::underlying_type_t<T>;
    const auto number = RandomInteger<Number>(rng);
    value =
        static_cast<T>(EnumSize<T>() == 0 ? number : static_cast<Number>(number % EnumSize<T>()));
  } else if constexpr (std::is_integral_v<T>) {
    value = RandomInteger<T>(rng);
  } else {
    boost::pfr::for_each_field(value, [&](auto& member) { Randomise(rng, member); });
  }
}

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_SUPPORT_RANDOM_VALUES_H_
