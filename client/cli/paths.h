// Where things are: the daemon's runtime folders, and the parts of Headroom beside this program.
#ifndef HEADROOM_CLIENT_CLI_PATHS_H_
#define HEADROOM_CLIENT_CLI_PATHS_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "client/cli/environment.h"

namespace headroom::cli {

struct Places {
  // Runtime folders in which to look for a daemon, in this order.
  std::vector<std::string> lookup;
  // Where this user's private daemon may live, best first.
  std::vector<std::string> own;
};

// HEADROOM_RUNTIME_DIR, and nothing else, if it is set. Else /run/headroom; then, for a user other
// than root, $XDG_RUNTIME_DIR/headroom and /tmp/headroom-UID. InvalidArgument: a
// HEADROOM_RUNTIME_DIR that is no absolute plain path, or too long for a socket's address in it.
absl::StatusOr<Places> FindPlaces(const Environment& env, uid_t uid);

// Whether a path can stand in MAKEFLAGS as it is: no blanks, and nothing that make or a shell reads
// as something else.
bool CanBeInMakeflags(std::string_view path);

std::string SocketPath(const std::string& runtime_dir);

// Makes the folder (0700) if it isn't there; its parents are left alone. FailedPrecondition: it is
// no folder of ours (a link, another owner, or others may write to it): whoever made it could
// pose as the daemon.
absl::Status PrepareRuntimeDir(const std::string& dir, uid_t uid);

// Whether a daemon holds gated tools of this lane (gate_wire.h). One that doesn't must not be
// waited for.
bool HasGate(const std::string& lane_dir);

// What execvp(3) would run for `name`: a path with a slash as it is, else the first file in PATH
// that may be executed.
struct Found {
  enum class Kind { kExecutable, kNotExecutable, kNotFound };
  Kind kind = Kind::kNotFound;
  std::string path;
};
Found FindProgram(const std::string& name, const Environment& env);

// Folder of this program's file. Empty if it can't be told.
std::string OwnFolder();

// headroomd: beside this program, else in PATH. Empty: not found.
std::string FindDaemon(const std::string& own_folder, const Environment& env);
// What LD_PRELOAD should name, by docs/protocol.md (Gate, Environment). With `by_word_size` it has
// "$LIB" in it, for which ld.so puts the folder that fits the program: so 32-bit programs get a
// library of their own. Empty: there is no library beside this program.
std::string FindPreload(const std::string& own_folder, bool by_word_size = true);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_PATHS_H_
