#include "server/sys/process.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <utility>

#include "server/sys/file.h"
#include "server/sys/text.h"

namespace headroom::sys {
namespace {

std::string ProcPath(const Roots& roots, pid_t pid, const char* name) {
  return roots.proc + "/" + std::to_string(pid) + "/" + name;
}

std::optional<std::string> ReadLink(const std::string& path) {
  // The kernel gives at most PATH_MAX for these links.
  char target[4096];
  const ssize_t size = readlink(path.c_str(), target, sizeof target);
  if (size < 0) return std::nullopt;
  return std::string(target, static_cast<size_t>(size));
}

}  // namespace

std::optional<ProcStat> ParseProcStat(std::string_view text) {
  // The comm may hold anything, ") R 1 (" too; what follows it is numbers, so the last ')' ends it.
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return std::nullopt;
  }
  ProcStat stat;
  const std::optional<pid_t> pid = ParseTrimmed<pid_t>(text.substr(0, open));
  if (!pid || *pid <= 0) return std::nullopt;
  stat.pid = *pid;
  std::string_view rest = text.substr(close + 1);
  const std::string_view state = NextField(rest);
  if (state.size() != 1) return std::nullopt;
  stat.state = state[0];

  // Numbers are proc_pid_stat(5)'s field numbers.
  bool good = true;
  const auto number = [&]<typename T>(T& value) {
    const std::optional<T> parsed = ParseNumber<T>(NextField(rest));
    if (parsed) value = *parsed;
    good = good && parsed.has_value();
  };
  number(stat.ppid);     // 4
  number(stat.pgrp);     // 5
  number(stat.session);  // 6
  for (int field = 7; field < 14; ++field) NextField(rest);
  number(stat.user_ticks);    // 14
  number(stat.system_ticks);  // 15
  for (int field = 16; field < 20; ++field) NextField(rest);
  number(stat.threads);      // 20
  NextField(rest);           // 21
  number(stat.start_ticks);  // 22
  NextField(rest);           // 23
  number(stat.rss_pages);    // 24
  if (!good) return std::nullopt;
  stat.comm = std::string(text.substr(open + 1, close - open - 1));
  return stat;
}

std::optional<ProcStat> ReadProcStat(const Roots& roots, pid_t pid) {
  const absl::StatusOr<std::string> text = ReadFile(ProcPath(roots, pid, "stat"));
  if (!text.ok()) return std::nullopt;
  return ParseProcStat(*text);
}

std::optional<ProcessId> ReadProcessId(const Roots& roots, pid_t pid) {
  const std::optional<ProcStat> stat = ReadProcStat(roots, pid);
  if (!stat) return std::nullopt;
  return stat->id();
}

std::optional<ProcStatm> ParseStatm(std::string_view text) {
  const std::optional<int64_t> size = ParseNumber<int64_t>(NextField(text));
  const std::optional<int64_t> resident = ParseNumber<int64_t>(NextField(text));
  const std::optional<int64_t> shared = ParseNumber<int64_t>(NextField(text));
  if (!size || !resident || !shared || *size < 0 || *resident < 0 || *shared < 0) {
    return std::nullopt;
  }
  return ProcStatm{*size, *resident, *shared};
}

std::vector<std::string> ParseCmdline(std::string_view text) {
  std::vector<std::string> arguments;
  while (!text.empty()) {
    const size_t end = text.find('\0');
    arguments.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return arguments;
}

std::optional<std::vector<std::string>> ReadCmdline(const Roots& roots, pid_t pid, size_t limit) {
  const absl::StatusOr<std::string> text = ReadFile(ProcPath(roots, pid, "cmdline"), limit);
  if (!text.ok()) return std::nullopt;
  return ParseCmdline(*text);
}

std::vector<std::string> ParseResponseFile(std::string_view text) {
  std::vector<std::string> words;
  bool within = false;  // a word, even an empty one in quotes
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
    if (quote == '\0' && blank) {
      within = false;
      continue;
    }
    if (!within) words.emplace_back();
    within = true;
    if (c == '\\' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else if (quote != '\0' && c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::vector<std::string> WithResponseFiles(const Roots& roots, pid_t pid,
                                           std::vector<std::string> argv) {
  constexpr size_t kMostBytes = size_t{256} << 10;
  int left = 4;
  for (size_t i = 1; i < argv.size() && left > 0; ++i) {
    if (argv[i].size() < 2 || argv[i][0] != '@') continue;
    --left;
    const std::string name = argv[i].substr(1);
    const std::string path = name[0] == '/' ? name : ProcPath(roots, pid, "cwd/") + name;
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const absl::StatusOr<std::string> text = ReadFile(path, kMostBytes);
    if (!text.ok()) continue;
    std::vector<std::string> words = ParseResponseFile(*text);
    const auto at = argv.erase(argv.begin() + static_cast<std::ptrdiff_t>(i));
    const size_t count = words.size();
    argv.insert(at, std::make_move_iterator(words.begin()), std::make_move_iterator(words.end()));
    // Its own words are not looked into.
    i += count;
    --i;
  }
  return argv;
}

std::optional<std::string> FindInEnviron(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const size_t end = text.find('\0');
    const std::string_view entry = text.substr(0, end);
    if (entry.size() > name.size() && entry[name.size()] == '=' &&
        entry.substr(0, name.size()) == name) {
      return std::string(entry.substr(name.size() + 1));
    }
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return std::nullopt;
}

std::optional<std::string> ReadEnvironVariable(const Roots& roots, pid_t pid,
                                               std::string_view name) {
  const absl::StatusOr<std::string> text = ReadFile(ProcPath(roots, pid, "environ"));
  if (!text.ok()) return std::nullopt;
  return FindInEnviron(*text, name);
}

std::optional<std::string> ReadCwd(const Roots& roots, pid_t pid) {
  return ReadLink(ProcPath(roots, pid, "cwd"));
}

std::optional<std::string> ReadExe(const Roots& roots, pid_t pid) {
  std::optional<std::string> exe = ReadLink(ProcPath(roots, pid, "exe"));
  constexpr std::string_view kDeleted = " (deleted)";
  if (exe && exe->size() > kDeleted.size() &&
      std::string_view(*exe).substr(exe->size() - kDeleted.size()) == kDeleted) {
    exe->resize(exe->size() - kDeleted.size());
  }
  return exe;
}

std::string_view Basename(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::optional<uid_t> ParseStatusUid(std::string_view status) {
  constexpr std::string_view kName = "Uid:";
  while (const auto line = NextLine(status)) {
    if (line->substr(0, kName.size()) != kName) continue;
    std::string_view rest = line->substr(kName.size());
    return ParseNumber<uid_t>(NextField(rest));
  }
  return std::nullopt;
}

std::optional<uid_t> ReadRealUid(const Roots& roots, pid_t pid) {
  const absl::StatusOr<std::string> text = ReadFile(ProcPath(roots, pid, "status"));
  if (!text.ok()) return std::nullopt;
  return ParseStatusUid(*text);
}

int64_t PageBytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

int64_t TicksPerSecond() {
  static const int64_t ticks = sysconf(_SC_CLK_TCK);
  return ticks;
}

}  // namespace headroom::sys
