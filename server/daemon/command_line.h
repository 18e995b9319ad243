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

// What the policy calls a job that runs this: "nvcc", "c++", "ld" or "other". A build that runs a
// tool itself, without its driver, runs a job of that driver's.
std::string DriverOf(const policy::Command& command);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_COMMAND_LINE_H_
