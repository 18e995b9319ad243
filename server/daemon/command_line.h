// What a process is and what it is about to run, from its argv: policy/tool.h's Recognise, with
// shells kept apart from what their command line names. Pure.
#ifndef HEADROOM_SERVER_DAEMON_COMMAND_LINE_H_
#define HEADROOM_SERVER_DAEMON_COMMAND_LINE_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/policy/tool.h"

namespace headroom::daemon {

struct Recognised {
  // Of the process itself. A shell is kOther, so that it is never taken for its compiler.
  policy::Command command;
  // Of a shell: the heaviest command of its `-c` line; else the same as `command`.
  policy::Command runs;
  bool is_shell = false;
};
Recognised RecogniseProcess(const std::vector<std::string>& argv, std::string_view comm);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_COMMAND_LINE_H_
