#include "server/daemon/lanes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/sys/folder.h"

namespace headroom::daemon {
namespace {

// More tokens than this nobody needs; what a damaged `minted` file says beyond is not believed.
constexpr int64_t kMostTokens = 65536;
// An AttachRequest holds a command line; the control socket takes at most 1 MiB.
constexpr size_t kMostAttachBytes = size_t{1} << 20;

bool System() {
  return geteuid() == 0;
}

std::vector<std::string> NamesIn(int folder) {
  std::vector<std::string> names;
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(fdopendir(copy), closedir);
  if (dir == nullptr) {
    close(copy);
    return names;
  }
  while (const dirent* entry = readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool AllDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

absl::Status WriteAll(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return sys::ErrnoStatus(errno, absl::StrCat("cannot write ", path));
    data.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<policy::LaneKind> LaneKindOf(std::string_view name) {
  if (name == "shared") return policy::LaneKind::kShared;
  constexpr std::string_view kRun = "run-";
  if (!name.starts_with(kRun)) return std::nullopt;
  name.remove_prefix(kRun.size());
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  if (!AllDigits(name.substr(0, dash)) || !AllDigits(name.substr(dash + 1))) return std::nullopt;
  return policy::LaneKind::kOwn;
}

// --- LaneFolder ---------------------------------------------------------------------------------

int LaneFolder::ReadMinted() const {
  const int idle = static_cast<int>(fifo_.Idle().value_or(0));
  std::array<unsigned char, 9> bytes{};
  const ssize_t n = pread(minted_.get(), bytes.data(), bytes.size(), 0);
  if (n != 8) return idle;
  uint64_t count = 0;
  for (size_t i = 8; i-- > 0;) count = count << 8 | bytes[i];
  if (count > static_cast<uint64_t>(kMostTokens)) return idle;
  return static_cast<int>(count);
}

absl::Status LaneFolder::WriteMinted(int count) {
  std::array<unsigned char, 8> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(static_cast<uint64_t>(count) >> (8 * i));
  }
  if (pwrite(minted_.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size())) {
    return absl::OkStatus();
  }
  return sys::ErrnoStatus(errno, absl::StrCat("cannot write ", dir_, "/minted"));
}

absl::Status LaneFolder::WriteAttach(const v1::AttachRequest& request) {
  attach_ = request;
  // By rename, so that a restarted daemon never reads half of it.
  const std::string path = dir_ + "/attach";
  const sys::UniqueFd file(openat(folder_.get(), "attach.new",
                                  O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return sys::ErrnoStatus(errno, absl::StrCat("cannot make ", path));
  if (const absl::Status written = WriteAll(file.get(), request.SerializeAsString(), path);
      !written.ok()) {
    return written;
  }
  if (renameat(folder_.get(), "attach.new", folder_.get(), "attach") != 0) {
    return sys::ErrnoStatus(errno, absl::StrCat("cannot make ", path));
  }
  return absl::OkStatus();
}

// --- LaneFolders --------------------------------------------------------------------------------

absl::StatusOr<LaneFolders> LaneFolders::Open(const std::string& runtime_dir) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(runtime_dir, error).lexically_normal();
  if (error) return absl::InvalidArgumentError(absl::StrCat(runtime_dir, ": ", error.message()));
  sys::UniqueFd folder(open(absolute.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return sys::ErrnoStatus(errno, absl::StrCat("cannot open ", absolute));
  return LaneFolders(absolute, std::move(folder));
}

absl::StatusOr<sys::UniqueFd> LaneFolders::UserFolder(uid_t uid) {
  const std::string name = std::to_string(uid);
  return sys::EnsureFolderAt(folder_.get(), name, geteuid(), System() ? 0755 : 0700,
                             absl::StrCat(runtime_dir_, "/", name));
}

absl::StatusOr<LaneFolder> LaneFolders::OpenLane(uid_t uid, const std::string& name, bool create) {
  const std::optional<policy::LaneKind> kind = LaneKindOf(name);
  if (!kind) return absl::InvalidArgumentError(absl::StrCat(name, " is no lane's name"));
  absl::StatusOr<sys::UniqueFd> user = UserFolder(uid);
  if (!user.ok()) return user.status();
  const std::string dir = absl::StrCat(runtime_dir_, "/", uid, "/", name);
  absl::StatusOr<sys::UniqueFd> folder =
      create ? sys::EnsureFolderAt(user->get(), name, geteuid(), System() ? 0755 : 0700, dir)
             : sys::OpenAt(user->get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!folder.ok()) return folder.status();
  const std::string fifo_path = dir + "/fifo";
  if (create) {
    // Under another name until it has its owner: nobody finds a fifo that he can't open.
    if (faccessat(folder->get(), "fifo", F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
      unlinkat(folder->get(), "fifo.new", 0);
      if (mkfifoat(folder->get(), "fifo.new", 0600) != 0 ||
          fchownat(folder->get(), "fifo.new", uid, static_cast<gid_t>(-1), AT_SYMLINK_NOFOLLOW) !=
              0 ||
          fchmodat(folder->get(), "fifo.new", 0600, 0) != 0 ||
          renameat(folder->get(), "fifo.new", folder->get(), "fifo") != 0) {
        return sys::ErrnoStatus(errno, absl::StrCat("cannot make ", fifo_path));
      }
    }
    if (mkdirat(folder->get(), "slots", 0700) == 0) {
      if (fchownat(folder->get(), "slots", uid, static_cast<gid_t>(-1), AT_SYMLINK_NOFOLLOW) != 0) {
        return sys::ErrnoStatus(errno, absl::StrCat("cannot make ", dir, "/slots"));
      }
    } else if (errno != EEXIST) {
      return sys::ErrnoStatus(errno, absl::StrCat("cannot make ", dir, "/slots"));
    }
  }
  struct stat info {};
  if (fstatat(folder->get(), "fifo", &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return sys::ErrnoStatus(errno, fifo_path);
  }
  if (!S_ISFIFO(info.st_mode) || info.st_uid != uid) {
    return absl::FailedPreconditionError(
        absl::StrCat(fifo_path, " is not a fifo of user ", uid, "; remove ", dir,
                     " while no build uses it, and it is made anew"));
  }
  absl::StatusOr<sys::Fifo> fifo = sys::Fifo::Open(fifo_path);
  if (!fifo.ok()) return fifo.status();
  // A page holds 4,096 tokens, which a user above the pipe limits gets; more is not needed.
  if (const absl::StatusOr<int64_t> room = fifo->Reserve(4096); !room.ok()) return room.status();

  LaneFolder lane(uid, *kind, name, dir, *std::move(folder), *std::move(fifo));
  lane.minted_.Reset(openat(lane.folder_.get(), "minted",
                            O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat minted {};
  if (!lane.minted_ || fstat(lane.minted_.get(), &minted) != 0) {
    return sys::ErrnoStatus(errno, absl::StrCat("cannot open ", dir, "/minted"));
  }
  if (!S_ISREG(minted.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(dir, "/minted is not a file; remove it"));
  }
  if (*kind == policy::LaneKind::kOwn) {
    absl::StatusOr<std::string> text =
        sys::ReadFileAt(lane.folder_.get(), "attach", kMostAttachBytes);
    v1::AttachRequest request;
    if (text.ok() && request.ParseFromString(*text)) lane.attach_ = std::move(request);
  }
  return lane;
}

absl::StatusOr<LaneFolder> LaneFolders::OpenShared(uid_t uid) {
  return OpenLane(uid, "shared", true);
}

absl::StatusOr<LaneFolder> LaneFolders::CreateOwn(uid_t uid, pid_t pid,
                                                  const v1::AttachRequest& request) {
  absl::StatusOr<sys::UniqueFd> user = UserFolder(uid);
  if (!user.ok()) return user.status();
  const std::vector<std::string> taken = NamesIn(user->get());
  std::string name;
  for (int n = 1;; ++n) {
    name = absl::StrCat("run-", pid, "-", n);
    if (!std::binary_search(taken.begin(), taken.end(), name)) break;
  }
  absl::StatusOr<LaneFolder> lane = OpenLane(uid, name, true);
  if (!lane.ok()) return lane.status();
  if (const absl::Status written = lane->WriteAttach(request); !written.ok()) {
    Remove(*lane).IgnoreError();
    return written;
  }
  if (const absl::Status written = lane->WriteMinted(0); !written.ok()) {
    Remove(*lane).IgnoreError();
    return written;
  }
  return lane;
}

std::vector<LaneFolder> LaneFolders::FindLeft(std::vector<std::string>* problems) {
  std::vector<LaneFolder> lanes;
  for (const std::string& user : NamesIn(folder_.get())) {
    uid_t uid = 0;
    const auto [end, error] = std::from_chars(user.data(), user.data() + user.size(), uid);
    if (!AllDigits(user) || error != std::errc() || end != user.data() + user.size()) continue;
    const absl::StatusOr<sys::UniqueFd> folder =
        sys::OpenAt(folder_.get(), user, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!folder.ok()) {
      problems->push_back(std::string(folder.status().message()));
      continue;
    }
    for (const std::string& name : NamesIn(folder->get())) {
      if (!LaneKindOf(name)) continue;
      absl::StatusOr<LaneFolder> lane = OpenLane(uid, name, false);
      if (lane.ok()) {
        lanes.push_back(*std::move(lane));
      } else {
        problems->push_back(std::string(lane.status().message()));
      }
    }
  }
  return lanes;
}

absl::Status LaneFolders::Remove(const LaneFolder& lane) {
  if (lane.kind() != policy::LaneKind::kOwn) {
    return absl::InvalidArgumentError(absl::StrCat(lane.dir(), " is a shared lane: it stays"));
  }
  const int folder = lane.folder_.get();
  // The lane's user may have put anything into slots; it is unlinked by name, never followed.
  const sys::UniqueFd slots(
      openat(folder, "slots", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (slots) {
    for (const std::string& name : NamesIn(slots.get())) unlinkat(slots.get(), name.c_str(), 0);
  }
  unlinkat(folder, "slots", AT_REMOVEDIR);
  for (const char* name : {"fifo", "fifo.new", "minted", "attach", "attach.new", "gate.sock"}) {
    if (unlinkat(folder, name, 0) != 0 && errno != ENOENT) {
      return sys::ErrnoStatus(errno, absl::StrCat("cannot remove ", lane.dir(), "/", name));
    }
  }
  absl::StatusOr<sys::UniqueFd> user = UserFolder(lane.uid());
  if (!user.ok()) return user.status();
  if (unlinkat(user->get(), lane.name().c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return sys::ErrnoStatus(errno, absl::StrCat("cannot remove ", lane.dir()));
  }
  return absl::OkStatus();
}

}  // namespace headroom::daemon
