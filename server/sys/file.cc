#include "server/sys/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace headroom::sys {

void UniqueFd::Reset(int fd) {
  // close(2) is not repeated on EINTR: on Linux the descriptor is gone by then.
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

absl::Status ErrnoStatus(int error, std::string_view what) {
  std::string message(what);
  // Not strerror(): that shares one buffer between threads.
  message += ": " + std::generic_category().message(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
    case ENODEV:
      return absl::NotFoundError(message);
    case EPERM:
    case EACCES:
      return absl::PermissionDeniedError(message);
    case ENOSYS:
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case EAFNOSUPPORT:
      return absl::UnimplementedError(message);
    default:
      return absl::Status(absl::ErrnoToStatusCode(error), message);
  }
}

absl::StatusOr<UniqueFd> OpenAt(int directory, const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = openat(directory, path.c_str(), flags | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoStatus(errno, "open " + path);
  return UniqueFd(fd);
}

absl::StatusOr<FileId> IdOf(int fd) {
  struct stat st = {};
  if (fstat(fd, &st) != 0) return ErrnoStatus(errno, "fstat");
  return FileId{st.st_dev, st.st_ino};
}

absl::Status ChangeMode(int fd, mode_t mode, const std::string& path) {
  // The link leads to the very file that is open, whatever its name leads to.
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (chmod(link.c_str(), mode) != 0) return ErrnoStatus(errno, "set the permissions of " + path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFileAt(int directory, const std::string& path, size_t limit) {
  // O_NONBLOCK: a fifo that somebody put there must not hang us.
  absl::StatusOr<UniqueFd> fd = OpenAt(directory, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd.ok()) return fd.status();
  std::string text;
  while (text.size() < limit) {
    const size_t before = text.size();
    const size_t want = std::min<size_t>(limit - before, before == 0 ? 4096 : before);
    text.resize(before + want);
    ssize_t got = 0;
    do {
      got = read(fd->get(), text.data() + before, want);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return ErrnoStatus(errno, "read " + path);
    text.resize(before + static_cast<size_t>(got));
    if (got == 0) break;
  }
  return text;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit) {
  return ReadFileAt(AT_FDCWD, path, limit);
}

absl::Status WriteFile(const std::string& path, std::string_view text) {
  absl::StatusOr<UniqueFd> fd = OpenAt(AT_FDCWD, path, O_WRONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd.ok()) return fd.status();
  ssize_t written = 0;
  do {
    written = write(fd->get(), text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return ErrnoStatus(errno, "write " + path);
  if (static_cast<size_t>(written) != text.size()) {
    return absl::DataLossError("write " + path + ": only part of the text was taken");
  }
  return absl::OkStatus();
}

absl::StatusOr<KeptFile> KeptFile::Open(const std::string& path) {
  absl::StatusOr<UniqueFd> fd = OpenAt(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd.ok()) return fd.status();
  return KeptFile(std::move(*fd));
}

std::optional<KeptFile> KeptFile::OpenOptionalAt(int directory, const std::string& path) {
  absl::StatusOr<UniqueFd> fd = OpenAt(directory, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd.ok()) return std::nullopt;
  return KeptFile(std::move(*fd));
}

std::optional<std::string_view> KeptFile::ReadInto(char* buffer, size_t size) const {
  if (!fd_) return std::nullopt;
  size_t filled = 0;
  // A seq_file gives at most a page a read where its text has many records: read on to the end.
  while (filled < size) {
    const ssize_t got =
        pread(fd_.get(), buffer + filled, size - filled, static_cast<off_t>(filled));
    if (got < 0) {
      if (errno == EINTR) continue;
      return std::nullopt;
    }
    filled += static_cast<size_t>(got);
    // The text ended: short of the page that a longer one would have filled but for its next
    // record. Spares the second call in the fast tier.
    constexpr size_t kPageLessRecord = 3072;
    if (got == 0 || (filled < kPageLessRecord && filled > 0 && buffer[filled - 1] == '\n')) break;
  }
  return std::string_view(buffer, filled);
}

}  // namespace headroom::sys
