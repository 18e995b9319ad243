#include "server/sys/fifo.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/sys/folder.h"

namespace headroom::sys {
namespace {

// Opens what `probe` (O_PATH) stands for, whatever its name leads to by now.
absl::StatusOr<UniqueFd> Reopen(const UniqueFd& probe, const std::string& path) {
  const std::string link = "/proc/self/fd/" + std::to_string(probe.get());
  UniqueFd fd(open(link.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!fd) return ErrnoStatus(errno, "open fifo " + path);
  return fd;
}

}  // namespace

absl::StatusOr<Fifo> Fifo::Create(const std::string& path, uid_t uid) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == path.size()) {
    return absl::InvalidArgumentError("\"" + path + "\" can't be a fifo in a folder of its own");
  }
  const std::string name = path.substr(slash + 1);
  absl::StatusOr<UniqueFd> folder = EnsureFolder(path.substr(0, slash), uid);
  if (!folder.ok()) return folder.status();

  const bool made = mkfifoat(folder->get(), name.c_str(), 0600) == 0;
  if (!made && errno != EEXIST) return ErrnoStatus(errno, "make fifo " + path);
  // Looked at before it is opened: opening a device that lies there may have effects.
  const UniqueFd probe(openat(folder->get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat st = {};
  if (!probe || fstat(probe.get(), &st) != 0) return ErrnoStatus(errno, "open fifo " + path);
  if (!S_ISFIFO(st.st_mode)) {
    return absl::FailedPreconditionError(path +
                                         " is not a fifo (a symlink isn't followed); remove it");
  }
  if (made && st.st_uid != uid && st.st_uid == geteuid() && st.st_nlink == 1) {
    // By descriptor: the folder is the user's, who could put a link to another file there
    // meanwhile.
    if (fchownat(probe.get(), "", uid, static_cast<gid_t>(-1), AT_EMPTY_PATH) != 0) {
      return ErrnoStatus(errno, "give fifo " + path + " to user " + std::to_string(uid));
    }
    st.st_uid = uid;
  }
  if (st.st_uid != uid) {
    return absl::FailedPreconditionError(path + " belongs to user " + std::to_string(st.st_uid) +
                                         ", not to " + std::to_string(uid) + "; remove it");
  }
  // Before it is opened: the umask may have taken away what opening it needs.
  if ((st.st_mode & 07777) != 0600) {
    if (absl::Status status = ChangeMode(probe.get(), 0600, path); !status.ok()) return status;
  }
  absl::StatusOr<UniqueFd> fd = Reopen(probe, path);
  if (!fd.ok()) return fd.status();
  return Fifo(std::move(*fd), path, FileId{st.st_dev, st.st_ino});
}

absl::StatusOr<Fifo> Fifo::Open(const std::string& path) {
  absl::StatusOr<UniqueFd> probe = OpenAt(AT_FDCWD, path, O_PATH | O_NOFOLLOW);
  if (!probe.ok()) return probe.status();
  struct stat st = {};
  if (fstat(probe->get(), &st) != 0) return ErrnoStatus(errno, "open fifo " + path);
  if (!S_ISFIFO(st.st_mode)) {
    return absl::FailedPreconditionError(path + " is not a fifo (a symlink isn't followed)");
  }
  absl::StatusOr<UniqueFd> fd = Reopen(*probe, path);
  if (!fd.ok()) return fd.status();
  return Fifo(std::move(*fd), path, FileId{st.st_dev, st.st_ino});
}

absl::StatusOr<int64_t> Fifo::Idle() const {
  int bytes = 0;
  if (ioctl(fd_.get(), FIONREAD, &bytes) != 0) return ErrnoStatus(errno, "FIONREAD on " + path_);
  return bytes;
}

absl::StatusOr<int64_t> Fifo::Put(int64_t count) const {
  char tokens[PIPE_BUF];
  memset(tokens, kTokenByte, sizeof tokens);
  int64_t put = 0;
  size_t most = sizeof tokens;
  while (put < count) {
    const size_t want = std::min(most, static_cast<size_t>(count - put));
    const ssize_t written = write(fd_.get(), tokens, want);
    if (written > 0) {
      put += written;
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) return ErrnoStatus(errno, "write to fifo " + path_);
    // Up to PIPE_BUF bytes go in whole or not at all: try with fewer.
    if (want == 1) break;
    most = want / 2;
  }
  return put;
}

absl::StatusOr<int64_t> Fifo::Take(int64_t count) const {
  char tokens[PIPE_BUF];
  int64_t taken = 0;
  while (taken < count) {
    const size_t want = std::min(sizeof tokens, static_cast<size_t>(count - taken));
    const ssize_t got = read(fd_.get(), tokens, want);
    if (got > 0) {
      taken += got;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno != EAGAIN) return ErrnoStatus(errno, "read from fifo " + path_);
    break;
  }
  return taken;
}

absl::StatusOr<int64_t> Fifo::Reserve(int64_t tokens) const {
  const int present = fcntl(fd_.get(), F_GETPIPE_SZ);
  if (present < 0) return ErrnoStatus(errno, "F_GETPIPE_SZ on " + path_);
  if (present >= tokens) return present;
  if (tokens > INT_MAX)
    return absl::InvalidArgumentError("no fifo holds " + std::to_string(tokens));
  const int grown = fcntl(fd_.get(), F_SETPIPE_SZ, static_cast<int>(tokens));
  if (grown < 0) {
    return ErrnoStatus(errno, "make room for " + std::to_string(tokens) + " tokens in " + path_);
  }
  return grown;
}

}  // namespace headroom::sys
