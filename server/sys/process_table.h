// The processes of the host: which there are, what each is, and who of them has a file open.
#ifndef HEADROOM_SERVER_SYS_PROCESS_TABLE_H_
#define HEADROOM_SERVER_SYS_PROCESS_TABLE_H_

#include <dirent.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

// One process. nullopt: gone.
std::optional<ProcessInfo> ReadProcessInfo(const Roots& roots, pid_t pid);

// How many tasks (processes and their threads, dead ones that nobody has waited for included) the
// kernel has, and the pid that it gave last: where both are the same as before, no process came or
// went in between. (Of another pid namespace both may: one here that ended while one there began is
// missed.)
// Its name as the kernel has it. nullopt: gone.
std::optional<std::string> ReadComm(const Roots& roots, pid_t pid);

struct TaskCount {
  int64_t tasks = 0;
  int64_t last_pid = 0;
  friend bool operator==(const TaskCount&, const TaskCount&) = default;
};
// Of /proc/loadavg, proc_loadavg(5). nullopt: not such a text.
std::optional<TaskCount> ParseTaskCount(std::string_view loadavg);

// The pids of all processes, listed again and again: files are kept open.
class ProcessLister {
 public:
  explicit ProcessLister(const Roots& roots);

  // Whether a process may have come or gone since the last List: one read, a hundredth of a listing
  // where there are hundreds. True where that can't be told.
  bool Changed();
  // Sorted; valid until the next call. Fails only where /proc itself can't be listed.
  absl::StatusOr<const std::vector<pid_t>*> List();

 private:
  struct CloseDir {
    void operator()(DIR* dir) const { closedir(dir); }
  };
  std::optional<TaskCount> Count() const;

  std::string path_;
  KeptFile loadavg_;
  std::unique_ptr<DIR, CloseDir> dir_;
  std::optional<TaskCount> listed_at_;
  std::vector<pid_t> pids_;
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
