// headroom: the program that people call. See `headroom --help`.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <variant>
#include <vector>

#include "client/cli/args.h"
#include "client/cli/commands.h"
#include "client/cli/history_command.h"
#include "client/cli/plan.h"
#include "client/cli/run.h"
#include "client/cli/say.h"

namespace headroom::cli {
namespace {

struct Dispatch {
  int operator()(const RunOptions& options) const { Run(options); }
  int operator()(const EnvOptions& options) const { return ShowEnv(options); }
  int operator()(const StatusOptions& options) const { return ShowStatus(options); }
  int operator()(const ExplainOptions& options) const { return ShowExplanation(options); }
  int operator()(const SetOptions& options) const { return Set(options); }
  int operator()(const ReloadOptions&) const { return Reload(); }
  int operator()(const DoctorOptions& options) const { return Doctor(options); }
  int operator()(const HistoryOptions& options) const { return ShowHistory(options); }
  int operator()(const PlanOptions& options) const { return ShowPlan(options); }
  int operator()(const Finish& finish) const {
    if (finish.code == kSuccess) return Print(finish.text) ? kSuccess : kFailure;
    SayRaw(finish.text);
    return finish.code;
  }
};

// What is opened next gets the lowest free number: without this, what is meant for a closed stderr
// could land in the lane's fifo. Opened the wrong way round, so that to use them is an error still.
// CMD gets them closed, as they were.
void FillStandardStreams() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
        open("/dev/null", (fd == 0 ? O_WRONLY : O_RDONLY) | O_CLOEXEC) < 0)
      _exit(kExitRunFailed);
  }
}

}  // namespace
}  // namespace headroom::cli

int main(int argc, char** argv) {
  headroom::cli::FillStandardStreams();
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return std::visit(headroom::cli::Dispatch{}, headroom::cli::ParseArguments(words));
}
