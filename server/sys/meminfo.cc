#include "server/sys/meminfo.h"

#include <algorithm>
#include <utility>

#include "server/sys/text.h"

namespace headroom::sys {
namespace {

// "  24683584 kB"
std::optional<int64_t> ParseKiB(std::string_view text) {
  const std::optional<int64_t> kib = ParseNumber<int64_t>(NextField(text));
  if (!kib) return std::nullopt;
  return CheckedMultiply(*kib, 1024);
}

}  // namespace

std::optional<MemInfo> ParseMemInfo(std::string_view text) {
  std::optional<int64_t> total, free, available, buffers, cached, shmem, slab, swap_total,
      swap_free;
  const std::pair<std::string_view, std::optional<int64_t>*> fields[] = {
      {"MemTotal", &total},    {"MemFree", &free},         {"MemAvailable", &available},
      {"Buffers", &buffers},   {"Cached", &cached},        {"Shmem", &shmem},
      {"SReclaimable", &slab}, {"SwapTotal", &swap_total}, {"SwapFree", &swap_free},
  };
  while (const auto line = NextLine(text)) {
    const size_t colon = line->find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = line->substr(0, colon);
    for (const auto& [field, value] : fields) {
      if (name == field && !*value) *value = ParseKiB(line->substr(colon + 1));
    }
  }
  if (!total || !free || *total <= 0 || *free > *total) return std::nullopt;

  MemInfo info;
  info.total_bytes = *total;
  info.free_bytes = *free;
  info.buffers_bytes = buffers.value_or(0);
  info.cached_bytes = cached.value_or(0);
  info.shmem_bytes = shmem.value_or(0);
  info.slab_reclaimable_bytes = slab.value_or(0);
  info.swap_total_bytes = swap_total.value_or(0);
  info.swap_free_bytes = swap_free.value_or(0);
  if (available) {
    info.available_bytes = std::min(*available, *total);
  } else {
    // Cached includes Shmem, which can't be dropped.
    const int64_t droppable = std::max<int64_t>(
        0, SaturatingAdd(info.buffers_bytes, info.cached_bytes) - info.shmem_bytes);
    info.available_bytes = std::min(
        *total, SaturatingAdd(*free, SaturatingAdd(droppable, info.slab_reclaimable_bytes / 2)));
    info.available_is_estimate = true;
  }
  return info;
}

absl::StatusOr<MemInfo> ReadMemInfo(const Roots& roots) {
  absl::StatusOr<MemInfoReader> reader = MemInfoReader::Open(roots);
  if (!reader.ok()) return reader.status();
  return reader->Read();
}

absl::StatusOr<MemInfoReader> MemInfoReader::Open(const Roots& roots) {
  absl::StatusOr<KeptFile> file = KeptFile::Open(roots.proc + "/meminfo");
  if (!file.ok()) return file.status();
  return MemInfoReader(std::move(*file));
}

absl::StatusOr<MemInfo> MemInfoReader::Read() const {
  char buffer[8192];
  const std::optional<std::string_view> text = file_.Read(buffer);
  if (!text) return absl::UnavailableError("meminfo can't be read; is /proc still mounted?");
  const std::optional<MemInfo> info = ParseMemInfo(*text);
  if (!info) return absl::DataLossError("meminfo has no sensible MemTotal and MemFree");
  return *info;
}

}  // namespace headroom::sys
