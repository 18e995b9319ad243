#include "server/sys/oom_score.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

#include "server/sys/file.h"
#include "server/sys/text.h"

namespace headroom::sys {

absl::Status RaiseOomScoreAdj(const Roots& roots, const ProcessId& id, int value) {
  const std::string folder_path = roots.proc + "/" + std::to_string(id.pid);
  absl::StatusOr<UniqueFd> folder = OpenAt(AT_FDCWD, folder_path, O_RDONLY | O_DIRECTORY);
  if (!folder.ok()) return folder.status();
  const absl::StatusOr<std::string> stat_text = ReadFileAt(folder->get(), "stat");
  if (!stat_text.ok()) return stat_text.status();
  const std::optional<ProcStat> stat = ParseProcStat(*stat_text);
  if (!stat || stat->id() != id) return absl::NotFoundError(folder_path + " has ended");
  const absl::StatusOr<std::string> present_text = ReadFileAt(folder->get(), "oom_score_adj");
  if (!present_text.ok()) return present_text.status();
  const std::optional<int> present = ParseTrimmed<int>(*present_text);
  const int wanted = std::min(value, kOomScoreAdjMax);
  if (!present) return absl::DataLossError(folder_path + "/oom_score_adj holds no number");
  if (*present >= wanted) return absl::OkStatus();
  absl::StatusOr<UniqueFd> file = OpenAt(folder->get(), "oom_score_adj", O_WRONLY);
  if (!file.ok()) return file.status();
  const std::string text = std::to_string(wanted);
  if (write(file->get(), text.data(), text.size()) < 0) {
    return ErrnoStatus(errno, "write " + folder_path + "/oom_score_adj");
  }
  return absl::OkStatus();
}

}  // namespace headroom::sys
