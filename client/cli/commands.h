// The commands that ask a running daemon, and print. Each gives the program's exit code.
#ifndef HEADROOM_CLIENT_CLI_COMMANDS_H_
#define HEADROOM_CLIENT_CLI_COMMANDS_H_

#include "client/cli/args.h"

namespace headroom::cli {

int ShowEnv(const EnvOptions& options);
int ShowStatus(const StatusOptions& options);
int ShowExplanation(const ExplainOptions& options);
int Set(const SetOptions& options);
int Reload();
int Doctor(const DoctorOptions& options);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_COMMANDS_H_
