// Control groups: which a process is in, and what memory they leave it. v1, v2 and hybrid
// (cgroups(7), Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst), inside containers
// too.
//
// A limit binds at every ancestor, so a CgroupChain holds the process's own cgroup and all above
// it, as far up as this process can see. Each is held by its folder's descriptor and open files: a
// cgroup that was removed and made again under the same name is a different one.
//
// Threading: none of this is shared between threads. Vanished cgroups are a normal result (nullopt
// or NotFound).
#ifndef HEADROOM_SERVER_SYS_CGROUP_H_
#define HEADROOM_SERVER_SYS_CGROUP_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/sys/file.h"
#include "server/sys/mountinfo.h"
#include "server/sys/psi.h"
#include "server/sys/roots.h"

namespace headroom::sys {

enum class CgroupVersion { kV1, kV2 };

// One line of /proc/PID/cgroup.
struct CgroupEntry {
  int hierarchy = 0;                     // 0: v2
  std::vector<std::string> controllers;  // empty for v2; "name=systemd" for a named one
  std::string path;                      // from the root of this process's cgroup namespace
  bool deleted = false;  // the kernel says that the cgroup was removed (its process is a zombie)
};
std::vector<CgroupEntry> ParseProcCgroup(std::string_view text);

// A folder in a mounted hierarchy.
struct CgroupLocation {
  CgroupVersion version = CgroupVersion::kV2;
  std::string mount_point;  // as the kernel says it: without Roots::prefix
  std::string relative;     // below mount_point; "" or "/a/b"
  std::string Path() const { return mount_point + relative; }
  friend bool operator==(const CgroupLocation& a, const CgroupLocation& b) {
    return a.version == b.version && a.mount_point == b.mount_point && a.relative == b.relative;
  }
};

// Where the cgroup that governs `controller` ("memory", "cpu", "cpuset", "pids") lies. nullopt: no
// such controller is mounted where we see it, or the cgroup is gone. A path outside of what is
// mounted (a container that sees only its own part) gives the mount's own root: its limit binds.
std::optional<CgroupLocation> LocateCgroup(const std::vector<CgroupEntry>& entries,
                                           const std::vector<Mount>& mounts,
                                           std::string_view controller);

// The same for process `pid` (0: ourselves), through *our* mounts, as we are the one to open it.
// NotFound: no such process, or no such controller.
absl::StatusOr<CgroupLocation> FindCgroup(const Roots& roots, pid_t pid,
                                          std::string_view controller = "memory");

// The folders of `location` and of all above it up to the mount's root, itself first, with
// Roots::prefix before them: for files of controllers that aren't kept open.
std::vector<std::string> AncestorPaths(const Roots& roots, const CgroupLocation& location);

// A limit as the kernel writes it: "max", v1's 9223372036854771712 and the like are nullopt.
struct ParsedLimit {
  std::optional<int64_t> bytes;
};
std::optional<ParsedLimit> ParseLimit(std::string_view text);

// memory.stat: what can be dropped under pressure. v1: the total_ lines, which include children.
struct CgroupStat {
  int64_t inactive_file_bytes = 0;
  int64_t active_file_bytes = 0;
  int64_t anon_bytes = 0;
  int64_t shmem_bytes = 0;
};
CgroupStat ParseCgroupStat(CgroupVersion version, std::string_view text);

// memory.oom_control (v1) and memory.events (v2).
struct CgroupOom {
  std::optional<int64_t> oom_kills;  // v1: since Linux 4.13
  bool under_oom = false;            // v1 only: a task is waiting in the OOM path right now
};
CgroupOom ParseOomControl(std::string_view text);
CgroupOom ParseMemoryEvents(std::string_view text);

// One reading of a memory cgroup.
struct CgroupMemory {
  std::optional<int64_t> limit_bytes;  // memory.max, memory.limit_in_bytes; nullopt: unlimited
  std::optional<int64_t> high_bytes;   // v2's memory.high; nullopt: unlimited or v1
  std::optional<int64_t> usage_bytes;  // nullopt: v2's root, or a hierarchy without memory
  CgroupStat stat;
  CgroupOom oom;
  bool oom_group = false;                   // v2: the OOM killer ends all of its processes together
  std::optional<int64_t> swap_limit_bytes;  // v2's memory.swap.max; nullopt: unlimited or v1

  // The tighter of max and high: beyond high the kernel stalls the build instead of killing it.
  std::optional<int64_t> EffectiveLimitBytes() const;
  // limit - usage + reclaimable file pages, never below 0 nor above the limit. nullopt: no limit.
  std::optional<int64_t> AvailableBytes() const;
};

// One memory cgroup, held open.
class MemoryCgroup {
 public:
  // `name`: for messages, and what name() gives back.
  static absl::StatusOr<MemoryCgroup> Open(CgroupVersion version, UniqueFd directory,
                                           std::string name);
  static absl::StatusOr<MemoryCgroup> Open(const Roots& roots, const CgroupLocation& location);

  // nullopt: this cgroup was removed.
  std::optional<CgroupMemory> Read() const;
  // Limit, usage and stat alone: what the fast tier needs.
  std::optional<CgroupMemory> ReadFast() const;
  // Usage alone, a third of that. nullopt: removed, or there is none.
  std::optional<int64_t> ReadUsage() const;
  std::optional<Psi> ReadPsi() const;  // v2 only; nullopt: none

  const std::string& name() const { return name_; }
  CgroupVersion version() const { return version_; }
  const FileId& id() const { return id_; }
  int directory() const { return directory_.get(); }

 private:
  MemoryCgroup() = default;
  bool Removed() const;

  CgroupVersion version_ = CgroupVersion::kV2;
  std::string name_;
  FileId id_;
  UniqueFd directory_;
  KeptFile limit_, high_, usage_, stat_, events_, oom_group_, swap_limit_, pressure_;
};

// A cgroup and its ancestors.
class CgroupChain {
 public:
  static absl::StatusOr<CgroupChain> Open(const Roots& roots, const CgroupLocation& location);
  // Of process `pid` (0: ourselves).
  static absl::StatusOr<CgroupChain> OpenFor(const Roots& roots, pid_t pid);

  // Its own cgroup first, the visible root last. Never empty.
  const std::vector<MemoryCgroup>& levels() const { return levels_; }
  const CgroupLocation& location() const { return location_; }

  struct Tightest {
    size_t level = 0;  // index in levels()
    int64_t available_bytes = 0;
  };
  struct Reading {
    std::vector<CgroupMemory> levels;  // one for each of levels()
    std::optional<Tightest> tightest;  // nullopt: no level has a limit
  };
  // nullopt: one of the levels vanished; the caller looks its process up again.
  std::optional<Reading> Read() const;
  // The same of MemoryCgroup::ReadFast(): 15 us a level (measured, v1), mostly memory.stat.
  std::optional<Reading> ReadFast() const;

 private:
  std::optional<Reading> ReadWith(std::optional<CgroupMemory> (MemoryCgroup::*read)() const) const;

  CgroupLocation location_;
  std::vector<MemoryCgroup> levels_;
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_CGROUP_H_
