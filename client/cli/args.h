// The command line of headroom. Pure: words in, what is wanted out; nothing is printed here.
#ifndef HEADROOM_CLIENT_CLI_ARGS_H_
#define HEADROOM_CLIENT_CLI_ARGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "client/cli/history_command.h"
#include "client/cli/plan.h"
#include "client/cli/quoting.h"
#include "client/cli/run.h"
#include "server/policy/size.h"

namespace headroom::cli {

// Exit codes besides those of `run`.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;     // no daemon, or it could not or would not
inline constexpr int kUsageError = 2;  // 125 for `run`, as env(1) has it

struct EnvOptions {
  ShellFormat format = ShellFormat::kSh;
  bool unset = false;
  bool gate = true;
};

struct StatusOptions {
  bool json = false;
  bool watch = false;
  bool full_screen = false;  // `top`
  uint32_t interval_ms = 1000;
};

struct ExplainOptions {
  uint32_t last = 20;
  std::string lane;  // a lane's number or name; empty: all
  bool json = false;
};

struct SetOptions {
  std::string lane;  // empty: the whole daemon
  std::optional<uint32_t> jobs;
  std::optional<policy::Size> reserve;
};

struct ReloadOptions {};

struct DoctorOptions {
  std::string folder = ".";
  bool json = false;
};

// Print this and end with this code: help, version, or what is wrong with the command line.
struct Finish {
  std::string text;
  int code = kSuccess;  // 0: to stdout, else to stderr
};

using Arguments = std::variant<RunOptions, EnvOptions, StatusOptions, ExplainOptions, SetOptions,
                               ReloadOptions, DoctorOptions, HistoryOptions, PlanOptions, Finish>;

// `words`: argv without argv[0].
Arguments ParseArguments(const std::vector<std::string>& words);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_ARGS_H_
