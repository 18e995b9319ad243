// The daemon's part in the gate: what the policy decides is carried to the gate's server, or, for
// tools out of its reach, to signals; what came of it is put down for the summary.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/daemon/daemon.h"
#include "server/daemon/reach.h"
#include "server/policy/tool.h"
#include "server/sys/anon_reader.h"
#include "server/sys/file.h"
#include "server/sys/pidfd.h"
#include "server/sys/process.h"

namespace headroom::daemon {
namespace {

using policy::DomainId;
using policy::GateId;
using policy::LaneId;
using policy::ProcId;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A kill that only the counter tells of waits so long for a gate's end that names it.
constexpr milliseconds kNamedWithin{500};

// From its exec to its message at the gate a tool in reach takes some milliseconds, more where the
// machine is busy. One that has said nothing by then passes on purpose (a preprocessor run, a
// debugger).
constexpr milliseconds kAsksWithin{500};

// Where twenty processes share a core it may take seconds until it asks, or until its keeper tells
// of it. One that has computed so little has not come to main(), or has done nothing there.
constexpr seconds kAsksOnABusyMachineWithin{20};
constexpr double kBeforeMainCpuSeconds = 0.05;

// A look at who waits for a build tool that is gone: two of them within 2 s end it.
constexpr milliseconds kForsakenEvery{500};

// Events of programs that start are looked at together: of a build's short commands most are over
// by then, and the daemon is woken 200 times a second at most. A compiler takes some MB meanwhile.
constexpr milliseconds kExecsTogether{5};

// Held by a signal only as long as little is lost with it: a process that has run for a while, or
// has memory already, runs on. It is counted as what runs all the same.
constexpr seconds kHoldYounger{2};
constexpr int64_t kHoldBelow = int64_t{64} << 20;

// Seconds since its start. Both clocks begin at boot.
double Age(const ProcId& proc) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         static_cast<double>(proc.start) / static_cast<double>(sys::TicksPerSecond());
}

bool NotAtMainYet(const sys::Roots& roots, const ProcId& proc) {
  if (Age(proc) > std::chrono::duration<double>(kAsksOnABusyMachineWithin).count()) return false;
  const std::optional<sys::ProcStat> stat = sys::ReadProcStat(roots, proc.pid);
  return stat && static_cast<double>(stat->cpu_ticks()) <
                     kBeforeMainCpuSeconds * static_cast<double>(sys::TicksPerSecond());
}

// Whether what is frozen was told to end: its status takes 10 us each to read.
constexpr milliseconds kToldToEndEvery{250};

// A signal that ends it waits for it to go on (proc_pid_status(5), SigPnd and ShdPnd).
bool IsToldToEnd(const sys::Roots& roots, pid_t pid) {
  const absl::StatusOr<std::string> status =
      sys::ReadFile(absl::StrCat(roots.proc, "/", pid, "/status"));
  if (!status.ok()) return false;
  for (const std::string_view name : {"SigPnd:\t", "ShdPnd:\t"}) {
    const size_t at = status->find(name);
    if (at == std::string::npos) continue;
    uint64_t bits = 0;
    const char* begin = status->data() + at + name.size();
    std::from_chars(begin, status->data() + status->size(), bits, 16);
    for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
      if ((bits >> (number - 1) & 1) != 0) return true;
    }
  }
  return false;
}

}  // namespace

// --- Actions ------------------------------------------------------------------------------------

void Daemon::Do(const policy::Admit& action) {
  if (gate_.Admit(action)) return;
  for (auto& [proc, held] : held_) {
    if (held.gate != action.gate || held.running) continue;
    held.running = true;
    Thaw(proc);
    core_.Feed(policy::GateStarted{held.gate, proc});
    observer_.Follow(proc, held.job);
    return;
  }
}

void Daemon::Do(const policy::Evict& action) {
  const std::optional<GateServer::Tool> tool = gate_.Find(action.gate);
  if (!tool || !gate_.Evict(action)) return;
  AddGateIncident(v1::Incident::EVICTION, *tool, InputOf(action.reason, policy::Input::kProcBytes),
                  true);
}

void Daemon::Do(const policy::Verdict& action) {
  const std::optional<GateServer::Tool> tool = gate_.Find(action.gate);
  if (!tool) return;
  const bool oom = BlamesMemory(action.reason);
  const int64_t bytes = InputOf(action.reason, policy::Input::kProcBytes);
  std::string line;
  if (oom && !action.again) {
    line = OutOfMemoryLine(tool->tool, tool->source, action.reason,
                           TightestName(tool->domain, nullptr));
  }
  gate_.Verdict(action, oom, line);
  if (oom) {
    AddGateIncident(v1::Incident::OOM_KILL, *tool, bytes, true);
    if (Lane* lane = Find(tool->lane)) {
      if (lane->oom_unnamed.empty()) {
        ++lane->oom_named;
      } else {
        lane->oom_unnamed.erase(lane->oom_unnamed.begin());
        if (CountsAllMachine(*lane)) lane->account.AddOomKills(1);
      }
    }
  }
  switch (action.reason.code) {
    case policy::ReasonCode::kRetryOomKill:
    case policy::ReasonCode::kRetryKilled:
      // Where memory isn't to blame, no figures of it either.
      AddGateIncident(v1::Incident::RETRY, *tool, oom ? bytes : 0, oom);
      break;
    case policy::ReasonCode::kTooBig:
    case policy::ReasonCode::kTriesUsedUp:
    case policy::ReasonCode::kNotReplayable:
      AddGateIncident(v1::Incident::GIVEN_UP, *tool, oom ? bytes : 0, oom);
      break;
    case policy::ReasonCode::kRetryEvicted:  // told as an eviction
    case policy::ReasonCode::kOwnEnd:
    case policy::ReasonCode::kMemoryFits:
    case policy::ReasonCode::kMemoryTight:
    case policy::ReasonCode::kCoresFull:
    case policy::ReasonCode::kFloor:
    case policy::ReasonCode::kFairShare:
    case policy::ReasonCode::kSlowStart:
    case policy::ReasonCode::kLeak:
    case policy::ReasonCode::kClientsGone:
    case policy::ReasonCode::kSurplus:
    case policy::ReasonCode::kBrake:
    case policy::ReasonCode::kRoomAgain:
    case policy::ReasonCode::kWaitsForGate:
    case policy::ReasonCode::kPredictionOff:
      break;
  }
}

std::string Daemon::TightestName(DomainId domain, int64_t* limit_bytes) const {
  const auto& domains = core_.state().domains;
  std::string name;
  int64_t least = INT64_MAX;
  constexpr int kMostLevels = 64;
  for (int level = 0; level < kMostLevels; ++level) {
    const auto at = domains.find(domain);
    if (at == domains.end()) break;
    if (at->second.limit.count < least) {
      least = at->second.limit.count;
      name = at->second.name;
    }
    if (at->second.parent == DomainId::kNone) break;
    domain = at->second.parent;
  }
  if (limit_bytes != nullptr) *limit_bytes = least == INT64_MAX ? 0 : least;
  return name;
}

void Daemon::AddGateIncident(v1::Incident::Kind kind, const GateServer::Tool& tool, int64_t bytes,
                             bool with_limit) {
  Lane* lane = Find(tool.lane);
  if (lane == nullptr) return;
  int64_t limit = 0;
  std::string domain;
  if (with_limit) domain = TightestName(tool.domain, &limit);
  lane->account.AddIncident(kind, tool.tool, tool.source, bytes, limit, domain, core_.Now());
}

// The host's counter counts the kills in every cgroup of the machine, of other containers and
// services too. A lane without a limit of its own is told of those alone that took a tool of its.
bool Daemon::CountsAllMachine(const Lane& lane) const {
  const auto domain = core_.state().domains.find(lane.domain);
  return domain != core_.state().domains.end() && domain->second.parent == DomainId::kNone;
}

void Daemon::LookForOomKills(Lane& lane, bool at_end) {
  const auto& domains = core_.state().domains;
  const auto domain = domains.find(lane.domain);
  if (domain == domains.end() || !domain->second.sampled) return;
  const policy::Time now = core_.Now();
  const uint64_t count = domain->second.oom_kills;
  const std::optional<uint64_t> before = std::exchange(lane.oom_kills_seen, count);
  if (before && count > *before) {
    const uint32_t kills = static_cast<uint32_t>(count - *before);
    const bool all = CountsAllMachine(lane);
    if (!all) lane.account.AddOomKills(kills);
    spdlog::warn("the kernel's OOM killer killed {} process{} in {} {}", kills,
                 kills == 1 ? "" : "es", all ? "this machine, beside lane" : "lane",
                 lane.folder.name());
    for (uint32_t i = 0; i < kills; ++i) {
      if (lane.oom_named > 0) {
        --lane.oom_named;
        if (all) lane.account.AddOomKills(1);
      } else {
        lane.oom_unnamed.push_back(now);
      }
    }
  }
  // The kernel doesn't say whom; it takes the largest.
  while (!lane.oom_unnamed.empty() && (at_end || now - lane.oom_unnamed.front() > kNamedWithin)) {
    lane.oom_unnamed.erase(lane.oom_unnamed.begin());
    EndedTool* victim = nullptr;
    for (EndedTool& tool : ended_) {
      if (tool.lane != lane.id || tool.tool.empty()) continue;
      if (victim == nullptr || tool.anon_bytes > victim->anon_bytes) victim = &tool;
    }
    if (CountsAllMachine(lane)) {
      if (victim == nullptr) continue;
      lane.account.AddOomKills(1);
    }
    lane.account.AddIncident(v1::Incident::OOM_KILL, victim != nullptr ? victim->tool : "",
                             victim != nullptr ? victim->source : "",
                             victim != nullptr ? victim->anon_bytes : 0, domain->second.limit.count,
                             domain->second.name, now);
    if (victim != nullptr) victim->tool.clear();
  }
}

// --- What the gate's server asks and tells ------------------------------------------------------

DomainId Daemon::DomainOf(LaneId lane, pid_t pid) {
  return observer_.DomainOf(lane, pid);
}

Placement Daemon::PlaceOf(LaneId id, pid_t pid) {
  Placement place = observer_.PlaceOf(id, pid);
  const Lane* lane = Find(id);
  if (place.build_dir.empty() && lane != nullptr && lane->folder.attach()) {
    place.build_dir = lane->folder.attach()->cwd();
  }
  return place;
}

void Daemon::SampleDomains() {
  Emit(observer_.SampleDomains());
}

void Daemon::OnWaits(const ProcId& keeper) {
  observer_.Retract(keeper);
  // It was held by signals, and has the library all the same.
  if (held_.contains(keeper)) LetGo(keeper);
}

void Daemon::OnWorker(LaneId, const ProcId& worker, const ProcId& job) {
  observer_.Follow(worker, job);
}

std::optional<int64_t> Daemon::OnWorkerGone(const ProcId& worker) {
  return observer_.Unfollow(worker);
}

void Daemon::OnUnsupervised(const ProcId&) {
  observer_.LookSoon();
}

// --- Out of the gate's reach --------------------------------------------------------------------

Daemon::Claim Daemon::OnFound(const KnownProcess& process, LaneId id,
                              const policy::ProcSeen& seen) {
  Lane* lane = Find(id);
  if (lane == nullptr || !lane->gated) {
    return gate_.IsKeeper(process.id) || gate_.IsWorker(process.id) ? Claim::kTaken : Claim::kTell;
  }
  if (gate_.IsKeeper(process.id) || gate_.IsWorker(process.id) || held_.contains(process.id)) {
    return Claim::kTaken;
  }
  if (out_of_reach_.contains(process.id)) return Claim::kTell;
  const auto parent = observer_.catalog().processes().find(process.ppid);
  const bool kept = parent != observer_.catalog().processes().end() &&
                    parent->second.comm == gate::kGateKeeperName;
  // A keeper that we talk with tells of its worker, or is shown out.
  if (kept && gate_.IsKeeper(parent->second.id)) return Claim::kLater;
  const bool young = Age(process.id) < std::chrono::duration<double>(kAsksWithin).count() ||
                     core_.Now() - process.changed_at < kAsksWithin ||
                     NotAtMainYet(options_.roots, process.id);
  if (kept) return young ? Claim::kLater : Claim::kTell;
  switch (ReadReach(options_.roots, process.id.pid)) {
    case Reach::kInside:
    case Reach::kUnknown:
      return young ? Claim::kLater : Claim::kTell;
    case Reach::kOptedOut:
      return Claim::kTell;
    case Reach::kOutside:
      break;
  }
  out_of_reach_.insert(process.id);
  lane->account.AddUngated(seen.info.tool);
  return TryHold(*lane, process, seen) ? Claim::kTaken : Claim::kTell;
}

bool Daemon::TryHold(Lane& lane, const KnownProcess& process, const policy::ProcSeen& seen) {
  if (process.uid != lane.folder.uid()) return false;
  if (Age(process.id) > std::chrono::duration<double>(kHoldYounger).count()) return false;
  std::optional<sys::AnonReader> reader =
      sys::AnonReader::Open(options_.roots, {process.id.pid, process.id.start});
  if (!reader) return false;
  const std::optional<sys::AnonReader::Memory> memory = reader->ReadMemory();
  if (!memory || memory->anon_bytes > kHoldBelow) return false;
  // One that stands already was stopped by its user: not ours to continue.
  const std::optional<sys::ProcStat> stat = sys::ReadProcStat(options_.roots, process.id.pid);
  if (!stat || stat->state == 'T' || stat->state == 't') return false;
  absl::StatusOr<sys::PidFd> pidfd =
      sys::PidFd::Open(options_.roots, {process.id.pid, process.id.start});
  if (!pidfd.ok()) return false;
  if (!thawer_.Hold(process.id, *std::move(pidfd)).ok()) return false;
  if (!thawer_.held().at(process.id).Send(SIGSTOP).ok()) {
    thawer_.Release(process.id);
    return false;
  }
  Held& held = held_[process.id];
  held.gate = gate_.NextId();
  held.lane = lane.id;
  held.job = seen.job;
  Placement place = observer_.PlaceOf(lane.id, process.id.pid);
  held.awaited = std::move(place.awaited);
  policy::GateRequest request;
  request.gate = held.gate;
  request.lane = lane.id;
  request.domain = observer_.DomainOf(lane.id, process.id.pid);
  request.keeper = process.id;
  request.info = seen.info;
  request.job = seen.job;
  request.under = gate_.GateAbove(place.ancestors);
  core_.Feed(std::move(request));
  return true;
}

void Daemon::LetGo(const ProcId& proc) {
  const auto found = held_.find(proc);
  if (found == held_.end()) return;
  const Held held = found->second;
  held_.erase(found);
  if (held.running) observer_.Unfollow(proc);
  Thaw(proc);
  core_.Feed(policy::GateGone{held.gate});
}

void Daemon::OnGatedGone(const EndedTool& tool) {
  thawer_.Release(tool.proc);
  const auto found = held_.find(tool.proc);
  if (found == held_.end()) return;  // its keeper tells
  const Held held = found->second;
  held_.erase(found);
  if (tool.lane != LaneId::kNone) ended_.push_back(tool);
  // Nobody tells how it ended. Where the OOM killer was about, its size teaches nothing.
  bool killing = false;
  for (const auto& [id, domain] : core_.state().domains) {
    killing =
        killing || (domain.oom_at != policy::Time{} && core_.Now() - domain.oom_at < seconds(2));
  }
  if (killing) {
    core_.Feed(policy::GateGone{held.gate});
  } else {
    policy::GateEnded ended;
    ended.gate = held.gate;
    ended.end = policy::GateEnd::kExit;
    core_.Feed(ended);
  }
}

void Daemon::TendHeld() {
  const auto& processes = observer_.catalog().processes();
  const auto lives = [&](const ProcId& proc) {
    const auto known = processes.find(proc.pid);
    return known != processes.end() && known->second.id == proc && !known->second.dead;
  };
  std::erase_if(out_of_reach_, [&](const ProcId& proc) { return !lives(proc); });
  std::vector<ProcId> over;
  const policy::Time now = core_.Now();
  const bool look_above = now - forsaken_at_ >= kForsakenEvery;
  if (look_above) forsaken_at_ = now;
  for (const auto& [proc, held] : held_) {
    if (held.running) continue;
    if (!lives(proc)) {
      over.push_back(proc);
    } else if (look_above && IsForsaken(options_.roots, held.awaited)) {
      // Ends as it goes on.
      thawer_.held().at(proc).Send(SIGTERM).IgnoreError();
      over.push_back(proc);
    }
  }
  if (look_above) gate_.EndForsaken();
  // ^C reaches a stopped process when it goes on.
  std::vector<ProcId> ending;
  const bool look = core_.Now() - told_to_end_at_ >= kToldToEndEvery;
  if (look) told_to_end_at_ = core_.Now();
  for (const auto& [proc, pidfd] : thawer_.held()) {
    if (look && IsToldToEnd(options_.roots, proc.pid)) ending.push_back(proc);
  }
  for (const ProcId& proc : over) LetGo(proc);
  for (const ProcId& proc : ending) {
    if (held_.contains(proc)) {
      LetGo(proc);
    } else {
      Thaw(proc);
    }
  }
}

// --- Exec events --------------------------------------------------------------------------------

void Daemon::WatchExecs() {
  if (std::exchange(execs_tried_, true)) return;
  absl::StatusOr<sys::ProcConnector> connector =
      sys::ProcConnector::Open(sys::ProcConnector::Wanted::kExecs);
  if (!connector.ok()) return;  // not ours to have: scans find them, a little later
  execs_ = std::make_unique<sys::ProcConnector>(*std::move(connector));
  execs_descriptor_ =
      std::make_unique<boost::asio::posix::stream_descriptor>(io_, dup(execs_->fd()));
  WaitForExecs();
}

void Daemon::WaitForExecs() {
  execs_descriptor_->async_wait(
      boost::asio::posix::descriptor_base::wait_read, [this](boost::system::error_code error) {
        if (error || ending_) return;
        execs_->Hush();
        execs_timer_.expires_after(kExecsTogether);
        execs_timer_.async_wait([this](boost::system::error_code stopped) {
          if (!stopped && !ending_) TakeExecs();
        });
      });
}

void Daemon::TakeExecs() {
  bool look = false;
  for (const sys::ProcEvent& event : execs_->Read()) {
    if (event.kind == sys::ProcEvent::Kind::kLost) look = true;
    if (event.kind != sys::ProcEvent::Kind::kExec || look) continue;
    const std::optional<std::string> comm = sys::ReadComm(options_.roots, event.pid);
    if (!comm) continue;  // over already, as most are
    const std::vector<std::string> words = {*comm};
    if (policy::Recognise(*comm, words).role != policy::Role::kTool) continue;
    look = ReadReach(options_.roots, event.pid) == Reach::kOutside;
  }
  if (look) observer_.LookSoon();
  if (std::none_of(lanes_.begin(), lanes_.end(),
                   [](const auto& lane) { return lane.second.gated; })) {
    // Each exec of the host costs: not for nothing.
    execs_descriptor_.reset();
    execs_.reset();
    execs_tried_ = false;
    return;
  }
  WaitForExecs();
}

}  // namespace headroom::daemon
