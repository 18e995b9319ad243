// Where the history is. One file a user, or the system's daemon's; the daemon and `headroom
// history` must agree on it. Pure but for FromEnvironment.
#ifndef HEADROOM_SERVER_HISTORY_PLACE_H_
#define HEADROOM_SERVER_HISTORY_PLACE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace headroom::history {

struct Surroundings {
  uid_t uid = 0;
  std::string history;      // HEADROOM_HISTORY: a path, or "off"
  std::string runtime_dir;  // HEADROOM_RUNTIME_DIR
  std::string state;        // STATE_DIRECTORY, set by systemd's StateDirectory=
  std::string xdg_state;    // XDG_STATE_HOME
  std::string home;         // HOME
  static Surroundings FromEnvironment();
};

// HEADROOM_HISTORY; else below STATE_DIRECTORY; else in HEADROOM_RUNTIME_DIR (another runtime
// folder than the usual one is another daemon, a test's or a container's: its history stays with
// it); else root: /var/lib/headroom/history.sqlite; a user:
// $XDG_STATE_HOME/headroom/history.sqlite, else ~/.local/state/headroom/history.sqlite. Empty:
// switched off. InvalidArgument: HEADROOM_HISTORY is neither. NotFound: there is no home.
absl::StatusOr<std::string> HistoryPath(const Surroundings& around);

}  // namespace headroom::history

#endif  // HEADROOM_SERVER_HISTORY_PLACE_H_
