// headroom: the program that people call. See `headroom --help`.
#include <unistd.h>

#include <string>
#include <variant>
#include <vector>

#include "client/cli/args.h"
#include "client/cli/commands.h"
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
  int operator()(const Finish& finish) const {
    if (finish.code == kSuccess) return Print(finish.text) ? kSuccess : kFailure;
    SayRaw(finish.text);
    return finish.code;
  }
};

}  // namespace
}  // namespace headroom::cli

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  return std::visit(headroom::cli::Dispatch{}, headroom::cli::ParseArguments(words));
}
