#include "server/policy/size.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <system_error>

namespace headroom::policy {
namespace {

constexpr int64_t kMaxBytes = (int64_t{1} << 60) - 1;

struct SizeUnit {
  char letter;
  int shift;
};
constexpr std::array<SizeUnit, 3> kUnits = {{{'K', 10}, {'M', 20}, {'G', 30}}};

// A number of digits only: from_chars alone would take a minus sign.
std::optional<int64_t> ParseDigits(std::string_view text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Size> ParsePercent(std::string_view text) {
  const size_t dot = text.find('.');
  const auto whole = ParseDigits(text.substr(0, dot));
  if (!whole || *whole > 100) return std::nullopt;
  int64_t hundredths = 0;
  if (dot != std::string_view::npos) {
    const std::string_view decimals = text.substr(dot + 1);
    if (decimals.size() > 2) return std::nullopt;
    const auto part = ParseDigits(decimals);
    if (!part) return std::nullopt;
    hundredths = decimals.size() == 1 ? *part * 10 : *part;
  }
  const int64_t permyriad = *whole * 100 + hundredths;
  if (permyriad > 10'000) return std::nullopt;
  return Permyriad{static_cast<int32_t>(permyriad)};
}

}  // namespace

std::optional<Size> ParseSize(std::string_view text) {
  if (text.empty()) return std::nullopt;
  if (text.back() == '%') return ParsePercent(text.substr(0, text.size() - 1));
  int shift = 0;
  for (const SizeUnit& unit : kUnits) {
    if (text.back() != unit.letter) continue;
    shift = unit.shift;
    text.remove_suffix(1);
    break;
  }
  const auto number = ParseDigits(text);
  if (!number || *number > (kMaxBytes >> shift)) return std::nullopt;
  return Bytes{*number << shift};
}

std::string FormatSize(const Size& size) {
  if (const auto* share = std::get_if<Permyriad>(&size)) {
    std::string text = std::to_string(share->count / 100);
    if (const int hundredths = share->count % 100; hundredths != 0) {
      text += '.';
      text += static_cast<char>('0' + hundredths / 10);
      if (hundredths % 10 != 0) text += static_cast<char>('0' + hundredths % 10);
    }
    return text + '%';
  }
  const int64_t bytes = std::get<Bytes>(size).count;
  for (auto unit = kUnits.rbegin(); unit != kUnits.rend(); ++unit) {
    if (bytes != 0 && bytes % (int64_t{1} << unit->shift) == 0)
      return std::to_string(bytes >> unit->shift) + unit->letter;
  }
  return std::to_string(bytes);
}

}  // namespace headroom::policy
