#include "server/daemon/catalog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/headroom/v1/gate_wire.h"
#include "server/sys/process.h"
#include "server/sys/process_table.h"

namespace headroom::daemon {
namespace {

using policy::ProcId;
using policy::Role;
using policy::Time;

// A fork becomes its program within milliseconds; a shell may set things up first.
constexpr policy::Duration kYoung = std::chrono::seconds(1);
// A member may exec late, or get another parent: the longer it has been what it is, the less
// likely, but when a child of its has ended (sh -c 'a; exec b'): then it is looked at next time. A
// look takes some 10 us, so each second at all of 300 would be 0.3 % of a core.
constexpr policy::Duration kMemberEvery = std::chrono::seconds(1);
constexpr policy::Duration kMemberAtMost = std::chrono::seconds(10);
constexpr int kMemberShare = 2;
// All others: a shell in no lane that execs a compiler is rare.
constexpr policy::Duration kOtherEvery = std::chrono::seconds(10);
// Longer command lines are cut: what a tool is stands at the front, its source in the first 64 KiB.
constexpr size_t kCmdlineBytes = size_t{64} << 10;
constexpr int32_t kKernelThreads = 2;
// Where nothing seems to have come or gone: in another pid namespace of this host something may
// have at the same moment (sys::TaskCount).
constexpr policy::Duration kListAtLeastEvery = std::chrono::seconds(1);

policy::Duration LookEvery(const KnownProcess& process, bool member, Time now) {
  const policy::Duration age = now - process.changed_at;
  if (age < kYoung) return policy::Duration{0};
  if (!member) return kOtherEvery;
  // How many threads it has tells how many tokens it holds.
  if (UsesTokensForThreads(process.what.command.name)) return kMemberEvery;
  // Its end, all that may come soon, is seen where its memory is read.
  if (process.reader) return kMemberAtMost;
  return std::clamp<policy::Duration>(age / kMemberShare, kMemberEvery, kMemberAtMost);
}

}  // namespace

Catalog::Catalog(const sys::Roots& roots) : roots_(roots), lister_(roots) {}

KnownProcess* Catalog::Find(const ProcId& id) {
  const auto at = processes_.find(id.pid);
  return at != processes_.end() && at->second.id == id ? &at->second : nullptr;
}

KnownProcess Catalog::Meet(pid_t pid, sys::ProcessInfo info, Time now) {
  KnownProcess process;
  process.id = {pid, info.id.start_ticks};
  process.ppid = info.ppid;
  process.uid = info.uid;
  process.comm = std::move(info.comm);
  process.dead = info.state == 'Z' || info.state == 'X' || info.state == 'x';
  process.threads = info.threads;
  process.first_seen = process.looked_at = process.changed_at = now;
  if (!process.dead) LookInto(process);
  return process;
}

KnownProcess* Catalog::Learn(const ProcId& id, Time now) {
  if (KnownProcess* known = Find(id)) return known;
  std::optional<sys::ProcessInfo> info = sys::ReadProcessInfo(roots_, id.pid);
  if (!info || info->id.start_ticks != id.start || processes_.contains(id.pid)) return nullptr;
  listed_at_ = Time{};  // what was listed last may not have it
  KnownProcess& process =
      processes_.emplace(id.pid, Meet(id.pid, *std::move(info), now)).first->second;
  const auto at = std::lower_bound(due_.begin(), due_.end(), id.pid,
                                   [](const Due& due, pid_t want) { return due.pid < want; });
  due_.insert(at, Due{id.pid, now});
  return &process;
}

void Catalog::LookInto(KnownProcess& process) {
  process.what = {};
  process.argv.clear();
  process.cwd.clear();
  process.takes_tokens = false;
  process.environ_read = false;
  process.lane_dir.clear();
  if (process.ppid == kKernelThreads || process.id.pid == kKernelThreads) return;
  // It still has its tool's words, and none of its memory.
  if (process.comm == gate::kGateKeeperName) return;
  std::optional<std::vector<std::string>> argv =
      sys::ReadCmdline(roots_, process.id.pid, kCmdlineBytes);
  if (argv && !argv->empty()) {
    // Another user's file system may hang.
    if (process.uid == geteuid()) {
      *argv = sys::WithResponseFiles(roots_, process.id.pid, *std::move(argv));
    }
    process.what = RecogniseProcess(*argv, process.comm);
    const std::string_view name = sys::Basename((*argv)[0]);
    if (std::find(extra_tools_.begin(), extra_tools_.end(), name) != extra_tools_.end()) {
      process.what.command.role = Role::kTool;
      process.what.command.name = name;
      process.what.runs = process.what.command;
    }
    const Role role = process.what.command.role;
    if (role == Role::kDriver) {
      process.takes_tokens = std::any_of(argv->begin(), argv->end(), [](const std::string& word) {
        return word == "--jobserver" || word == "-jobserver";
      });
    }
    if (role == Role::kClient) process.cwd = sys::ReadCwd(roots_, process.id.pid).value_or("");
    if (role == Role::kClient || role == Role::kTool) process.argv = *std::move(argv);
  }
}

Catalog::Changes Catalog::Refresh(Time now, const std::set<ProcId>& members,
                                  const std::set<pid_t>& roots) {
  Changes changes;
  if (now - listed_at_ >= kListAtLeastEvery || lister_.Changed()) {
    const absl::StatusOr<const std::vector<pid_t>*> pids = lister_.List();
    if (!pids.ok()) return changes;
    listed_at_ = now;
    pids_ = **pids;
  }
  const bool all = std::exchange(users_changed_, false);
  const pid_t self = getpid();
  const auto matters = [&](const KnownProcess& process) {
    if (process.told || process.gated || process.what.command.role == Role::kTool) return true;
    if (!process.lane_dir.empty() || members.contains(process.id)) return true;
    const auto parent = members.lower_bound(ProcId{process.ppid, 0});
    return (parent != members.end() && parent->pid == process.ppid) ||
           roots.contains(process.ppid) || roots.contains(process.id.pid);
  };
  std::vector<Due> due;
  due.reserve(due_.size() + 16);
  auto known = due_.begin();
  std::vector<pid_t> bereft;
  const auto drop = [&](pid_t pid) {
    const auto at = processes_.find(pid);
    changes.any = changes.any || matters(at->second);
    if (members.contains(at->second.id)) bereft.push_back(at->second.ppid);
    changes.gone.push_back(std::move(at->second));
    processes_.erase(at);
  };
  for (const pid_t pid : pids_) {
    if (pid == self) continue;
    for (; known != due_.end() && known->pid < pid; ++known) drop(known->pid);
    bool fresh = known == due_.end() || known->pid != pid;
    if (!fresh) {
      const Time at = known->at;
      ++known;
      if (now < at && !all) {
        due.push_back({pid, at});
        continue;
      }
      KnownProcess& process = processes_.at(pid);
      if (now >= at) {
        std::optional<sys::ProcessInfo> info = sys::ReadProcessInfo(roots_, pid);
        if (!info) {
          drop(pid);
          continue;
        }
        if (info->id.start_ticks != process.id.start) {
          drop(pid);
          fresh = true;
        } else {
          const bool mattered = matters(process);
          if (LookAgain(process, *std::move(info), now)) {
            ReadEnviron(process);
            changes.any = changes.any || mattered || matters(process);
          }
        }
      }
      if (!fresh) {
        if (all) {
          ReadEnviron(process);
          changes.any = true;
        }
        due.push_back(
            {pid, process.looked_at + LookEvery(process, members.contains(process.id), now)});
        continue;
      }
    }
    std::optional<sys::ProcessInfo> info = sys::ReadProcessInfo(roots_, pid);
    // The daemon's helper is no part of a build, even where `run` or a test started it.
    if (!info || info->ppid == self) continue;
    KnownProcess& process = processes_.emplace(pid, Meet(pid, *std::move(info), now)).first->second;
    ReadEnviron(process);
    changes.any = changes.any || matters(process);
    due.push_back({pid, now});
  }
  for (; known != due_.end(); ++known) drop(known->pid);
  due_ = std::move(due);
  for (const pid_t pid : bereft) LookSoon(pid);
  return changes;
}

void Catalog::ReadEnviron(KnownProcess& process) {
  if (process.environ_read || process.dead || !uids_.contains(process.uid)) return;
  process.environ_read = true;
  process.lane_dir =
      sys::ReadEnvironVariable(roots_, process.id.pid, "HEADROOM_LANE").value_or(std::string());
}

void Catalog::LookSoon(pid_t pid) {
  const auto at = std::lower_bound(due_.begin(), due_.end(), pid,
                                   [](const Due& due, pid_t want) { return due.pid < want; });
  if (at != due_.end() && at->pid == pid) at->at = Time{};
}

bool Catalog::LookAgain(KnownProcess& process, sys::ProcessInfo info, Time now) {
  const bool dead = info.state == 'Z' || info.state == 'X' || info.state == 'x';
  bool changed =
      process.ppid != info.ppid || process.threads != info.threads || process.dead != dead;
  process.looked_at = now;
  process.ppid = info.ppid;
  process.threads = info.threads;
  process.dead = dead;
  // A dead process's files are root's, and it has no words any more.
  if (dead) return changed;
  changed = changed || process.uid != info.uid;
  process.uid = info.uid;
  if (info.comm != process.comm) {
    process.comm = std::move(info.comm);
    process.changed_at = now;
    LookInto(process);
    changed = true;
  }
  return changed;
}

std::vector<TreeProcess> Catalog::ForTree(
    const std::map<std::string, policy::LaneId>& lane_of_dir) const {
  std::vector<TreeProcess> out;
  out.reserve(processes_.size());
  for (const auto& [pid, process] : processes_) {
    TreeProcess& to = out.emplace_back();
    to.id = process.id;
    to.ppid = process.ppid;
    to.uid = process.uid;
    to.dead = process.dead;
    to.threads = process.threads;
    to.role = process.what.command.role;
    to.name = process.what.command.name;
    to.opener = process.opener;
    to.is_shell = process.what.is_shell;
    to.takes_tokens = process.takes_tokens;
    if (!process.lane_dir.empty()) {
      if (const auto lane = lane_of_dir.find(process.lane_dir); lane != lane_of_dir.end()) {
        to.env_lane = lane->second;
      }
    }
  }
  return out;
}

}  // namespace headroom::daemon
