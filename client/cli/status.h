// The daemon's status for people and for programs. Pure.
#ifndef HEADROOM_CLIENT_CLI_STATUS_H_
#define HEADROOM_CLIENT_CLI_STATUS_H_

#include <string>

#include "headroom/v1/control.pb.h"

namespace headroom::cli {

// A table, with newlines. `width`: of the terminal, lines are cut there; 0: not at all.
std::string StatusTable(const v1::Status& status, size_t width);

// One JSON object, without a newline at its end; sizes in bytes, times in nanoseconds, all numbers
// as numbers. `indent` < 0: on one line. docs/protocol.md has the keys.
std::string StatusJson(const v1::Status& status, int indent);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_STATUS_H_
