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
// A member may exec late, or get another parent.
constexpr policy::Duration kMemberEvery = std::chrono::seconds(1);
// All others: a shell in no lane that execs a compiler is rare.
constexpr policy::Duration kOtherEvery = std::chrono::seconds(10);
// Longer command lines are cut: what a tool is stands at the front, its source in the first 64 KiB.
constexpr size_t kCmdlineBytes = size_t{64} << 10;
constexpr int32_t kKernelThreads = 2;

}  // namespace

Catalog::Catalog(const sys::Roots& roots) : roots_(roots) {}

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
  return &processes_.emplace(id.pid, Meet(id.pid, *std::move(info), now)).first->second;
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

std::vector<KnownProcess> Catalog::Refresh(Time now, const std::set<ProcId>& members) {
  std::vector<KnownProcess> gone;
  const absl::StatusOr<std::vector<pid_t>> pids = sys::ListPids(roots_);
  if (!pids.ok()) return gone;
  const pid_t self = getpid();
  auto known = processes_.begin();
  const auto drop = [&](std::map<pid_t, KnownProcess>::iterator at) {
    gone.push_back(std::move(at->second));
    return processes_.erase(at);
  };
  for (const pid_t pid : *pids) {
    while (known != processes_.end() && known->first < pid) known = drop(known);
    bool fresh = known == processes_.end() || known->first != pid;
    if (!fresh) {
      KnownProcess& process = known->second;
      const policy::Duration every = now - process.changed_at < kYoung ? policy::Duration{0}
                                     : members.contains(process.id)    ? kMemberEvery
                                                                       : kOtherEvery;
      if (now - process.looked_at >= every) {
        std::optional<sys::ProcessInfo> info = sys::ReadProcessInfo(roots_, pid);
        if (!info) {
          known = drop(known);
          continue;
        }
        if (info->id.start_ticks != process.id.start) {
          known = drop(known);
          fresh = true;
        } else {
          process.looked_at = now;
          process.ppid = info->ppid;
          process.threads = info->threads;
          const bool dead = info->state == 'Z' || info->state == 'X' || info->state == 'x';
          process.dead = dead;
          // A dead process's files are root's, and it has no words any more.
          if (!dead) process.uid = info->uid;
          if (!dead && info->comm != process.comm) {
            process.comm = std::move(info->comm);
            process.changed_at = now;
            LookInto(process);
          }
        }
      }
    }
    if (fresh) {
      std::optional<sys::ProcessInfo> info = sys::ReadProcessInfo(roots_, pid);
      // The daemon and its helper are no part of a build, even where `run` or a test started it.
      if (!info || pid == self || info->ppid == self) continue;
      known = processes_.emplace_hint(known, pid, Meet(pid, *std::move(info), now));
    }
    KnownProcess& process = known->second;
    if (!process.environ_read && !process.dead && uids_.contains(process.uid)) {
      process.environ_read = true;
      process.lane_dir =
          sys::ReadEnvironVariable(roots_, pid, "HEADROOM_LANE").value_or(std::string());
    }
    ++known;
  }
  while (known != processes_.end()) known = drop(known);
  return gone;
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
