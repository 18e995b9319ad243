#include "server/sys/cores.h"

#include <algorithm>

#include "server/sys/cgroup.h"
#include "server/sys/file.h"
#include "server/sys/text.h"

namespace headroom::sys {
namespace {

template <typename T>
void Least(std::optional<T>& least, const std::optional<T>& value) {
  if (value && (!least || *value < *least)) least = value;
}

std::optional<std::string> ReadText(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  return *std::move(text);
}

std::optional<int64_t> ReadQuota(CgroupVersion version, const std::string& folder) {
  std::optional<CpuQuota> quota;
  switch (version) {
    case CgroupVersion::kV1: {
      const auto us = ReadText(folder + "/cpu.cfs_quota_us");
      const auto period = ReadText(folder + "/cpu.cfs_period_us");
      if (us && period) quota = ParseCfsQuota(*us, *period);
      break;
    }
    case CgroupVersion::kV2:
      if (const auto max = ReadText(folder + "/cpu.max")) quota = ParseCpuMax(*max);
      break;
  }
  return quota ? quota->millicores : std::nullopt;
}

std::optional<int> ReadCpuset(const std::string& folder) {
  for (const char* name : {"/cpuset.cpus.effective", "/cpuset.effective_cpus", "/cpuset.cpus"}) {
    const auto list = ReadText(folder + name);
    if (!list) continue;
    const std::optional<int> cpus = ParseCpuList(*list);
    // Empty: v1's cpuset.cpus of a new cgroup, or v2's "as the parent".
    if (cpus && *cpus > 0) return cpus;
  }
  return std::nullopt;
}

}  // namespace

int Cores::Count() const {
  std::optional<int64_t> least;
  if (affinity) Least<int64_t>(least, *affinity);
  if (cpuset) Least<int64_t>(least, *cpuset);
  if (quota_millicores)
    Least<int64_t>(least, *quota_millicores / 1000 + (*quota_millicores % 1000 != 0));
  return static_cast<int>(std::clamp<int64_t>(least.value_or(1), 1, 1 << 20));
}

std::optional<int> ParseCpuList(std::string_view text) {
  // More CPUs than any kernel is built for: a text that says so is garbled.
  constexpr int kMostCpus = 1 << 16;
  std::string_view list = Trim(text);
  int count = 0;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view range = list.substr(0, comma);
    const size_t dash = range.find('-');
    const std::optional<int> first = ParseNumber<int>(range.substr(0, dash));
    const std::optional<int> last =
        dash == std::string_view::npos ? first : ParseNumber<int>(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostCpus) return std::nullopt;
    count += *last - *first + 1;
    if (count > kMostCpus) return std::nullopt;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return count;
}

std::optional<CpuQuota> ParseCpuMax(std::string_view text) {
  const std::string_view quota = NextField(text);
  const std::string_view period = NextField(text);
  if (quota == "max") return CpuQuota{std::nullopt};
  return ParseCfsQuota(quota, period.empty() ? "100000" : period);
}

std::optional<CpuQuota> ParseCfsQuota(std::string_view quota, std::string_view period) {
  const std::optional<int64_t> quota_us = ParseTrimmed<int64_t>(quota);
  const std::optional<int64_t> period_us = ParseTrimmed<int64_t>(period);
  if (!quota_us || !period_us || *period_us <= 0) return std::nullopt;
  if (*quota_us < 0) return CpuQuota{std::nullopt};
  const std::optional<int64_t> scaled = CheckedMultiply(*quota_us, 1000);
  if (!scaled) return std::nullopt;
  return CpuQuota{*scaled / *period_us};
}

std::optional<int> ParseAllowedCpus(std::string_view status) {
  constexpr std::string_view kName = "Cpus_allowed_list:";
  while (const auto line = NextLine(status)) {
    if (line->substr(0, kName.size()) == kName) return ParseCpuList(line->substr(kName.size()));
  }
  return std::nullopt;
}

Cores ReadCores(const Roots& roots, pid_t pid) {
  Cores cores;
  const std::string who = pid == 0 ? "self" : std::to_string(pid);
  if (const auto status = ReadText(roots.proc + "/" + who + "/status")) {
    cores.affinity = ParseAllowedCpus(*status);
    if (cores.affinity == 0) cores.affinity.reset();
  }
  if (const auto location = FindCgroup(roots, pid, "cpu"); location.ok()) {
    for (const std::string& folder : AncestorPaths(roots, *location)) {
      Least(cores.quota_millicores, ReadQuota(location->version, folder));
    }
  }
  if (const auto location = FindCgroup(roots, pid, "cpuset"); location.ok()) {
    for (const std::string& folder : AncestorPaths(roots, *location)) {
      Least(cores.cpuset, ReadCpuset(folder));
    }
  }
  return cores;
}

}  // namespace headroom::sys
