// In which words a build is told of its lane's fifo, and what its user should know of it. Pure.
#ifndef HEADROOM_CLIENT_CLI_TELLING_H_
#define HEADROOM_CLIENT_CLI_TELLING_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "client/cli/make_version.h"
#include "client/cli/makeflags.h"

namespace headroom::cli {

struct TellingFacts {
  std::string command;               // argv[0] of CMD
  std::optional<Make> command_make;  // CMD is this make
  std::optional<Make> path_make;     // "make" of PATH
  bool adapter = false;  // libheadroom.so is there, and makes an old make's descriptors of a fifo:
};
struct Telling {
  JobserverStyle style = JobserverStyle::kFifo;
  std::string note;  // empty: nothing to say
};
// For `run`, which can hand descriptors on.
Telling TellCommand(const TellingFacts& facts);
// For `env`, which can't: kNone where a fifo: would stop the make of PATH.
Telling TellShell(const TellingFacts& facts);

// What to say of a -j in CMD's own words: such a client takes no tokens. Empty: nothing.
std::string NoteOnJobs(std::string_view command, std::span<const std::string> words, bool is_make,
                       bool gate);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_TELLING_H_
