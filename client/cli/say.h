// Lines for the user, on stderr.
#ifndef HEADROOM_CLIENT_CLI_SAY_H_
#define HEADROOM_CLIENT_CLI_SAY_H_

#include <absl/status/status.h>

#include <string>

namespace headroom::cli {

// "headroom: TEXT" in one write(2), so that lines of a parallel build don't get into it. A stderr
// that is closed or full is no error.
void Say(const std::string& text);
void Say(const absl::Status& status);

void SayRaw(const std::string& text);  // as it is

// All of it to stdout. False: it can't be written (closed, disk full).
bool Print(const std::string& text);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_SAY_H_
