// /proc/spl/kstat/zfs/arcstats: the size of ZFS's own cache. The kernel doesn't know that the ARC
// can shrink, so MemAvailable counts it as used.
#ifndef HEADROOM_SERVER_SYS_ARCSTATS_H_
#define HEADROOM_SERVER_SYS_ARCSTATS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "server/sys/roots.h"

namespace headroom::sys {

struct ArcStats {
  int64_t size_bytes = 0;
  int64_t floor_bytes = 0;  // c_min: it never shrinks below that
  // What ZFS would give back under pressure; slowly, so the caller should not credit it at once.
  int64_t ReclaimableBytes() const { return std::max<int64_t>(0, size_bytes - floor_bytes); }
};

// nullopt: no ZFS on this host, or a text that isn't arcstats'.
std::optional<ArcStats> ParseArcStats(std::string_view text);
std::optional<ArcStats> ReadArcStats(const Roots& roots);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_ARCSTATS_H_
