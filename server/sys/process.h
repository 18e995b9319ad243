// One process in /proc: its stat, statm, cmdline, environ, cwd and exe (proc_pid_stat(5) and so
// on).
//
// A process is named by (pid, start time): pids are used again. "Gone" is a normal result
// (nullopt).
#ifndef HEADROOM_SERVER_SYS_PROCESS_H_
#define HEADROOM_SERVER_SYS_PROCESS_H_

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/sys/file.h"
#include "server/sys/roots.h"

namespace headroom::sys {

struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // clock ticks (1/sysconf(_SC_CLK_TCK) s) since boot
  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
};

struct ProcStat {
  pid_t pid = 0;
  std::string comm;  // raw: any bytes but NUL, newlines and parentheses included
  char state = '?';  // R S D T t Z X I
  pid_t ppid = 0;
  pid_t pgrp = 0;
  pid_t session = 0;
  uint64_t user_ticks = 0;
  uint64_t system_ticks = 0;
  int threads = 0;
  uint64_t start_ticks = 0;
  int64_t rss_pages = 0;

  ProcessId id() const { return {pid, start_ticks}; }
  uint64_t cpu_ticks() const { return user_ticks + system_ticks; }
  bool dead() const { return state == 'Z' || state == 'X' || state == 'x'; }
};
// nullopt: not a whole stat line.
std::optional<ProcStat> ParseProcStat(std::string_view text);
std::optional<ProcStat> ReadProcStat(const Roots& roots, pid_t pid);
std::optional<ProcessId> ReadProcessId(const Roots& roots, pid_t pid);

struct ProcStatm {
  int64_t size_pages = 0;  // of its address space: 0 where it has none any more (a zombie)
  int64_t resident_pages = 0;
  int64_t shared_pages = 0;  // file-backed and shmem
  int64_t anon_pages() const {
    return resident_pages > shared_pages ? resident_pages - shared_pages : 0;
  }
};
std::optional<ProcStatm> ParseStatm(std::string_view text);

// The arguments of a cmdline text. A trailing NUL ends the last one; a process that overwrote its
// own (setproctitle) gives what it wrote.
std::vector<std::string> ParseCmdline(std::string_view text);
// At most `limit` bytes of it are looked at. nullopt: gone, or not ours to read.
std::optional<std::vector<std::string>> ReadCmdline(const Roots& roots, pid_t pid,
                                                    size_t limit = size_t{256} << 10);

// The words of a compiler's response file (`@file`): blanks separate, quotes and backslashes
// protect, as GCC, nvcc and the linkers have it.
std::vector<std::string> ParseResponseFile(std::string_view text);
// The words with those of the response files that they name in their places: regular files alone,
// of at most 256 KiB, one level, at most 4; what can't be read stays as it is. Opens files that the
// process chose: for processes of our own user.
std::vector<std::string> WithResponseFiles(const Roots& roots, pid_t pid,
                                           std::vector<std::string> argv);

// The value of variable `name` in an environ text; the first where it is there twice, as getenv(3).
std::optional<std::string> FindInEnviron(std::string_view text, std::string_view name);
// nullopt: not set, gone, or another user's process.
std::optional<std::string> ReadEnvironVariable(const Roots& roots, pid_t pid,
                                               std::string_view name);

std::optional<std::string> ReadCwd(const Roots& roots, pid_t pid);
std::optional<std::string> ReadExe(const Roots& roots, pid_t pid);  // without " (deleted)"
std::string_view Basename(std::string_view path);

// Real user id, from status. The owner of /proc/PID is root for a process that isn't dumpable.
std::optional<uid_t> ParseStatusUid(std::string_view status);
std::optional<uid_t> ReadRealUid(const Roots& roots, pid_t pid);

int64_t PageBytes();
int64_t TicksPerSecond();

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_PROCESS_H_
