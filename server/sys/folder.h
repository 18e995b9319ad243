// Folders that only their owner may enter: what keeps other users away from lanes and sockets.
#ifndef HEADROOM_SERVER_SYS_FOLDER_H_
#define HEADROOM_SERVER_SYS_FOLDER_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "server/sys/file.h"

namespace headroom::sys {

// Makes the last component of `path` with `mode` and owner `uid` (root may make other users'), or
// checks what is there. The last component must be a real folder (no symlink) of that owner, which
// nobody else may write to; FailedPrecondition otherwise. Returns it, opened (O_DIRECTORY). An
// existing folder with wider permissions than `mode` is narrowed.
absl::StatusOr<UniqueFd> EnsureFolder(const std::string& path, uid_t uid, mode_t mode = 0700);

// The same for `name` (one component) in the open folder `parent`, for callers that may not trust
// the path above it. `path` is for messages.
absl::StatusOr<UniqueFd> EnsureFolderAt(int parent, const std::string& name, uid_t uid, mode_t mode,
                                        const std::string& path);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_FOLDER_H_
