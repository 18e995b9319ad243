#include "server/sys/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "server/sys/text.h"

namespace headroom::sys {
namespace {

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};
using UniqueDir = std::unique_ptr<DIR, CloseDir>;

}  // namespace

std::optional<ProcessInfo> ReadProcessInfo(const Roots& roots, pid_t pid) {
  const std::string path = roots.proc + "/" + std::to_string(pid) + "/stat";
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return std::nullopt;
  char buffer[2048];
  const ssize_t size = read(fd.get(), buffer, sizeof buffer);
  if (size <= 0) return std::nullopt;
  std::optional<ProcStat> stat = ParseProcStat(std::string_view(buffer, static_cast<size_t>(size)));
  struct stat owner = {};
  if (!stat || fstat(fd.get(), &owner) != 0) return std::nullopt;
  ProcessInfo info;
  info.id = stat->id();
  info.ppid = stat->ppid;
  info.pgrp = stat->pgrp;
  info.session = stat->session;
  info.comm = std::move(stat->comm);
  info.uid = owner.st_uid;
  info.state = stat->state;
  info.cpu_ticks = stat->cpu_ticks();
  info.rss_bytes = CheckedMultiply(std::max<int64_t>(0, stat->rss_pages), PageBytes()).value_or(0);
  info.threads = stat->threads;
  return info;
}

std::optional<std::string> ReadComm(const Roots& roots, pid_t pid) {
  const std::string path = roots.proc + "/" + std::to_string(pid) + "/comm";
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return std::nullopt;
  char buffer[64];
  const ssize_t size = read(fd.get(), buffer, sizeof buffer);
  if (size <= 1) return std::nullopt;
  return std::string(buffer, static_cast<size_t>(size) - 1);
}

std::optional<TaskCount> ParseTaskCount(std::string_view loadavg) {
  for (int average = 0; average < 3; ++average) NextField(loadavg);
  const std::string_view tasks = NextField(loadavg);
  const size_t slash = tasks.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> all = ParseNumber<int64_t>(tasks.substr(slash + 1));
  const std::optional<int64_t> last = ParseTrimmed<int64_t>(loadavg);
  if (!all || !last || *all <= 0 || *last < 0) return std::nullopt;
  return TaskCount{*all, *last};
}

ProcessLister::ProcessLister(const Roots& roots) : path_(roots.proc) {
  if (absl::StatusOr<KeptFile> file = KeptFile::Open(path_ + "/loadavg"); file.ok()) {
    loadavg_ = *std::move(file);
  }
}

std::optional<TaskCount> ProcessLister::Count() const {
  char buffer[256];
  const auto text = loadavg_.Read(buffer);
  return text ? ParseTaskCount(*text) : std::nullopt;
}

bool ProcessLister::Changed() {
  return !listed_at_ || Count() != listed_at_;
}

absl::StatusOr<const std::vector<pid_t>*> ProcessLister::List() {
  // Before the listing: what changes meanwhile is a change since.
  listed_at_ = Count();
  if (dir_ == nullptr) {
    dir_.reset(opendir(path_.c_str()));
    if (dir_ == nullptr) return ErrnoStatus(errno, "list the processes in " + path_);
  } else {
    rewinddir(dir_.get());
  }
  pids_.clear();
  while (true) {
    errno = 0;
    const dirent* entry = readdir(dir_.get());
    if (entry == nullptr) {
      if (errno == 0) break;
      const int error = errno;
      dir_.reset();
      listed_at_.reset();
      return ErrnoStatus(error, "list the processes in " + path_);
    }
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size() && pid > 0) pids_.push_back(pid);
  }
  // The kernel lists them in this order already; a fake tree may not.
  if (!std::is_sorted(pids_.begin(), pids_.end())) std::sort(pids_.begin(), pids_.end());
  return &pids_;
}

Openers FindOpeners(const Roots& roots, const FileId& id, const std::vector<pid_t>& pids) {
  Openers openers;
  for (const pid_t pid : pids) {
    const std::string path = roots.proc + "/" + std::to_string(pid) + "/fd";
    const UniqueDir dir(opendir(path.c_str()));
    if (dir == nullptr) {
      if (errno == EACCES || errno == EPERM) openers.denied.push_back(pid);
      continue;
    }
    while (const dirent* entry = readdir(dir.get())) {
      if (entry->d_name[0] == '.') continue;
      // DONT_SYNC: a descriptor on a network file system whose server is gone must not hang us.
      struct statx st = {};
      if (statx(dirfd(dir.get()), entry->d_name, AT_STATX_DONT_SYNC, STATX_INO, &st) != 0) continue;
      if (st.stx_ino == id.inode && makedev(st.stx_dev_major, st.stx_dev_minor) == id.device) {
        openers.pids.push_back(pid);
        break;
      }
    }
  }
  return openers;
}

}  // namespace headroom::sys
