// What a build tool says of its own version.
#ifndef HEADROOM_CLIENT_CLI_TOOL_VERSION_H_
#define HEADROOM_CLIENT_CLI_TOOL_VERSION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/environment.h"

namespace headroom::cli {

// Runs `path words...` for at most two seconds, outside of every lane and without the preload
// library (but with `variables`), and returns its standard output. Empty: it could not be run, took
// longer, or said nothing.
std::string OutputOf(const std::string& path, const std::vector<std::string>& words,
                     const Environment& variables = {});

struct Version {
  int major = 0;
  int minor = 0;
  friend auto operator<=>(const Version&, const Version&) = default;
};
// The first "N.N" of a text: "1.13.2.git.kitware", "cargo 1.63.0", "V13.0.88". Unset: none.
std::optional<Version> FirstVersion(std::string_view text);
// nvcc's "Cuda compilation tools, release 13.0, V13.0.88". Unset: no such line.
std::optional<Version> VersionOfNvcc(std::string_view text);

// The version of the `ninja` or `nvcc` that PATH of this environment finds; asks it. Unset: there
// is none, or it doesn't say.
std::optional<Version> VersionInPath(const std::string& tool, const Environment& env);

// Since 1.13 ninja takes tokens; samurai, which answers with ninja's name and 1.9, takes none.
bool NinjaTakesTokens(const Version& version);
// Since 13.0 nvcc has --jobserver: its --threads take tokens (measured with 13.0.88).
bool NvccTakesTokens(const Version& version);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_TOOL_VERSION_H_
