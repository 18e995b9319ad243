#include "client/cli/history_command.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <vector>

#include "client/cli/args.h"
#include "client/cli/say.h"
#include "server/history/history.h"
#include "server/history/place.h"
#include "server/history/text.h"
#include "server/sys/file.h"

namespace headroom::cli {
namespace {

using history::History;
using history::Row;

// A history of its most classes has some 40 MB as text.
constexpr size_t kMostText = size_t{256} << 20;

int SayFailed(const absl::Status& status) {
  Say(status);
  return kFailure;
}

std::string Printable(const std::string& text) {
  std::string out = text;
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  sys::UniqueFd file;
  int fd = STDIN_FILENO;
  if (path != "-") {
    file = sys::UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    fd = file.get();
  }
  std::string text;
  std::array<char, 65536> piece;
  while (true) {
    const ssize_t got = fd < 0 ? -1 : read(fd, piece.data(), piece.size());
    if (got < 0 && fd >= 0 && errno == EINTR) continue;
    if (got < 0)
      return absl::NotFoundError(absl::StrCat("can't read ", path, ": ", std::strerror(errno)));
    if (got == 0) return text;
    text.append(piece.data(), static_cast<size_t>(got));
    if (text.size() > kMostText)
      return absl::InvalidArgumentError(absl::StrCat(path, " is too large to be a history"));
  }
}

// It names sources: 0600, and nothing that is there already is written over.
absl::Status WriteText(const std::string& path, const std::string& text) {
  const sys::UniqueFd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600));
  const char* at = text.data();
  size_t left = text.size();
  bool good = static_cast<bool>(file);
  while (good && left > 0) {
    const ssize_t put = write(file.get(), at, left);
    if (put < 0 && errno == EINTR) continue;
    good = put >= 0;
    if (!good) break;
    at += put;
    left -= static_cast<size_t>(put);
  }
  if (good) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("can't write ", path, ": ", std::strerror(errno)));
}

std::string Date(int64_t when) {
  const time_t at = static_cast<time_t>(when);
  tm local{};
  std::array<char, 32> text{};
  if (localtime_r(&at, &local) == nullptr) return "";
  strftime(text.data(), text.size(), "%Y-%m-%d", &local);
  return text.data();
}

std::string Peak(const Row& row) {
  return absl::StrFormat("%.0f MB", history::TypicalPeak(row.stats) / 1e6);
}

std::string Table(const std::vector<Row>& rows) {
  std::string text = "    PEAK   CPU TIME  WEIGHT  BUILDS  LAST USED   CLASS\n";
  for (const Row& row : rows) {
    if (row.stats.count <= 0) continue;
    absl::StrAppend(
        &text, absl::StrFormat("%8s  %7.1f s  %6.0f  %6d  %-10s  %s\n", Peak(row),
                               history::TypicalCpuSeconds(row.stats), row.stats.count, row.builds,
                               Date(row.used_at), Printable(row.stats.name)));
  }
  return text;
}

std::string Details(const Row& row) {
  const auto& stats = row.stats;
  std::string text = absl::StrFormat(
      "%s\n  below             %s\n  weight            %.1f, of %d builds; last used %s\n"
      "  peak              %s typically, %.0f MB at most\n  CPU time          %.1f s\n",
      Printable(stats.name), row.above.empty() ? "-" : Printable(row.above), stats.count,
      row.builds, Date(row.used_at), Peak(row), static_cast<double>(stats.largest.count) / 1e6,
      history::TypicalCpuSeconds(stats));
  if (stats.shape_count > 0) {
    absl::StrAppend(&text, "  memory, % of peak");
    for (const double level : stats.level)
      absl::StrAppend(&text, absl::StrFormat(" %.0f", 100 * level / stats.shape_count));
    text += "  (at sixteenths of the CPU time)\n";
  }
  return text;
}

}  // namespace

int ShowHistory(const HistoryOptions& options) {
  using Action = HistoryOptions::Action;
  const auto path = history::HistoryPath(history::Surroundings::FromEnvironment());
  if (!path.ok()) return SayFailed(path.status());
  if (path->empty())
    return SayFailed(absl::FailedPreconditionError(
        "HEADROOM_HISTORY=off: there is no history; unset it to see the one that is kept else"));
  // Only an import makes a file where there is none.
  const bool reads = options.action != Action::kImport;
  auto file = History::Open({.path = *path, .read_only = reads});
  if (absl::IsNotFound(file.status())) {
    if (options.action == Action::kList && !options.json) {
      Say(absl::StrCat("nothing is known yet (", *path, " is not there)"));
      return kSuccess;
    }
    if (options.action == Action::kList) return Print(history::ToJson({})) ? kSuccess : kFailure;
    return SayFailed(file.status());
  }
  if (!file.ok()) return SayFailed(file.status());
  if (!(*file)->note().empty()) Say((*file)->note());
  const auto unknown = [&] {
    return SayFailed(absl::NotFoundError(
        absl::StrCat("history: no class '", options.name, "'; 'headroom history list' names all")));
  };
  switch (options.action) {
    case Action::kList:
    case Action::kExport: {
      const auto rows = (*file)->List();
      if (!rows.ok()) return SayFailed(rows.status());
      if (options.action == Action::kList)
        return Print(options.json ? history::ToJson(*rows) : Table(*rows)) ? kSuccess : kFailure;
      if (options.name == "-") return Print(history::ToJson(*rows)) ? kSuccess : kFailure;
      const absl::Status written = WriteText(options.name, history::ToJson(*rows));
      return written.ok() ? kSuccess : SayFailed(written);
    }
    case Action::kShow: {
      const auto rows = (*file)->List();
      if (!rows.ok()) return SayFailed(rows.status());
      for (const Row& row : *rows) {
        if (row.stats.name != options.name) continue;
        return Print(options.json ? history::ToJson({row}) : Details(row)) ? kSuccess : kFailure;
      }
      return unknown();
    }
    case Action::kImport: {
      const auto text = ReadText(options.name);
      if (!text.ok()) return SayFailed(text.status());
      const auto rows = history::FromJson(*text);
      if (!rows.ok())
        return SayFailed(absl::InvalidArgumentError(
            absl::StrCat(options.name, ": ", absl::string_view(rows.status().message()))));
      const auto added = (*file)->Add(*rows, std::time(nullptr));
      if (!added.ok()) return SayFailed(added.status());
      return Print(absl::StrCat(added->size(), " classes imported\n")) ? kSuccess : kFailure;
    }
    case Action::kForget: {
      const auto gone = options.all ? (*file)->ForgetAll() : (*file)->Forget(options.name);
      if (!gone.ok()) return SayFailed(gone.status());
      if (*gone == 0 && !options.all) return unknown();
      return Print(absl::StrCat(*gone, " classes forgotten\n")) ? kSuccess : kFailure;
    }
  }
  return kFailure;
}

}  // namespace headroom::cli
