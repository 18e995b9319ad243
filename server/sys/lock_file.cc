#include "server/sys/lock_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "server/sys/text.h"

namespace headroom::sys {
namespace {

struct flock WholeFile(short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::optional<pid_t> ReadPid(int fd) {
  char text[32];
  const ssize_t got = pread(fd, text, sizeof text, 0);
  if (got <= 0) return std::nullopt;
  const auto pid = ParseTrimmed<pid_t>(std::string_view(text, static_cast<size_t>(got)));
  return pid && *pid > 0 ? pid : std::nullopt;
}

}  // namespace

absl::StatusOr<LockFile> LockFile::Acquire(const std::string& path) {
  // Again where somebody removed the file between our open and our lock: a few times at most.
  for (int attempt = 0; attempt < 8; ++attempt) {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!fd) return ErrnoStatus(errno, "open lock file " + path);
    struct stat held = {}, named = {};
    if (fstat(fd.get(), &held) != 0) return ErrnoStatus(errno, "lock file " + path);
    if (!S_ISREG(held.st_mode)) {
      return absl::FailedPreconditionError("lock file " + path +
                                           " is not a regular file; remove it");
    }
    struct flock lock = WholeFile(F_WRLCK);
    if (fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
      if (errno != EAGAIN && errno != EACCES) return ErrnoStatus(errno, "lock " + path);
      const std::optional<pid_t> holder = ReadPid(fd.get());
      return absl::AlreadyExistsError(
          path + " is held by " +
          (holder ? "process " + std::to_string(*holder) : std::string("another process")));
    }
    if (stat(path.c_str(), &named) != 0 || named.st_dev != held.st_dev ||
        named.st_ino != held.st_ino) {
      continue;
    }
    const std::string text = std::to_string(getpid()) + "\n";
    if (ftruncate(fd.get(), 0) != 0 ||
        pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
      return ErrnoStatus(errno, "write lock file " + path);
    }
    return LockFile(std::move(fd), path);
  }
  return absl::AbortedError("lock file " + path + " is removed again and again");
}

std::optional<pid_t> LockFile::Holder(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return std::nullopt;
  struct flock lock = WholeFile(F_WRLCK);
  if (fcntl(fd.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return ReadPid(fd.get()).value_or(0);
}

}  // namespace headroom::sys
