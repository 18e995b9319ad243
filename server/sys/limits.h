// Limits besides memory cgroups: RLIMIT_AS and RLIMIT_NPROC of a process (/proc/PID/limits), and
// pids.max of its cgroups.
#ifndef HEADROOM_SERVER_SYS_LIMITS_H_
#define HEADROOM_SERVER_SYS_LIMITS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/sys/roots.h"

namespace headroom::sys {

// Soft limits; nullopt: unlimited, or not known.
struct ResourceLimits {
  std::optional<int64_t> address_space_bytes;
  std::optional<int64_t> processes;
  std::optional<int64_t> open_files;
};
ResourceLimits ParseLimits(std::string_view text);
ResourceLimits ReadLimits(const Roots& roots, pid_t pid = 0);  // 0: ourselves

// The tightest pids.max - pids.current over all cgroups of `pid` (0: ourselves), never negative:
// how many tasks may still be made. nullopt: no limit, or no pids controller.
std::optional<int64_t> ReadPidsLeft(const Roots& roots, pid_t pid = 0);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_LIMITS_H_
