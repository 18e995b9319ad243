// What a client is about to run, read from the build file in its folder: edges of build.ninja by
// driver. Nothing is executed, and nothing is trusted: sizes, counts and depths are bounded, only
// regular files are opened.
//
// ParseNinja is pure: it gets texts from `read` and asks `exists` whether an output is there. Only
// edges whose first output is missing are counted (a date isn't looked at: a build that was cut
// short is the common case, an edited header the rare one, and a hint may be wrong).
#ifndef HEADROOM_SERVER_DAEMON_HINTS_H_
#define HEADROOM_SERVER_DAEMON_HINTS_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/policy/event.h"

namespace headroom::daemon {

struct HintSource {
  // The text of a file, cut off at `limit` bytes; nullopt: none. Paths are as the build file has
  // them, from the client's folder.
  std::function<std::optional<std::string>(const std::string& path, size_t limit)> read;
  std::function<bool(const std::string& path)> exists;
};

struct HintLimits {
  // torch's files have some kB, LLVM's 60 MB: its first edges tell enough.
  size_t bytes = size_t{8} << 20;
  int files = 64;  // include and subninja
  int depth = 8;
  int edges = 20000;
  // One edge's command after expansion.
  size_t command = size_t{64} << 10;
};

// In the order of their first edge. Empty: nothing there, or nothing left to build.
std::vector<policy::LaneHint::Edges> ParseNinja(const std::string& file, const HintSource& source,
                                                const HintLimits& limits);

// Of process `pid`, a ninja with arguments `argv`: the file that it builds from, through
// /proc/PID/cwd. May block as long as its file system does: not on the daemon's own thread.
std::vector<policy::LaneHint::Edges> ReadNinjaHints(const std::string& proc_root, int pid,
                                                    const std::vector<std::string>& argv);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_HINTS_H_
