#include "server/sys/vmstat.h"

#include "server/sys/text.h"

namespace headroom::sys {

VmStat ParseVmStat(std::string_view text) {
  VmStat stat;
  while (const auto line = NextLine(text)) {
    std::string_view rest = *line;
    const std::string_view name = NextField(rest);
    if (name == "oom_kill") {
      stat.oom_kills = ParseTrimmed<int64_t>(rest);
    } else if (name == "pswpin") {
      stat.swapped_in_pages = ParseTrimmed<int64_t>(rest);
    } else if (name == "pswpout") {
      stat.swapped_out_pages = ParseTrimmed<int64_t>(rest);
    }
  }
  return stat;
}

absl::StatusOr<VmStat> ReadVmStat(const Roots& roots) {
  const absl::StatusOr<std::string> text = ReadFile(roots.proc + "/vmstat");
  if (!text.ok()) return text.status();
  return ParseVmStat(*text);
}

}  // namespace headroom::sys
