#include "server/sys/psi.h"

#include <string>

#include "server/sys/file.h"
#include "server/sys/text.h"

namespace headroom::sys {
namespace {

// "12.34" per cent is 1234 permyriad. The kernel always writes two decimals.
std::optional<int> ParsePercent(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos || text.size() != dot + 3) return std::nullopt;
  const std::optional<unsigned> whole = ParseNumber<unsigned>(text.substr(0, dot));
  const std::optional<unsigned> part = ParseNumber<unsigned>(text.substr(dot + 1));
  if (!whole || !part || *whole > 100) return std::nullopt;
  return static_cast<int>(*whole * 100 + *part);
}

std::optional<PsiLine> ParseLine(std::string_view rest) {
  std::optional<int> avg10, avg60, avg300;
  std::optional<int64_t> total;
  while (true) {
    const std::string_view field = NextField(rest);
    if (field.empty()) break;
    const size_t equals = field.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = field.substr(0, equals);
    const std::string_view value = field.substr(equals + 1);
    if (name == "avg10") avg10 = ParsePercent(value);
    if (name == "avg60") avg60 = ParsePercent(value);
    if (name == "avg300") avg300 = ParsePercent(value);
    if (name == "total") total = ParseNumber<int64_t>(value);
  }
  if (!avg10 || !avg60 || !avg300 || !total || *total < 0) return std::nullopt;
  return PsiLine{*avg10, *avg60, *avg300, *total};
}

}  // namespace

std::optional<Psi> ParsePsi(std::string_view text) {
  std::optional<PsiLine> some, full;
  while (const auto line = NextLine(text)) {
    std::string_view rest = *line;
    const std::string_view kind = NextField(rest);
    if (kind == "some") some = ParseLine(rest);
    if (kind == "full") full = ParseLine(rest);
  }
  if (!some) return std::nullopt;
  return Psi{*some, full};
}

std::optional<Psi> ReadMemoryPsi(const Roots& roots) {
  const absl::StatusOr<std::string> text = ReadFile(roots.proc + "/pressure/memory");
  if (!text.ok()) return std::nullopt;
  return ParsePsi(*text);
}

}  // namespace headroom::sys
