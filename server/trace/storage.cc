#include "server/trace/storage.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "server/trace/posix.h"

namespace headroom::trace {
namespace {

// The claim. Beside the segments, so that it moves with them.
constexpr const char* kLockName = "lock";

class PosixFile : public Storage::File {
 public:
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  absl::Status Append(std::string_view data) override {
    while (!data.empty()) {
      const ssize_t n = write(fd_.get(), data.data(), data.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0)
        return absl::UnavailableError(absl::StrCat("cannot write ", path_, ": ", ErrnoText(errno)));
      data.remove_prefix(static_cast<size_t>(n));
    }
    return absl::OkStatus();
  }

 private:
  Fd fd_;
  std::string path_;
};

// Made with its parents; what is new belongs to this user alone.
absl::Status MakeFolder(const std::filesystem::path& dir) {
  std::filesystem::path sofar;
  for (const auto& part : dir) {
    sofar /= part;
    if (mkdir(sofar.c_str(), 0700) == 0 || errno == EEXIST) continue;
    const int error = errno;
    // A parent that exists may answer EROFS or EACCES instead of EEXIST.
    struct stat there {};
    if (stat(sofar.c_str(), &there) == 0 && S_ISDIR(there.st_mode)) continue;
    return absl::UnavailableError(
        absl::StrCat("cannot make the folder ", sofar.string(), ": ", ErrnoText(error)));
  }
  return absl::OkStatus();
}

class PosixStorage : public Storage {
 public:
  absl::Status Claim(const std::string& dir) override {
    if (const absl::Status made = MakeFolder(dir); !made.ok()) return made;
    const std::string path = absl::StrCat(dir, "/", kLockName);
    // A folder that was removed and made again has another lock file: compare, not remember.
    struct stat named {};
    struct stat held {};
    if (lock_ && stat(path.c_str(), &named) == 0 && fstat(lock_->get(), &held) == 0 &&
        named.st_dev == held.st_dev && named.st_ino == held.st_ino)
      return absl::OkStatus();
    lock_.reset();
    auto lock =
        std::make_unique<Fd>(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (lock->get() < 0)
      return absl::UnavailableError(absl::StrCat("cannot open ", path, ": ", ErrnoText(errno)));
    if (flock(lock->get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK)
        return absl::FailedPreconditionError(
            absl::StrCat("the folder ", dir, " is another daemon's: give this one its own"));
      return absl::UnavailableError(absl::StrCat("cannot lock ", path, ": ", ErrnoText(errno)));
    }
    lock_ = std::move(lock);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Entry>> List(const std::string& dir) override {
    std::vector<Entry> entries;
    std::error_code error;
    for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end;
         it.increment(error)) {
      struct stat file {};
      // Gone between the two: not there any more.
      if (lstat(it->path().c_str(), &file) != 0 || !S_ISREG(file.st_mode)) continue;
      entries.push_back({it->path().filename().string(), static_cast<uint64_t>(file.st_size)});
    }
    if (error)
      return absl::UnavailableError(absl::StrCat("cannot list ", dir, ": ", error.message()));
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    return entries;
  }

  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path) override {
    // O_EXCL does not follow links either.
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
      return absl::UnavailableError(absl::StrCat("cannot make ", path, ": ", ErrnoText(errno)));
    return std::make_unique<PosixFile>(fd, path);
  }

  absl::Status Remove(const std::string& path) override {
    if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("cannot remove ", path, ": ", ErrnoText(errno)));
  }

 private:
  std::unique_ptr<Fd> lock_;
};

}  // namespace

std::unique_ptr<Storage> MakePosixStorage() {
  return std::make_unique<PosixStorage>();
}

}  // namespace headroom::trace
