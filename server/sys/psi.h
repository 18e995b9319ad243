// Pressure stall information: /proc/pressure/memory and memory.pressure of a cgroup v2
// (Documentation/accounting/psi.rst). Absent before Linux 4.20, with psi=0, and in most containers.
#ifndef HEADROOM_SERVER_SYS_PSI_H_
#define HEADROOM_SERVER_SYS_PSI_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/sys/roots.h"

namespace headroom::sys {

// Shares of wall time in permyriad (10000 = all of it), and the stall time since boot.
struct PsiLine {
  int avg10_permyriad = 0;
  int avg60_permyriad = 0;
  int avg300_permyriad = 0;
  int64_t total_us = 0;
};

struct Psi {
  PsiLine some;                 // at least one task stalled
  std::optional<PsiLine> full;  // all tasks stalled
};

std::optional<Psi> ParsePsi(std::string_view text);
// The host's. nullopt: this kernel has none (reading may fail with EOPNOTSUPP, too).
std::optional<Psi> ReadMemoryPsi(const Roots& roots);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_PSI_H_
