// File descriptors with an owner, and reads of the kernel's small text files.
//
// Errors: absl::Status with the path and errno's text. A process, cgroup or file that does not
// exist (any more) is NotFound everywhere in sys: a normal result, never logged as an error.
#ifndef HEADROOM_SERVER_SYS_FILE_H_
#define HEADROOM_SERVER_SYS_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headroom::sys {

// Owns one file descriptor. Move-only.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// What a path or descriptor refers to, whatever its name.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(const FileId& a, const FileId& b) {
    return a.device == b.device && a.inode == b.inode;
  }
  friend bool operator<(const FileId& a, const FileId& b) {
    return a.device != b.device ? a.device < b.device : a.inode < b.inode;
  }
};

// A status of errno `error`: NotFound for ENOENT, ENOTDIR, ESRCH and ENODEV (a removed cgroup),
// PermissionDenied for EPERM and EACCES, Unimplemented for ENOSYS and EOPNOTSUPP, else what
// absl::ErrnoToStatus has.
absl::Status ErrnoStatus(int error, std::string_view what);

// The text of a file, at most `limit` bytes: what lies behind is cut off (a process may make its
// environ as long as it likes). `directory`: an open folder's descriptor that `path` starts from.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit = size_t{1} << 20);
absl::StatusOr<std::string> ReadFileAt(int directory, const std::string& path,
                                       size_t limit = size_t{1} << 20);

// Writes `text` in one write(2), as the kernel's control files want it.
absl::Status WriteFile(const std::string& path, std::string_view text);

absl::StatusOr<UniqueFd> OpenAt(int directory, const std::string& path, int flags);
absl::StatusOr<FileId> IdOf(int fd);
// Sets the permissions of what `fd` stands for, which may be opened with O_PATH (fchmod(2) refuses
// those). `path` is for messages.
absl::Status ChangeMode(int fd, mode_t mode, const std::string& path);

// One of the kernel's text files, kept open and read again from its start by pread(2). For /proc
// and cgroup files that is the present content each time, at a tenth of the cost of opening them.
class KeptFile {
 public:
  KeptFile() = default;
  explicit KeptFile(UniqueFd fd) : fd_(std::move(fd)) {}
  static absl::StatusOr<KeptFile> Open(const std::string& path);
  // nullopt where the file does not exist or may not be read: for files that some kernels lack.
  static std::optional<KeptFile> OpenOptionalAt(int directory, const std::string& path);

  bool is_open() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }

  // The file's text, in `buffer`; what doesn't fit is cut off. nullopt: gone, or not open.
  template <size_t kSize>
  std::optional<std::string_view> Read(char (&buffer)[kSize]) const {
    return ReadInto(buffer, kSize);
  }
  std::optional<std::string_view> ReadInto(char* buffer, size_t size) const;

 private:
  UniqueFd fd_;
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_FILE_H_
