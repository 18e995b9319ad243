// Free space of a file system (statfs(2)), and whether it takes memory.
#ifndef HEADROOM_SERVER_SYS_FILESYSTEM_H_
#define HEADROOM_SERVER_SYS_FILESYSTEM_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace headroom::sys {

struct FilesystemSpace {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;  // for a user who isn't root
  bool in_memory = false;       // tmpfs or ramfs: what is written there is Shmem
};
absl::StatusOr<FilesystemSpace> ReadFilesystemSpace(const std::string& path);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_FILESYSTEM_H_
