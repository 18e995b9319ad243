#include "server/history/place.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace headroom::history {
namespace {

constexpr char kFile[] = "/history.sqlite";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// XDG: paths that are not absolute are to be ignored.
bool IsAbsolute(const std::string& path) {
  return !path.empty() && path.front() == '/';
}

}  // namespace

Surroundings Surroundings::FromEnvironment() {
  return {.uid = geteuid(),
          .history = Environment("HEADROOM_HISTORY"),
          .runtime_dir = Environment("HEADROOM_RUNTIME_DIR"),
          .state = Environment("STATE_DIRECTORY"),
          .xdg_state = Environment("XDG_STATE_HOME"),
          .home = Environment("HOME")};
}

absl::StatusOr<std::string> HistoryPath(const Surroundings& around) {
  if (around.history == "off") return std::string();
  if (!around.history.empty()) {
    if (!IsAbsolute(around.history)) {
      return absl::InvalidArgumentError(absl::StrCat("HEADROOM_HISTORY: '", around.history,
                                                     "' is neither an absolute path nor \"off\""));
    }
    return around.history;
  }
  // systemd separates several folders with colons; ours has one.
  if (IsAbsolute(around.state)) return around.state.substr(0, around.state.find(':')) + kFile;
  if (IsAbsolute(around.runtime_dir)) return around.runtime_dir + kFile;
  if (around.uid == 0) return std::string("/var/lib/headroom") + kFile;
  if (IsAbsolute(around.xdg_state)) return around.xdg_state + "/headroom" + kFile;
  if (IsAbsolute(around.home)) return around.home + "/.local/state/headroom" + kFile;
  return absl::NotFoundError(
      "no place for the history: neither HOME nor XDG_STATE_HOME is an absolute path; set one, or "
      "HEADROOM_HISTORY to a file or to \"off\"");
}

}  // namespace headroom::history
