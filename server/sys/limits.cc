#include "server/sys/limits.h"

#include <algorithm>
#include <string>

#include "server/sys/cgroup.h"
#include "server/sys/file.h"
#include "server/sys/text.h"

namespace headroom::sys {

ResourceLimits ParseLimits(std::string_view text) {
  ResourceLimits limits;
  const std::pair<std::string_view, std::optional<int64_t>*> fields[] = {
      {"Max address space ", &limits.address_space_bytes},
      {"Max processes ", &limits.processes},
      {"Max open files ", &limits.open_files},
  };
  while (const auto line = NextLine(text)) {
    for (const auto& [name, value] : fields) {
      if (line->substr(0, name.size()) != name) continue;
      std::string_view rest = line->substr(name.size());
      const auto soft = ParseNumber<int64_t>(NextField(rest));  // "unlimited" is no number
      if (soft && *soft >= 0) *value = *soft;
    }
  }
  return limits;
}

ResourceLimits ReadLimits(const Roots& roots, pid_t pid) {
  const std::string who = pid == 0 ? "self" : std::to_string(pid);
  const absl::StatusOr<std::string> text = ReadFile(roots.proc + "/" + who + "/limits");
  return text.ok() ? ParseLimits(*text) : ResourceLimits();
}

std::optional<int64_t> ReadPidsLeft(const Roots& roots, pid_t pid) {
  const absl::StatusOr<CgroupLocation> location = FindCgroup(roots, pid, "pids");
  if (!location.ok()) return std::nullopt;
  std::optional<int64_t> least;
  for (const std::string& folder : AncestorPaths(roots, *location)) {
    const auto max = ReadFile(folder + "/pids.max");
    const auto current = ReadFile(folder + "/pids.current");
    if (!max.ok() || !current.ok()) continue;
    const auto limit = ParseTrimmed<int64_t>(*max);  // "max" is no number
    const auto used = ParseTrimmed<int64_t>(*current);
    if (!limit || !used || *limit < 0 || *used < 0) continue;
    const int64_t left = std::max<int64_t>(0, *limit - *used);
    least = least ? std::min(*least, left) : left;
  }
  return least;
}

}  // namespace headroom::sys
