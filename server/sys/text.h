// Pieces of the kernel's text formats. Pure, no allocation, safe on any bytes.
#ifndef HEADROOM_SERVER_SYS_TEXT_H_
#define HEADROOM_SERVER_SYS_TEXT_H_

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace headroom::sys {

// The next line of `rest`, without its '\n'; `rest` moves behind it. nullopt: nothing left.
inline std::optional<std::string_view> NextLine(std::string_view& rest) {
  if (rest.empty()) return std::nullopt;
  const size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return line;
}

// The next field of `rest`, fields being separated by blanks; empty: nothing left.
inline std::string_view NextField(std::string_view& rest) {
  const size_t begin = rest.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) {
    rest = {};
    return {};
  }
  rest.remove_prefix(begin);
  const std::string_view field = rest.substr(0, rest.find_first_of(" \t\n"));
  rest.remove_prefix(field.size());
  return field;
}

// All of `text` as a number; nullopt for anything else, a value out of T's range included.
template <typename T>
std::optional<T> ParseNumber(std::string_view text, int base = 10) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

inline std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// The number that is all of `text` but blanks around it.
template <typename T>
std::optional<T> ParseTrimmed(std::string_view text) {
  return ParseNumber<T>(Trim(text));
}

// a * b, or nullopt where that is negative or more than int64_t holds.
inline std::optional<int64_t> CheckedMultiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// a + b for non-negative sizes, held at int64_t's maximum.
inline int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_TEXT_H_
