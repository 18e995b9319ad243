#include "client/cli/units.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <array>
#include <cmath>
#include <ctime>

namespace headroom::cli {

std::string HumanBytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  const std::string sign = bytes < 0 ? "-" : "";
  double size = std::abs(static_cast<double>(bytes));
  if (size < 1024) return absl::StrCat(sign, static_cast<int64_t>(size), " B");
  size_t unit = 0;
  size /= 1024;
  // 1023.96 KiB would read "1024 KiB".
  while (size >= 1023.5 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  // 99.96 would read "100.0".
  return absl::StrFormat(size < 99.95 ? "%s%.1f %s" : "%s%.0f %s", sign, size, kUnits[unit]);
}

std::string HumanDuration(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds < 59.95) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return absl::StrFormat("%d min %d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %d min", whole / 3600, whole % 3600 / 60);
}

std::string OneDecimal(double value) {
  return absl::StrFormat("%.1f", value);
}

std::string TimeOfDay(uint64_t realtime_ns) {
  const auto seconds = static_cast<time_t>(realtime_ns / 1'000'000'000);
  tm local{};
  if (localtime_r(&seconds, &local) == nullptr) return "??:??:??";
  return absl::StrFormat("%02d:%02d:%02d.%d", local.tm_hour, local.tm_min, local.tm_sec,
                         realtime_ns % 1'000'000'000 / 100'000'000);
}

std::string Count(uint64_t count, const std::string& one, const std::string& many) {
  return absl::StrCat(count, " ", count == 1 ? one : many);
}

std::string Printable(const std::string& text) {
  std::string out;
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = static_cast<unsigned char>(text[i]);
    size_t length = 0;
    if (byte >= 0x20 && byte < 0x7f) {
      length = 1;
    } else if (byte >= 0xc2 && byte < 0xe0) {
      length = 2;
    } else if (byte >= 0xe0 && byte < 0xf0) {
      length = 3;
    } else if (byte >= 0xf0 && byte < 0xf5) {
      length = 4;
    }
    bool good = length != 0 && i + length <= text.size();
    for (size_t k = 1; good && k < length; ++k)
      good = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
    // U+0080 to U+009F are control characters too (C1), e.g. CSI.
    if (good && byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) good = false;
    if (good) {
      out.append(text, i, length);
      i += length;
    } else {
      out += '?';
      ++i;
    }
  }
  return out;
}

}  // namespace headroom::cli
