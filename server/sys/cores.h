// How many cores a process may really use: the least of its affinity, its cpuset and the CFS quota
// over all of its cgroups.
#ifndef HEADROOM_SERVER_SYS_CORES_H_
#define HEADROOM_SERVER_SYS_CORES_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/sys/roots.h"

namespace headroom::sys {

struct Cores {
  std::optional<int> affinity;              // Cpus_allowed_list of /proc/PID/status
  std::optional<int> cpuset;                // the tightest of the visible cpusets
  std::optional<int64_t> quota_millicores;  // the tightest CFS quota; 1000 = one core

  // The least of them, a part of a core rounded up (half a core idles less than it waits), at least
  // 1. Nothing known: 1.
  int Count() const;
};

// The number of CPUs in a list such as "0-3,8,10-11". nullopt: not a list. "" is 0 CPUs.
std::optional<int> ParseCpuList(std::string_view text);
// cpu.max: "max 100000" or "150000 100000". Outer nullopt: not such a text; inner: no quota.
struct CpuQuota {
  std::optional<int64_t> millicores;
};
std::optional<CpuQuota> ParseCpuMax(std::string_view text);
// cpu.cfs_quota_us ("-1": none) and cpu.cfs_period_us.
std::optional<CpuQuota> ParseCfsQuota(std::string_view quota, std::string_view period);
// Cpus_allowed_list of /proc/PID/status.
std::optional<int> ParseAllowedCpus(std::string_view status);

// Of process `pid` (0: ourselves). What is missing stays nullopt.
Cores ReadCores(const Roots& roots, pid_t pid = 0);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_CORES_H_
