#include "server/sys/arcstats.h"

#include <string>

#include "server/sys/file.h"
#include "server/sys/text.h"

namespace headroom::sys {

// Lines of "name type data"; type 4 is an unsigned 64-bit number (kstat's KSTAT_DATA_UINT64).
std::optional<ArcStats> ParseArcStats(std::string_view text) {
  std::optional<int64_t> size, floor;
  while (const auto line = NextLine(text)) {
    std::string_view rest = *line;
    const std::string_view name = NextField(rest);
    if (name != "size" && name != "c_min") continue;
    NextField(rest);  // type
    const std::optional<int64_t> value = ParseTrimmed<int64_t>(rest);
    if (!value || *value < 0) continue;
    (name == "size" ? size : floor) = value;
  }
  // Without a floor nothing may be credited, so a text without one is of no use.
  if (!size || !floor) return std::nullopt;
  return ArcStats{*size, *floor};
}

std::optional<ArcStats> ReadArcStats(const Roots& roots) {
  const absl::StatusOr<std::string> text = ReadFile(roots.proc + "/spl/kstat/zfs/arcstats");
  if (!text.ok()) return std::nullopt;
  return ParseArcStats(*text);
}

}  // namespace headroom::sys
