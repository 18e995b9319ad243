// `headroom history`: what builds have taught, listed, shown, exported, imported, forgotten. Works
// on the file itself; a daemon that runs takes it in with its next start (or the next build that
// has something to add to the same class).
#ifndef HEADROOM_CLIENT_CLI_HISTORY_COMMAND_H_
#define HEADROOM_CLIENT_CLI_HISTORY_COMMAND_H_

#include <string>

namespace headroom::cli {

struct HistoryOptions {
  enum class Action { kList, kShow, kExport, kImport, kForget };
  Action action = Action::kList;
  std::string name;  // of a class (show, forget), or a file (export, import); "-": standard streams
  bool all = false;  // forget everything
  bool json = false;
};

int ShowHistory(const HistoryOptions& options);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_HISTORY_COMMAND_H_
