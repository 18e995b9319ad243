// Variables as shells and systemd read them. Pure.
#ifndef HEADROOM_CLIENT_CLI_QUOTING_H_
#define HEADROOM_CLIENT_CLI_QUOTING_H_

#include <absl/status/statusor.h>

#include <string>
#include <string_view>

namespace headroom::cli {

enum class ShellFormat {
  kSh,       // POSIX: eval "$(headroom env)"
  kFish,     // headroom env --format fish | source
  kSystemd,  // a file for EnvironmentFile= (systemd.exec(5)) or environment.d(5)
  kDocker,   // words for a shell that runs docker or podman: --env NAME=VALUE
};

// One word that the shell reads as exactly `text`.
std::string QuoteSh(std::string_view text);
std::string QuoteFish(std::string_view text);

// One line, with its newline, that sets the variable for what is started from then on. Every value
// can be said to a shell. InvalidArgument for systemd's form where a value has a character that
// EnvironmentFile= and environment.d(5) read differently ($, `, ", \) or a control character.
absl::StatusOr<std::string> SetLine(ShellFormat format, std::string_view name,
                                    std::string_view value);
// One line that takes it away. systemd's forms can't: there it is set to nothing.
std::string UnsetLine(ShellFormat format, std::string_view name);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_QUOTING_H_
