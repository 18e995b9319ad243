// /proc/meminfo: the host's memory (proc_meminfo(5)).
#ifndef HEADROOM_SERVER_SYS_MEMINFO_H_
#define HEADROOM_SERVER_SYS_MEMINFO_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/sys/file.h"
#include "server/sys/roots.h"

namespace headroom::sys {

struct MemInfo {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  // MemAvailable. Shmem (tmpfs too) is not part of it: those pages can't be dropped.
  int64_t available_bytes = 0;
  // True where the kernel (before 3.14, and WSL 1) has no MemAvailable: then it is free memory, the
  // page cache less Shmem, and half of the reclaimable slab. That errs by the low watermarks, some
  // 1 %.
  bool available_is_estimate = false;
  int64_t buffers_bytes = 0;
  int64_t cached_bytes = 0;
  int64_t shmem_bytes = 0;
  int64_t slab_reclaimable_bytes = 0;
  int64_t swap_total_bytes = 0;
  int64_t swap_free_bytes = 0;
};

// nullopt: MemTotal or MemFree is missing, or a number makes no sense.
std::optional<MemInfo> ParseMemInfo(std::string_view text);
absl::StatusOr<MemInfo> ReadMemInfo(const Roots& roots);

// The same with the file kept open, for the fast tier. One thread at a time.
class MemInfoReader {
 public:
  static absl::StatusOr<MemInfoReader> Open(const Roots& roots);
  absl::StatusOr<MemInfo> Read() const;

 private:
  explicit MemInfoReader(KeptFile file) : file_(std::move(file)) {}
  KeptFile file_;
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_MEMINFO_H_
