#include "server/sys/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace headroom::sys {

absl::StatusOr<UniqueFd> EnsureFolderAt(int parent, const std::string& name, uid_t uid, mode_t mode,
                                        const std::string& path) {
  const bool made = mkdirat(parent, name.c_str(), mode) == 0;
  if (!made && errno != EEXIST) return ErrnoStatus(errno, "make folder " + path);
  const UniqueFd probe(openat(parent, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat st = {};
  if (!probe || fstat(probe.get(), &st) != 0) return ErrnoStatus(errno, "open folder " + path);
  if (!S_ISDIR(st.st_mode)) {
    return absl::FailedPreconditionError(path +
                                         " is not a folder (a symlink isn't followed); remove it");
  }
  // Made by root for somebody else.
  if (made && st.st_uid != uid && st.st_uid == geteuid()) {
    if (fchownat(probe.get(), "", uid, static_cast<gid_t>(-1), AT_EMPTY_PATH) != 0) {
      return ErrnoStatus(errno, "give folder " + path + " to user " + std::to_string(uid));
    }
    st.st_uid = uid;
  }
  if (st.st_uid != uid) {
    return absl::FailedPreconditionError(path + " belongs to user " + std::to_string(st.st_uid) +
                                         ", not to " + std::to_string(uid) + "; remove it");
  }
  // The umask may have taken bits away that we want; an existing one may have too many.
  const mode_t present = st.st_mode & 07777;
  const mode_t wanted = made ? mode : present & mode;
  if (present != wanted) {
    if (absl::Status status = ChangeMode(probe.get(), wanted, path); !status.ok()) return status;
  }
  absl::StatusOr<UniqueFd> folder = OpenAt(probe.get(), ".", O_RDONLY | O_DIRECTORY);
  if (!folder.ok()) {
    return absl::Status(folder.status().code(),
                        path + ": " + std::string(folder.status().message()));
  }
  return folder;
}

absl::StatusOr<UniqueFd> EnsureFolder(const std::string& path, uid_t uid, mode_t mode) {
  const size_t end = path.find_last_not_of('/');
  if (end == std::string::npos) {
    return absl::InvalidArgumentError("\"" + path + "\" can't be a folder of ours");
  }
  const std::string trimmed = path.substr(0, end + 1);
  const size_t slash = trimmed.rfind('/');
  const std::string parent_path = slash == std::string::npos ? "."
                                  : slash == 0               ? "/"
                                                             : trimmed.substr(0, slash);
  const std::string name = slash == std::string::npos ? trimmed : trimmed.substr(slash + 1);
  absl::StatusOr<UniqueFd> parent = OpenAt(AT_FDCWD, parent_path, O_PATH | O_DIRECTORY);
  if (!parent.ok()) return parent.status();
  return EnsureFolderAt(parent->get(), name, uid, mode, trimmed);
}

}  // namespace headroom::sys
