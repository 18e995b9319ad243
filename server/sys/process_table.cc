#include "server/sys/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "server/sys/text.h"

namespace headroom::sys {
namespace {

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};
using UniqueDir = std::unique_ptr<DIR, CloseDir>;

// One process of the scan: four system calls and no allocation but for a comm over 15 bytes.
// `pid_name`: its folder, seen from the open folder `proc`.
std::optional<ProcessInfo> ReadOne(int proc, const char* pid_name) {
  char path[PATH_MAX];
  const size_t length = strlen(pid_name);
  if (length + sizeof "/stat" > sizeof path) return std::nullopt;
  memcpy(path, pid_name, length);
  memcpy(path + length, "/stat", sizeof "/stat");
  const UniqueFd fd(openat(proc, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
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

}  // namespace

absl::StatusOr<std::vector<pid_t>> ListPids(const Roots& roots) {
  const UniqueDir dir(opendir(roots.proc.c_str()));
  if (dir == nullptr) return ErrnoStatus(errno, "list the processes in " + roots.proc);
  std::vector<pid_t> pids;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(dir.get());
    if (entry == nullptr) {
      if (errno != 0) return ErrnoStatus(errno, "list the processes in " + roots.proc);
      break;
    }
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size() && pid > 0) pids.push_back(pid);
  }
  // The kernel lists them in this order already; a fake tree may not.
  if (!std::is_sorted(pids.begin(), pids.end())) std::sort(pids.begin(), pids.end());
  return pids;
}

std::optional<ProcessInfo> ReadProcessInfo(const Roots& roots, pid_t pid) {
  const std::string path = roots.proc + "/" + std::to_string(pid);
  return ReadOne(AT_FDCWD, path.c_str());
}

ProcessTable::ProcessTable(std::vector<ProcessInfo> processes) : processes_(std::move(processes)) {
  Index();
}

absl::StatusOr<ProcessTable> ProcessTable::Scan(const Roots& roots) {
  const UniqueDir dir(opendir(roots.proc.c_str()));
  if (dir == nullptr) return ErrnoStatus(errno, "list the processes in " + roots.proc);
  std::vector<ProcessInfo> processes;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(dir.get());
    if (entry == nullptr) {
      if (errno != 0) return ErrnoStatus(errno, "list the processes in " + roots.proc);
      break;
    }
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    // One that ended since is left out.
    std::optional<ProcessInfo> info = ReadOne(dirfd(dir.get()), entry->d_name);
    if (info) processes.push_back(std::move(*info));
  }
  return ProcessTable(std::move(processes));
}

void ProcessTable::Index() {
  const auto by_pid = [](const ProcessInfo& a, const ProcessInfo& b) {
    return a.id.pid < b.id.pid;
  };
  if (!std::is_sorted(processes_.begin(), processes_.end(), by_pid)) {
    std::sort(processes_.begin(), processes_.end(), by_pid);
  }
  by_parent_.resize(processes_.size());
  std::iota(by_parent_.begin(), by_parent_.end(), 0U);
  // Stable: within a parent the pids stay in order.
  std::stable_sort(by_parent_.begin(), by_parent_.end(), [this](uint32_t a, uint32_t b) {
    return processes_[a].ppid < processes_[b].ppid;
  });
}

const ProcessInfo* ProcessTable::Find(pid_t pid) const {
  const auto found =
      std::lower_bound(processes_.begin(), processes_.end(), pid,
                       [](const ProcessInfo& info, pid_t value) { return info.id.pid < value; });
  return found != processes_.end() && found->id.pid == pid ? &*found : nullptr;
}

const ProcessInfo* ProcessTable::Find(const ProcessId& id) const {
  const ProcessInfo* info = Find(id.pid);
  return info != nullptr && info->id == id ? info : nullptr;
}

std::vector<const ProcessInfo*> ProcessTable::Children(pid_t pid) const {
  std::vector<const ProcessInfo*> children;
  auto at =
      std::lower_bound(by_parent_.begin(), by_parent_.end(), pid,
                       [this](uint32_t i, pid_t value) { return processes_[i].ppid < value; });
  for (; at != by_parent_.end() && processes_[*at].ppid == pid; ++at) {
    children.push_back(&processes_[*at]);
  }
  return children;
}

std::vector<const ProcessInfo*> ProcessTable::Subtree(pid_t pid) const {
  std::vector<const ProcessInfo*> tree;
  // A circle can only come from a pid that was used again during the scan; it must not hang us.
  std::unordered_set<pid_t> seen = {pid};
  if (const ProcessInfo* self = Find(pid)) {
    tree.push_back(self);
  } else {
    tree = Children(pid);
    for (const ProcessInfo* child : tree) seen.insert(child->id.pid);
  }
  for (size_t i = 0; i < tree.size(); ++i) {
    for (const ProcessInfo* child : Children(tree[i]->id.pid)) {
      if (seen.insert(child->id.pid).second) tree.push_back(child);
    }
  }
  return tree;
}

std::vector<const ProcessInfo*> ProcessTable::Ancestors(pid_t pid) const {
  std::vector<const ProcessInfo*> ancestors;
  std::unordered_set<pid_t> seen = {pid};
  const ProcessInfo* info = Find(pid);
  while (info != nullptr) {
    info = Find(info->ppid);
    if (info == nullptr || !seen.insert(info->id.pid).second) break;
    ancestors.push_back(info);
  }
  return ancestors;
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
