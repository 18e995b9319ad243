// A lock file: an open file description lock (fcntl(2), F_OFD_SETLK; unlike flock(2) it can be
// asked for without taking it) on a file that holds its owner's pid. The lock goes with the
// process, the file stays: removing it would let two processes hold "the" lock.
#ifndef HEADROOM_SERVER_SYS_LOCK_FILE_H_
#define HEADROOM_SERVER_SYS_LOCK_FILE_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/sys/file.h"

namespace headroom::sys {

class LockFile {
 public:
  // Makes `path` (0600) where it is missing, locks it and writes our pid. Never waits.
  // AlreadyExists: somebody else holds it; the message has the pid.
  static absl::StatusOr<LockFile> Acquire(const std::string& path);
  // The pid in a locked file. nullopt: nobody holds it, or there is none. 0: held, pid unreadable.
  static std::optional<pid_t> Holder(const std::string& path);

  const std::string& path() const { return path_; }

 private:
  LockFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_LOCK_FILE_H_
