#include "server/daemon/temp_space.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/sys/file.h"
#include "server/sys/filesystem.h"
#include "server/sys/process.h"

namespace headroom::daemon {
namespace {

constexpr std::array<std::string_view, 12> kLocal = {"ext2",    "ext3",  "ext4",  "xfs",
                                                     "btrfs",   "f2fs",  "zfs",   "jfs",
                                                     "overlay", "tmpfs", "ramfs", "bcachefs"};

bool IsBelow(const std::string& path, const std::string& folder) {
  if (folder == "/") return true;
  return path.compare(0, folder.size(), folder) == 0 &&
         (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

std::optional<std::string> LocalMountOf(const std::string& path,
                                        const std::vector<sys::Mount>& mounts) {
  if (path.empty() || path[0] != '/') return std::nullopt;
  const std::string plain = std::filesystem::path(path).lexically_normal().string();
  const sys::Mount* best = nullptr;
  // A later mount at the same place covers an earlier one.
  for (const sys::Mount& mount : mounts)
    if (IsBelow(plain, mount.mount_point) &&
        (best == nullptr || mount.mount_point.size() >= best->mount_point.size()))
      best = &mount;
  if (best == nullptr || std::find(kLocal.begin(), kLocal.end(), best->type) == kLocal.end())
    return std::nullopt;
  // Nor may the way to it lead over another kind.
  for (const sys::Mount& mount : mounts) {
    if (&mount != best && IsBelow(best->mount_point, mount.mount_point) &&
        std::find(kLocal.begin(), kLocal.end(), mount.type) == kLocal.end())
      return std::nullopt;
  }
  return best->mount_point;
}

void TempSpace::Hold(policy::LaneId lane, pid_t pid) {
  mounts_.erase(lane);
  if (pid == 0) return;
  std::error_code error;
  const auto own = std::filesystem::read_symlink(roots_.proc + "/self/ns/mnt", error);
  const auto theirs =
      std::filesystem::read_symlink(absl::StrCat(roots_.proc, "/", pid, "/ns/mnt"), error);
  if (error || own != theirs) return;
  const auto text = sys::ReadFile(roots_.proc + "/self/mountinfo");
  if (!text.ok()) return;
  const std::string folder =
      sys::ReadEnvironVariable(roots_, pid, "TMPDIR").value_or(std::string());
  if (const auto mount = LocalMountOf(folder.empty() ? "/tmp" : folder, sys::ParseMountInfo(*text)))
    mounts_[lane] = *mount;
}

std::vector<policy::TempSample> TempSpace::Read() const {
  std::vector<policy::TempSample> samples;
  for (const auto& [lane, mount] : mounts_) {
    const auto space = sys::ReadFilesystemSpace(roots_.prefix + mount);
    if (space.ok()) samples.push_back({lane, policy::Bytes{space->available_bytes}});
  }
  return samples;
}

}  // namespace headroom::daemon
