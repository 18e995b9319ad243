// All processes of the host in one pass, and their tree; and who of them has a file open.
#ifndef HEADROOM_SERVER_SYS_PROCESS_TABLE_H_
#define HEADROOM_SERVER_SYS_PROCESS_TABLE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/sys/file.h"
#include "server/sys/process.h"
#include "server/sys/roots.h"

namespace headroom::sys {

struct ProcessInfo {
  ProcessId id;
  pid_t ppid = 0;
  pid_t pgrp = 0;
  pid_t session = 0;
  std::string comm;
  // Effective user, or root for a process that isn't dumpable (a set-user-ID program): such a one
  // is nobody's to touch.
  uid_t uid = 0;
  char state = '?';
  uint64_t cpu_ticks = 0;
  int64_t rss_bytes = 0;
  int threads = 0;
};

// The pids of all processes, sorted: a tenth of the cost of a Scan. Fails only where /proc itself
// can't be listed.
absl::StatusOr<std::vector<pid_t>> ListPids(const Roots& roots);
// One of them. nullopt: gone.
std::optional<ProcessInfo> ReadProcessInfo(const Roots& roots, pid_t pid);

// A snapshot. It isn't atomic: a process may start, end or change parents while it is taken, so a
// parent may be missing. Immutable after Scan.
class ProcessTable {
 public:
  ProcessTable() = default;
  // For tests and models.
  explicit ProcessTable(std::vector<ProcessInfo> processes);
  // Fails only where /proc itself can't be listed.
  static absl::StatusOr<ProcessTable> Scan(const Roots& roots);

  const std::vector<ProcessInfo>& processes() const { return processes_; }  // by pid
  const ProcessInfo* Find(pid_t pid) const;                                 // nullptr: none
  const ProcessInfo* Find(const ProcessId& id) const;
  std::vector<const ProcessInfo*> Children(pid_t pid) const;  // by pid
  // `pid` itself (where it is there), then all below it, parents first.
  std::vector<const ProcessInfo*> Subtree(pid_t pid) const;
  // Parent, its parent and so on; ends at a parent that is missing, or in an impossible circle.
  std::vector<const ProcessInfo*> Ancestors(pid_t pid) const;

 private:
  void Index();

  std::vector<ProcessInfo> processes_;
  std::vector<uint32_t> by_parent_;  // indices of processes_, by (ppid, pid)
};

// Which of `pids` have the file `id` open.
struct Openers {
  std::vector<pid_t> pids;
  // Could not be looked into: another user's. Processes that are gone are in neither list.
  std::vector<pid_t> denied;
};
Openers FindOpeners(const Roots& roots, const FileId& id, const std::vector<pid_t>& pids);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_PROCESS_TABLE_H_
