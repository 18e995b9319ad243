// /proc/vmstat: the host's counters of OOM kills and swapping (proc_vmstat(5)).
#ifndef HEADROOM_SERVER_SYS_VMSTAT_H_
#define HEADROOM_SERVER_SYS_VMSTAT_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/sys/file.h"
#include "server/sys/roots.h"

namespace headroom::sys {

// Counters since boot. Each is nullopt where the kernel lacks it (oom_kill: before 4.13).
struct VmStat {
  std::optional<int64_t> oom_kills;  // kills in cgroups included
  std::optional<int64_t> swapped_in_pages;
  std::optional<int64_t> swapped_out_pages;
};

VmStat ParseVmStat(std::string_view text);
absl::StatusOr<VmStat> ReadVmStat(const Roots& roots);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_VMSTAT_H_
