#include "server/sys/filesystem.h"

#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "server/sys/file.h"
#include "server/sys/text.h"

namespace headroom::sys {
namespace {

int64_t Bytes(uint64_t blocks, int64_t block_bytes) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const auto count = static_cast<int64_t>(std::min(blocks, static_cast<uint64_t>(kMost)));
  return CheckedMultiply(count, block_bytes).value_or(kMost);
}

}  // namespace

absl::StatusOr<FilesystemSpace> ReadFilesystemSpace(const std::string& path) {
  struct statfs fs = {};
  int result = 0;
  do {
    result = statfs(path.c_str(), &fs);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return ErrnoStatus(errno, "free space of " + path);
  FilesystemSpace space;
  space.total_bytes = Bytes(fs.f_blocks, fs.f_bsize);
  space.available_bytes = Bytes(fs.f_bavail, fs.f_bsize);
  space.in_memory = fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
  return space;
}

}  // namespace headroom::sys
