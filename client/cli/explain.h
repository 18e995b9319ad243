// The daemon's decisions in words. Pure.
#ifndef HEADROOM_CLIENT_CLI_EXPLAIN_H_
#define HEADROOM_CLIENT_CLI_EXPLAIN_H_

#include <string>

#include "headroom/v1/control.pb.h"

namespace headroom::cli {

// One line, without a newline:
//   10:42:07.3 minted 4 tokens for run-1234-1: 18.2 GiB available - 1.0 GiB reserve - 9.4 GiB
//   expected growth leaves 7.8 GiB; the next job is expected to need 1.9 GiB
// Inputs that no sentence has a place for are named at the end; so are reasons and actions that a
// newer daemon has and this program does not know.
std::string Sentence(const v1::Decision& decision);

// The same as a JSON object, numbers as numbers.
std::string DecisionJson(const v1::Decision& decision);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_EXPLAIN_H_
