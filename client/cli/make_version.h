// What a GNU make can take as a jobserver. make <= 4.3 stops with a fatal error at a fifo: in
// MAKEFLAGS ("internal error: invalid --jobserver-auth string", main.c of 4.3), so it has to be
// known before anything is exported.
#ifndef HEADROOM_CLIENT_CLI_MAKE_VERSION_H_
#define HEADROOM_CLIENT_CLI_MAKE_VERSION_H_

#include <optional>
#include <string>
#include <string_view>

namespace headroom::cli {

enum class MakeAbility {
  kOldDescriptors,  // < 4.2: --jobserver-fds=R,W
  kDescriptors,     // 4.2, 4.3: --jobserver-auth=R,W
  kFifo,            // >= 4.4
};

// From the first line of `make --version`: "GNU Make 4.3". Unset: no GNU make.
std::optional<MakeAbility> AbilityFromVersion(std::string_view text);
// "4.3" of the same line, for messages.
std::string VersionText(std::string_view text);

// From the strings of the program itself, with nothing executed. Unset: can't be told (a script,
// another make).
std::optional<MakeAbility> AbilityFromImage(std::string_view image);

// Whether the last part of a path is a name under which GNU make is installed: make, gmake,
// gnumake, make-4.3, ...
bool IsMakeName(std::string_view path);

struct Make {
  std::string path;
  MakeAbility ability = MakeAbility::kFifo;
};

// What `path` is, if it is GNU make under its own name or behind a link with another; unset if
// not. Reads the file; where that doesn't tell (a wrapper script), runs it with --version, for
// at most two seconds.
std::optional<Make> ProbeMake(const std::string& path);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_MAKE_VERSION_H_
