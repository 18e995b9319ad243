#include "server/sys/anon_reader.h"

#include <fcntl.h>

#include <string>
#include <utility>

namespace headroom::sys {

std::optional<AnonReader> AnonReader::Open(const Roots& roots, const ProcessId& id) {
  // Both files through one folder: they are of one process, whatever becomes of the pid.
  absl::StatusOr<UniqueFd> folder =
      OpenAt(AT_FDCWD, roots.proc + "/" + std::to_string(id.pid), O_RDONLY | O_DIRECTORY);
  if (!folder.ok()) return std::nullopt;
  std::optional<KeptFile> statm = KeptFile::OpenOptionalAt(folder->get(), "statm");
  std::optional<KeptFile> stat = KeptFile::OpenOptionalAt(folder->get(), "stat");
  if (!statm || !stat) return std::nullopt;
  AnonReader reader;
  reader.id_ = id;
  reader.statm_ = std::move(*statm);
  reader.stat_ = std::move(*stat);
  char buffer[2048];
  const auto text = reader.stat_.Read(buffer);
  if (!text) return std::nullopt;
  const std::optional<ProcStat> parsed = ParseProcStat(*text);
  if (!parsed || parsed->id() != id) return std::nullopt;
  return reader;
}

std::optional<int64_t> AnonReader::ReadAnonBytes() const {
  char buffer[256];
  const auto text = statm_.Read(buffer);
  if (!text) return std::nullopt;
  const std::optional<ProcStatm> statm = ParseStatm(*text);
  if (!statm) return std::nullopt;
  return statm->anon_pages() * PageBytes();
}

std::optional<AnonReader::Sample> AnonReader::Read() const {
  char buffer[2048];
  const auto statm_text = statm_.Read(buffer);
  if (!statm_text) return std::nullopt;
  const std::optional<ProcStatm> statm = ParseStatm(*statm_text);
  const auto stat_text = stat_.Read(buffer);
  if (!statm || !stat_text) return std::nullopt;
  const std::optional<ProcStat> stat = ParseProcStat(*stat_text);
  if (!stat || stat->dead()) return std::nullopt;
  return Sample{statm->anon_pages() * PageBytes(), statm->resident_pages * PageBytes(),
                stat->cpu_ticks(), stat->state};
}

}  // namespace headroom::sys
