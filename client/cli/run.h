// `headroom run`: a build in a lane of its own.
#ifndef HEADROOM_CLIENT_CLI_RUN_H_
#define HEADROOM_CLIENT_CLI_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/policy/size.h"

namespace headroom::cli {

// Exit codes of `run` itself, as env(1) and timeout(1) have them.
inline constexpr int kExitRunFailed = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

struct RunOptions {
  std::optional<uint32_t> jobs;
  std::optional<policy::Size> reserve;
  bool gate = true;
  std::string trace_file;   // empty: none
  std::string curves_file;  // empty: none
  bool history = true;
  bool without_prediction = false;
  std::optional<uint64_t> spoiled_peak;
  std::vector<std::string> command;
};

// Ends the process, as CMD ended or with one of the codes above.
[[noreturn]] void Run(const RunOptions& options);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_RUN_H_
