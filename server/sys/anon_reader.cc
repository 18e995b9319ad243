#include "server/sys/anon_reader.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "server/sys/text.h"

namespace headroom::sys {
namespace {

// Whether pids in this /proc are the ones that system calls of ours take.
bool IsOurNamespace(const Roots& roots) {
  char target[32];
  const ssize_t size = readlink((roots.proc + "/self").c_str(), target, sizeof target);
  return size > 0 &&
         std::string_view(target, static_cast<size_t>(size)) == std::to_string(getpid());
}

}  // namespace

std::optional<AnonReader> AnonReader::Open(const Roots& roots, const ProcessId& id) {
  // All files through one folder: they are of one process, whatever becomes of the pid.
  absl::StatusOr<UniqueFd> folder =
      OpenAt(AT_FDCWD, roots.proc + "/" + std::to_string(id.pid), O_RDONLY | O_DIRECTORY);
  if (!folder.ok()) return std::nullopt;
  std::optional<KeptFile> statm = KeptFile::OpenOptionalAt(folder->get(), "statm");
  std::optional<KeptFile> stat = KeptFile::OpenOptionalAt(folder->get(), "stat");
  if (!statm || !stat) return std::nullopt;
  AnonReader reader;
  reader.id_ = id;
  reader.statm_ = *std::move(statm);
  clockid_t clock{};
  if (IsOurNamespace(roots) && clock_getcpuclockid(id.pid, &clock) == 0) reader.clock_ = clock;
  char buffer[2048];
  const auto text = stat->Read(buffer);
  if (!text) return std::nullopt;
  const std::optional<ProcStat> parsed = ParseProcStat(*text);
  if (!parsed || parsed->id() != id) return std::nullopt;
  if (!reader.clock_) reader.stat_ = *std::move(stat);
  return reader;
}

std::optional<AnonReader::Memory> AnonReader::ReadMemory() const {
  char buffer[256];
  const auto text = statm_.Read(buffer);
  if (!text) return std::nullopt;
  const std::optional<ProcStatm> statm = ParseStatm(*text);
  if (!statm || statm->size_pages == 0) return std::nullopt;
  return Memory{statm->anon_pages() * PageBytes(), statm->resident_pages * PageBytes()};
}

std::optional<AnonReader::Sample> AnonReader::Read() const {
  Sample sample;
  if (clock_) {
    timespec cpu{};
    if (clock_gettime(*clock_, &cpu) != 0) return std::nullopt;
    sample.cpu = std::chrono::seconds(cpu.tv_sec) + std::chrono::nanoseconds(cpu.tv_nsec);
  } else {
    char buffer[2048];
    const auto text = stat_.Read(buffer);
    const std::optional<ProcStat> stat = text ? ParseProcStat(*text) : std::nullopt;
    if (!stat || stat->dead()) return std::nullopt;
    constexpr int64_t kSecond = 1'000'000'000;
    sample.cpu = std::chrono::nanoseconds(
        CheckedMultiply(static_cast<int64_t>(stat->cpu_ticks()), kSecond / TicksPerSecond())
            .value_or(0));
  }
  // After the clock, which knows the pid alone: it was still this process's then.
  const std::optional<Memory> memory = ReadMemory();
  if (!memory) return std::nullopt;
  sample.memory = *memory;
  return sample;
}

}  // namespace headroom::sys
