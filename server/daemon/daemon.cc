#include "server/daemon/daemon.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/daemon/status.h"
#include "server/policy/step.h"
#include "server/sys/cores.h"
#include "server/sys/folder.h"
#include "server/sys/pidfd.h"
#include "server/sys/process.h"

namespace headroom::daemon {
namespace {

using policy::Bytes;
using policy::DomainId;
using policy::LaneId;
using policy::LaneKind;
using policy::ProcId;
using policy::Time;
using std::chrono::milliseconds;
using std::chrono::seconds;

// `run` attaches within milliseconds of the daemon's start.
constexpr seconds kFirstLaneWithin{10};
// The next `run` of a script often comes at once.
constexpr milliseconds kLinger{300};
// One that has detached closes its connection as soon as it has what it wants (`run --trace`: up to
// the whole trace). Not for ever: it may be stopped.
constexpr seconds kLingerForDetached{30};
constexpr seconds kHousekeeping{1};
// An OOM kill is counted before or after its victim is seen to be gone.
constexpr seconds kOomWindow{3};
constexpr uint32_t kDecisionsShown = 20;
// A lane's processes are gone when two scans see none: one may fall between a fork and its exec.
constexpr int kGoneScans = 2;

std::string Str(const absl::Status& status) {
  return std::string(status.message());
}

// With the remedy, where that is what is wrong.
absl::Status OutOfFiles(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return status;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return absl::UnavailableError(
      absl::StrCat(Str(status), ": headroomd has all of the ", limit.rlim_cur,
                   " files open that it may have; raise that (LimitNOFILE= in headroomd.service; "
                   "ulimit -n where "
                   "headroom run starts it), or wait until other builds have ended"));
}

policy::Reserve FromProto(const v1::Reserve& reserve) {
  policy::Reserve out;
  if (reserve.has_bytes()) out.bytes = Bytes{static_cast<int64_t>(reserve.bytes())};
  if (reserve.has_permyriad()) {
    out.share = policy::Permyriad{static_cast<int32_t>(reserve.permyriad())};
  }
  return out;
}

absl::Status CheckReserve(const v1::Reserve& reserve) {
  if (reserve.has_permyriad() && reserve.permyriad() > 10000) {
    return absl::InvalidArgumentError(
        absl::StrCat("reserve of ", reserve.permyriad(), " permyriad: at most 10000 (all of it)"));
  }
  constexpr uint64_t kMost = uint64_t{1} << 60;
  if (reserve.has_bytes() && reserve.bytes() >= kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("reserve of ", reserve.bytes(), " bytes: more than any machine has"));
  }
  return absl::OkStatus();
}

absl::Status CheckJobs(uint32_t jobs) {
  constexpr uint32_t kMost = 4096;
  if (jobs > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("jobs ", jobs, ": at most ", kMost, "; 0 for the default"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(boost::asio::io_context& io,
                                                      DaemonOptions options) {
  const std::string& dir = options.runtime_dir;
  // A system daemon's folder is entered by all users: their fifos lie in it.
  const absl::StatusOr<sys::UniqueFd> folder =
      sys::EnsureFolder(dir, geteuid(), geteuid() == 0 ? 0755 : 0700);
  if (!folder.ok()) return folder.status();
  absl::StatusOr<sys::LockFile> lock = sys::LockFile::Acquire(dir + "/lock");
  if (absl::IsAlreadyExists(lock.status())) {
    const pid_t holder = sys::LockFile::Holder(dir + "/lock").value_or(0);
    return absl::AlreadyExistsError(absl::StrCat(
        "another headroomd", holder > 0 ? absl::StrCat(" (pid ", holder, ")") : std::string(),
        " serves ", dir, " already; one is enough, or end it first",
        holder > 0 ? absl::StrCat(": kill ", holder) : std::string()));
  }
  if (!lock.ok()) return lock.status();
  absl::StatusOr<LaneFolders> folders = LaneFolders::Open(dir);
  if (!folders.ok()) return folders.status();
  absl::StatusOr<Domains> domains = Domains::Open(options.roots);
  if (!domains.ok()) return domains.status();
  absl::StatusOr<std::unique_ptr<sys::TokenCollector>> collector = sys::TokenCollector::Start({});
  if (!collector.ok()) return collector.status();
  std::unique_ptr<Daemon> daemon(new Daemon(io, std::move(options), *std::move(lock),
                                            *std::move(folders), *std::move(domains),
                                            *std::move(collector)));
  if (const absl::Status begun = daemon->Begin(); !begun.ok()) return begun;
  return daemon;
}

Daemon::Daemon(boost::asio::io_context& io, DaemonOptions options, sys::LockFile lock,
               LaneFolders folders, Domains domains, std::unique_ptr<sys::TokenCollector> collector)
    : io_(io),
      options_(std::move(options)),
      lock_(std::move(lock)),
      folders_(std::move(folders)),
      storage_(options_.config.trace_enabled ? trace::MakePosixStorage() : nullptr),
      recorder_(storage_ == nullptr
                    ? nullptr
                    : std::make_unique<trace::Recorder>(
                          *storage_, trace::RecorderOptions{.dir = options_.trace_dir,
                                                            .max_bytes = static_cast<uint64_t>(
                                                                options_.config.trace_max.count),
                                                            .version = HEADROOM_VERSION})),
      core_(Core::Clock::Real(), *this, recorder_.get()),
      history_(
          io, options_.history_path,
          [this]() -> const policy::Profile& { return core_.state().profile; },
          [this](policy::Recalled recalled) { core_.Feed(std::move(recalled)); }),
      collector_(std::move(collector)),
      collected_(io, dup(collector_->event_fd())),
      observer_(io, *this, options_.roots, std::move(domains), ObserverOptions()),
      gate_(io, *this, options_.roots),
      execs_timer_(io),
      notifier_(Notifier::FromEnvironment()),
      signals_(io, SIGTERM, SIGINT, SIGHUP),
      housekeeping_(io),
      started_(core_.Now()),
      without_prediction_(options_.without_prediction),
      reserve_(options_.config.reserve) {
  if (options_.memory_scale > 1) {
    lens_.emplace(options_.memory_scale, [this](const ProcId& proc) { return IsFrozen(proc); });
  }
}

Daemon::~Daemon() = default;

absl::Status Daemon::Begin() {
  if (const absl::Status started = thawer_.Start(); !started.ok()) {
    spdlog::warn("{}; nothing can be frozen until it runs", Str(started));
  }
  Configure();
  history_.Load();
  AdoptLanes();
  observer_.Start();
  ControlOptions control;
  control.path = folders_.runtime_dir() + "/control.sock";
  control.mode = geteuid() == 0 ? 0666 : 0600;
  control.owner = geteuid();
  control_ = std::make_unique<ControlServer>(io_, *this, control);
  if (const absl::Status listening = control_->Start(); !listening.ok()) return listening;
  WaitForTokens();
  WaitForSignals();
  Housekeep();
  watchdog_ = std::make_unique<Watchdog>(io_, notifier_, [] { return true; });
  watchdog_->Start();
  return absl::OkStatus();
}

void Daemon::Run() {
  notifier_.Ready("serving");
  spdlog::info("headroomd {} serves {} (pid {}{})", HEADROOM_VERSION, folders_.runtime_dir(),
               getpid(), options_.private_daemon ? ", private" : "");
  io_.run();
  history_.Finish();
}

Observer::Options Daemon::ObserverOptions() const {
  Observer::Options options;
  options.fast_min = options_.config.fast_min;
  options.fast_max = options_.config.fast_max;
  options.slow = options_.config.slow;
  options.extra_tools = options_.config.extra_tools;
  options.growth_bytes /= options_.memory_scale;
  return options;
}

void Daemon::Configure() {
  policy::Configure configure;
  configure.reserve = reserve_;
  configure.prediction = !without_prediction_;
  configure.spoiled_peak = spoiled_peak_;
  core_.Feed(configure);
}

// --- Lanes --------------------------------------------------------------------------------------

Daemon::Lane* Daemon::Find(LaneId id) {
  const auto lane = lanes_.find(id);
  return lane == lanes_.end() ? nullptr : &lane->second;
}

Daemon::Lane* Daemon::FindByConnection(uint64_t connection) {
  for (auto& [id, lane] : lanes_) {
    if (lane.attached && lane.connection == connection) return &lane;
  }
  return nullptr;
}

int Daemon::JobsOf(const Lane& lane) const {
  if (lane.jobs) return *lane.jobs;
  return options_.config.max_jobs.value_or(lane.cores);
}

policy::LaneOpened Daemon::Describe(const Lane& lane) const {
  policy::LaneOpened opened;
  opened.id = lane.id;
  opened.kind = lane.folder.kind();
  opened.uid = lane.folder.uid();
  opened.name = lane.folder.name();
  opened.domain = lane.domain;
  opened.cores = lane.cores;
  opened.jobs_cap = lane.jobs ? lane.jobs : options_.config.max_jobs;
  opened.reserve = lane.reserve;
  opened.gated = lane.gated;
  opened.idle = static_cast<int>(lane.folder.fifo().Idle().value_or(0));
  const auto known = core_.state().lanes.find(lane.id);
  opened.minted =
      known == core_.state().lanes.end() ? lane.folder.ReadMinted() : known->second.minted;
  return opened;
}

absl::StatusOr<Daemon::Lane*> Daemon::OpenLane(LaneFolder folder, const ProcId& root,
                                               bool restarted) {
  const LaneId id{next_lane_++};
  if (const absl::Status added = collector_->Add(static_cast<uint64_t>(id), folder.fifo().fd());
      !added.ok()) {
    return added;
  }
  Lane& lane = lanes_.emplace(id, Lane(id, std::move(folder), core_.Now())).first->second;
  lane.root = root;
  lane.restarted = restarted;
  lane.cores = options_.cores > 0 ? options_.cores
                                  : sys::ReadCores(options_.roots, root ? root.pid : 0).Count();
  if (lane.folder.attach()) {
    const v1::AttachRequest& attach = *lane.folder.attach();
    if (attach.has_jobs() && attach.jobs() > 0) lane.jobs = static_cast<int>(attach.jobs());
    if (attach.has_reserve()) lane.reserve = FromProto(attach.reserve());
    lane.gated = attach.gate();
  }
  // A shared lane's builds may come without the gate: there tokens carry the memory plan as well.
  if (lane.gated || lane.folder.kind() == LaneKind::kShared) {
    if (const absl::Status listening = gate_.Listen(id, lane.folder.dir(), lane.folder.uid());
        !listening.ok()) {
      spdlog::warn("{}; this lane has no gate", Str(listening));
      lane.gated = false;
    }
  }
  lane.domain = observer_.Hold(id, root ? root.pid : getpid());
  core_.Feed(Describe(lane));
  observer_.AddLane(
      {id, lane.folder.kind(), lane.folder.uid(), lane.folder.dir(), &lane.folder.fifo(), root});
  if (lane.folder.kind() == LaneKind::kOwn) had_lane_ = true;
  if (lane.gated) WatchExecs();
  return &lane;
}

void Daemon::UpdateLane(Lane& lane) {
  core_.Feed(Describe(lane));
}

void Daemon::CloseLane(LaneId id) {
  Lane* lane = Find(id);
  if (lane == nullptr) return;
  observer_.RemoveLane(id);
  core_.Feed(policy::LaneClosed{id});
  gate_.CloseLane(id);
  std::vector<ProcId> held;
  for (const auto& [proc, there] : held_) {
    if (there.lane == id) held.push_back(proc);
  }
  for (const ProcId& proc : held) LetGo(proc);
  collector_->Remove(static_cast<uint64_t>(id)).IgnoreError();
  if (const absl::Status removed = folders_.Remove(lane->folder); !removed.ok()) {
    spdlog::warn("{}", Str(removed));
  }
  spdlog::debug("lane {} closed", lane->folder.name());
  lanes_.erase(id);
  last_lane_closed_ = core_.Now();
  if (!ending_) history_.Store();
}

void Daemon::AdoptLanes() {
  std::vector<std::string> problems;
  std::vector<LaneFolder> left = folders_.FindLeft(&problems);
  for (const std::string& problem : problems) spdlog::warn("lane left alone: {}", problem);
  std::set<uint32_t> uids;
  for (const LaneFolder& folder : left) uids.insert(folder.uid());
  observer_.Survey(std::move(uids));
  for (LaneFolder& folder : left) {
    ProcId root;
    if (folder.attach()) {
      root = {folder.attach()->root().pid(), folder.attach()->root().start()};
    }
    if (folder.kind() == LaneKind::kOwn && !observer_.Lives(folder.dir(), root) &&
        !observer_.IsOpen(folder.fifo(), folder.uid())) {
      spdlog::info("lane {} of an ended build is removed", folder.dir());
      if (const absl::Status removed = folders_.Remove(folder); !removed.ok()) {
        spdlog::warn("{}", Str(removed));
      }
      continue;
    }
    if (folder.kind() == LaneKind::kShared && options_.private_daemon) continue;
    const std::string dir = folder.dir();
    if (const absl::StatusOr<Lane*> lane = OpenLane(std::move(folder), root, true); lane.ok()) {
      spdlog::info("lane {} found again: {} tokens, {} of them idle", dir,
                   core_.state().lanes.at((*lane)->id).minted,
                   core_.state().lanes.at((*lane)->id).idle);
    } else {
      spdlog::warn("lane {}: {}", dir, Str(lane.status()));
    }
  }
}

void Daemon::OnScanned() {
  const Time now = core_.Now();
  std::vector<LaneId> over;
  for (auto& [id, lane] : lanes_) {
    const LaneFigures figures = observer_.figures(id);
    lane.account.Saw(now, figures.running_jobs, figures.running_tools, figures.anon_bytes);
    LookForOomKills(lane, false);
    if (lane.folder.kind() != LaneKind::kOwn || lane.attached) continue;
    // After a restart `run` needs a moment to come back: as long as it lives, so does its lane.
    const bool lives = figures.members > 0 || observer_.Lives("", lane.root);
    lane.gone_scans = lives ? 0 : lane.gone_scans + 1;
    if (lane.gone_scans >= kGoneScans) over.push_back(id);
  }
  std::erase_if(ended_, [&](const EndedTool& tool) { return now - tool.at > kOomWindow; });
  TendHeld();
  for (const LaneId id : over) {
    Lane* lane = Find(id);
    // Somebody out of our sight (another user's process, an odd environment) may still use it.
    if (observer_.IsOpen(lane->folder.fifo(), lane->folder.uid())) {
      lane->gone_scans = -8;  // look again in a while: finding openers isn't free
      continue;
    }
    CloseLane(id);
  }
  EndIfDone();
}

void Daemon::EndIfDone() {
  if (!options_.private_daemon || ending_) return;
  for (const auto& [id, lane] : lanes_) {
    if (lane.folder.kind() == LaneKind::kOwn) return;
  }
  const Time now = core_.Now();
  const bool awaited = control_ != nullptr && control_->detached() > 0;
  const policy::Duration linger = awaited ? policy::Duration(kLingerForDetached) : kLinger;
  const bool over =
      had_lane_ ? now - last_lane_closed_ > linger : now - started_ > kFirstLaneWithin;
  if (!over) {
    // Looked at again by Housekeep.
    return;
  }
  spdlog::info("no lane is left; this private daemon ends");
  End();
}

// --- What the policy wants done
// -------------------------------------------------------------------

void Daemon::Carry(const policy::Action& action) {
  std::visit([this](const auto& a) { Do(a); }, action);
}

void Daemon::Do(const policy::Mint& action) {
  Lane* lane = Find(action.lane);
  if (lane == nullptr) return;
  lane->last_reason = action.reason.code;
  const int minted = core_.state().lanes.at(action.lane).minted;
  // Before the tokens: a crash in between leaves the file too high, which the leak rule mends.
  if (const absl::Status written = lane->folder.WriteMinted(minted + action.count); !written.ok()) {
    spdlog::warn("{}; a restarted daemon will take a while to count right", Str(written));
  }
  const absl::StatusOr<int64_t> put = lane->folder.fifo().Put(action.count);
  if (!put.ok()) spdlog::error("{}", Str(put.status()));
  const int count = static_cast<int>(put.value_or(0));
  lane->moved += count;
  if (count != action.count) lane->folder.WriteMinted(minted + count).IgnoreError();
  core_.Feed(policy::TokensMoved{action.lane, count, 0,
                                 static_cast<int>(lane->folder.fifo().Idle().value_or(0))});
}

void Daemon::Do(const policy::Collect& action) {
  Lane* lane = Find(action.lane);
  if (lane == nullptr) return;
  lane->last_reason = action.reason.code;
  const int64_t collected = collector_->SetDebt(static_cast<uint64_t>(action.lane), action.debt);
  lane->moved -= collected;
  if (collected > 0) {
    const int minted = core_.state().lanes.at(action.lane).minted;
    lane->folder.WriteMinted(std::max(0, minted - static_cast<int>(collected))).IgnoreError();
    core_.Feed(policy::TokensMoved{action.lane, 0, static_cast<int>(collected),
                                   static_cast<int>(lane->folder.fifo().Idle().value_or(0))});
  } else {
    // A surplus or a leak has changed the books without a token moved by us.
    lane->folder.WriteMinted(core_.state().lanes.at(action.lane).minted).IgnoreError();
  }
}

void Daemon::WaitForTokens() {
  collected_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                        [this](boost::system::error_code error) {
                          if (error || ending_) return;
                          uint64_t count = 0;
                          if (read(collected_.native_handle(), &count, sizeof count) > 0) {
                            TakeTokens();
                          }
                          WaitForTokens();
                        });
}

void Daemon::TakeTokens() {
  for (auto& [id, lane] : lanes_) TakeTokens(lane);
}

bool Daemon::TakeTokens(Lane& lane) {
  const int64_t count = collector_->TakeCollected(static_cast<uint64_t>(lane.id));
  if (count <= 0) return false;
  lane.moved -= count;
  const int minted = core_.state().lanes.at(lane.id).minted;
  lane.folder.WriteMinted(std::max(0, minted - static_cast<int>(count))).IgnoreError();
  core_.Feed(policy::TokensMoved{lane.id, 0, static_cast<int>(count),
                                 static_cast<int>(lane.folder.fifo().Idle().value_or(0))});
  return true;
}

void Daemon::Do(const policy::Freeze& action) {
  Lane* lane = Find(action.lane);
  if (lane == nullptr) return;
  if (gate_.Freeze(action.proc)) return NoteFreeze(*lane, action.proc);
  if (!observer_.MayTouch(action.lane, action.proc)) return;
  absl::StatusOr<sys::PidFd> pidfd =
      sys::PidFd::Open(options_.roots, {action.proc.pid, action.proc.start});
  if (!pidfd.ok()) {
    // Gone is a normal end; anything else means that this host can't freeze safely.
    if (!absl::IsNotFound(pidfd.status())) spdlog::warn("can't freeze: {}", Str(pidfd.status()));
    return;
  }
  if (const absl::Status held = thawer_.Hold(action.proc, *std::move(pidfd)); !held.ok()) {
    spdlog::warn("process {} isn't frozen: {}", action.proc.pid, Str(held));
    return;
  }
  if (const absl::Status sent = thawer_.held().at(action.proc).Send(SIGSTOP); !sent.ok()) {
    thawer_.Release(action.proc);
    if (!absl::IsNotFound(sent)) spdlog::warn("can't freeze: {}", Str(sent));
    return;
  }
  NoteFreeze(*lane, action.proc);
}

void Daemon::NoteFreeze(Lane& lane, const ProcId& frozen) {
  for (const policy::ProcState& proc : core_.state().procs) {
    if (proc.proc != frozen) continue;
    const auto domain = core_.state().domains.find(proc.domain);
    const bool known = domain != core_.state().domains.end();
    lane.account.AddIncident(v1::Incident::FREEZE, proc.tool, proc.source, proc.use.anon.count,
                             known ? domain->second.limit.count : 0,
                             known ? domain->second.name : "", core_.Now());
  }
}

void Daemon::Thaw(const ProcId& proc) {
  gate_.Thaw(proc);
  // Also one whose keeper has told of it since it was stopped by a signal: the keeper knows nothing
  // of that.
  const auto held = thawer_.held().find(proc);
  if (held == thawer_.held().end()) return;
  if (const absl::Status sent = held->second.Send(SIGCONT); !sent.ok() && !absl::IsNotFound(sent)) {
    spdlog::error("can't thaw: {}", Str(sent));
  }
  thawer_.Release(proc);
}

void Daemon::Do(const policy::Thaw& action) {
  Thaw(action.proc);
}

void Daemon::Do(const policy::SetSampling& action) {
  observer_.SetFast(action.fast, action.glance);
}

// --- What the observer says
// -----------------------------------------------------------------------

void Daemon::Emit(policy::Event event) {
  if (lens_) event = lens_->Through(std::move(event), core_.Now());
  core_.Feed(std::move(event));
}

bool Daemon::NeedsLook(const std::vector<policy::DomainSample>& glance) {
  return policy::NeedsLook(core_.state(), glance);
}

Time Daemon::Now() {
  return core_.Now();
}

bool Daemon::IsFrozen(const ProcId& proc) {
  return thawer_.held().contains(proc) || gate_.IsFrozen(proc);
}

int Daemon::ReadIdle(LaneId id) {
  Lane* lane = Find(id);
  if (lane == nullptr) return 0;
  int idle = 0;
  // The collector's threads take tokens at any time: one that is out of the fifo but not yet in the
  // books would look like a client's.
  for (int i = 0; i < 4; ++i) {
    TakeTokens(*lane);
    idle = static_cast<int>(lane->folder.fifo().Idle().value_or(0));
    if (!TakeTokens(*lane)) break;
  }
  return idle;
}

int64_t Daemon::Moved(LaneId id) {
  const Lane* lane = Find(id);
  return lane == nullptr ? 0 : lane->moved;
}

int Daemon::Out(LaneId lane, int idle) {
  const auto known = core_.state().lanes.find(lane);
  return known == core_.state().lanes.end() ? 0 : known->second.minted - idle;
}

void Daemon::OnDomain(LaneId id, DomainId domain) {
  Lane* lane = Find(id);
  if (lane == nullptr || lane->domain == domain) return;
  lane->domain = domain;
  lane->oom_kills_seen.reset();
  UpdateLane(*lane);
}

void Daemon::OnEnded(const EndedTool& tool) {
  thawer_.Release(tool.proc);
  if (tool.lane != LaneId::kNone) ended_.push_back(tool);
}

// --- Control
// --------------------------------------------------------------------------------------

absl::StatusOr<sys::ProcessId> Daemon::Identify(pid_t pid) const {
  const std::string path = absl::StrCat(options_.roots.proc, "/", pid, "/stat");
  const absl::StatusOr<std::string> text = sys::ReadFile(path);
  if (!text.ok() && absl::IsResourceExhausted(text.status())) return OutOfFiles(text.status());
  const std::optional<sys::ProcStat> stat = text.ok() ? sys::ParseProcStat(*text) : std::nullopt;
  if (!stat) {
    return absl::NotFoundError(
        absl::StrCat("process ", pid, " isn't to be seen from here (another pid namespace?)"));
  }
  return stat->id();
}

absl::StatusOr<v1::Attached> Daemon::OnAttach(const Peer& peer, const v1::AttachRequest& request) {
  if (ending_) return absl::UnavailableError("this daemon is just ending; try again");
  if (request.has_jobs()) {
    if (const absl::Status good = CheckJobs(request.jobs()); !good.ok()) return good;
  }
  if (const absl::Status good = CheckReserve(request.reserve()); !good.ok()) return good;
  const absl::StatusOr<sys::ProcessId> root = Identify(peer.pid);
  if (!root.ok()) return root.status();
  if (request.without_prediction() || request.has_spoiled_peak()) {
    if (!options_.private_daemon) {
      return absl::PermissionDeniedError(
          "switching prediction off is for tests, and only for a private daemon; set "
          "HEADROOM_RUNTIME_DIR to an empty folder to get one");
    }
    without_prediction_ = request.without_prediction();
    spoiled_peak_.reset();
    if (request.has_spoiled_peak()) {
      spoiled_peak_ = Bytes{static_cast<int64_t>(request.spoiled_peak())};
    }
    Configure();
  }
  const ProcId id{root->pid, root->start_ticks};
  Lane* lane = nullptr;
  if (request.lane_dir().empty()) {
    v1::AttachRequest remembered = request;
    remembered.mutable_root()->set_pid(id.pid);
    remembered.mutable_root()->set_start(id.start);
    absl::StatusOr<LaneFolder> folder = folders_.CreateOwn(peer.uid, peer.pid, remembered);
    if (!folder.ok()) return OutOfFiles(folder.status());
    absl::StatusOr<Lane*> opened = OpenLane(*std::move(folder), id, false);
    if (!opened.ok()) return OutOfFiles(opened.status());
    lane = *opened;
  } else {
    for (auto& [known, there] : lanes_) {
      if (there.folder.dir() == request.lane_dir() && there.folder.uid() == peer.uid &&
          there.folder.kind() == LaneKind::kOwn) {
        lane = &there;
      }
    }
    if (lane == nullptr) {
      return absl::NotFoundError(absl::StrCat("there is no lane ", request.lane_dir(),
                                              " of yours; it was removed with its build"));
    }
    if (lane->attached || lane->root != id) {
      return absl::PermissionDeniedError(
          absl::StrCat(request.lane_dir(), " belongs to process ", lane->root.pid));
    }
  }
  lane->attached = true;
  lane->connection = peer.connection;
  v1::Attached attached;
  attached.set_lane_dir(lane->folder.dir());
  attached.set_cores(static_cast<uint32_t>(JobsOf(*lane)));
  attached.set_daemon_version(HEADROOM_VERSION);
  attached.set_private_daemon(options_.private_daemon);
  spdlog::debug("lane {} opened by process {} of user {}", lane->folder.name(), peer.pid, peer.uid);
  return attached;
}

absl::StatusOr<v1::LaneSummary> Daemon::OnDetach(const Peer& peer, const v1::DetachRequest&) {
  Lane* lane = FindByConnection(peer.connection);
  if (lane == nullptr) return absl::NotFoundError("this connection has no lane");
  const LaneId id = lane->id;
  // What happened since the last look belongs to the summary: an OOM kill is often the end.
  observer_.LookAtAll();
  lane = Find(id);
  if (lane == nullptr) return absl::NotFoundError("the lane is gone");
  LookForOomKills(*lane, true);
  v1::LaneSummary summary = lane->account.Summary(core_.Now());
  summary.set_daemon_restarted(lane->restarted);
  lane->attached = false;
  // `run` ends by itself; its lane goes as soon as it has no process of the build.
  lane->root = {};
  observer_.SetRoot(id, {});
  observer_.LookSoon();
  return summary;
}

void Daemon::OnDropped(const Peer& peer) {
  Lane* lane = FindByConnection(peer.connection);
  if (lane == nullptr) return;
  lane->attached = false;
  observer_.LookSoon();
}

absl::StatusOr<v1::Environment> Daemon::OnEnv(const Peer& peer) {
  if (options_.private_daemon) {
    return absl::FailedPreconditionError(
        "only a private daemon runs, which ends with its build; start one that stays: "
        "systemctl --user start headroomd (or run headroomd)");
  }
  Lane* lane = nullptr;
  for (auto& [id, there] : lanes_) {
    if (there.folder.kind() == LaneKind::kShared && there.folder.uid() == peer.uid) lane = &there;
  }
  if (lane == nullptr) {
    absl::StatusOr<LaneFolder> folder = folders_.OpenShared(peer.uid);
    if (!folder.ok()) return folder.status();
    absl::StatusOr<Lane*> opened = OpenLane(*std::move(folder), {}, false);
    if (!opened.ok()) return opened.status();
    lane = *opened;
  }
  v1::Environment environment;
  environment.set_lane_dir(lane->folder.dir());
  environment.set_cores(static_cast<uint32_t>(JobsOf(*lane)));
  return environment;
}

absl::StatusOr<v1::Status> Daemon::OnStatus(const Peer& peer) {
  // An idle daemon looks every few seconds; who asks gets what is.
  if (observer_.idle()) observer_.Look();
  StatusFacts facts;
  facts.version = HEADROOM_VERSION;
  facts.pid = getpid();
  facts.private_daemon = options_.private_daemon;
  facts.broken_invariants = core_.broken_invariants();
  facts.uptime = core_.Now() - started_;
  const Domains::HostExtras extras = observer_.domains().host_extras();
  facts.shmem = Bytes{extras.shmem_bytes};
  facts.arc_credit = Bytes{extras.arc_credit_bytes};
  for (const auto& [id, lane] : lanes_) {
    facts.lanes[id] = {lane.folder.dir(), lane.last_reason};
  }
  AddOutlook(core_.state(), facts);
  facts.notes = observer_.domains().notes();
  if (recorder_ != nullptr && !recorder_->problem().empty()) {
    facts.notes.push_back(recorder_->problem());
  }
  return BuildStatus(core_.state(), facts, core_.Now(), peer.uid);
}

absl::StatusOr<v1::Explanation> Daemon::OnExplain(const Peer& peer,
                                                  const v1::ExplainRequest& request) {
  const uint32_t last = request.last() == 0 ? kDecisionsShown : request.last();
  std::vector<const Decision*> chosen;
  const auto& all = core_.decisions();
  for (auto at = all.rbegin(); at != all.rend() && chosen.size() < last; ++at) {
    if (peer.uid != 0 && peer.uid != geteuid() && at->uid != peer.uid) continue;
    if (request.lane() != 0 && static_cast<uint32_t>(at->lane) != request.lane()) continue;
    chosen.push_back(&*at);
  }
  v1::Explanation explanation;
  for (auto at = chosen.rbegin(); at != chosen.rend(); ++at) {
    *explanation.add_decisions() = ToProto(**at);
  }
  return explanation;
}

absl::Status Daemon::OnReload(const Peer&) {
  return Reload();
}

absl::Status Daemon::Reload() {
  absl::StatusOr<Config> config = LoadConfig(options_.config_path);
  if (absl::IsNotFound(config.status())) config = Config{};
  if (!config.ok()) return config.status();
  for (const std::string& key : NeedRestart(options_.config, *config)) {
    spdlog::warn("{} has changed in {}; it takes effect after a restart", key,
                 options_.config_path);
  }
  options_.config = *std::move(config);
  reserve_ = options_.config.reserve;
  spdlog::set_level(spdlog::level::from_str(options_.config.log_level));
  observer_.SetOptions(ObserverOptions());
  Configure();
  for (auto& [id, lane] : lanes_) UpdateLane(lane);
  spdlog::info("configuration read again");
  return absl::OkStatus();
}

absl::Status Daemon::OnSet(const Peer& peer, const v1::SetRequest& request) {
  if (request.has_jobs()) {
    if (const absl::Status good = CheckJobs(request.jobs()); !good.ok()) return good;
  }
  if (const absl::Status good = CheckReserve(request.reserve()); !good.ok()) return good;
  const auto jobs = [&]() -> std::optional<int> {
    if (request.jobs() == 0) return std::nullopt;
    return static_cast<int>(request.jobs());
  };
  if (request.lane() == 0) {
    if (request.has_jobs()) options_.config.max_jobs = jobs();
    if (request.has_reserve()) {
      reserve_ = FromProto(request.reserve());
      Configure();
    }
    for (auto& [id, lane] : lanes_) UpdateLane(lane);
    return absl::OkStatus();
  }
  Lane* lane = Find(LaneId{request.lane()});
  const bool may =
      lane != nullptr && (peer.uid == 0 || peer.uid == geteuid() || peer.uid == lane->folder.uid());
  if (!may) {
    return absl::NotFoundError(absl::StrCat("there is no lane ", request.lane(),
                                            " of yours; 'headroom status' lists them"));
  }
  if (request.has_jobs()) lane->jobs = jobs();
  if (request.has_reserve()) lane->reserve = FromProto(request.reserve());
  UpdateLane(*lane);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Daemon::OnTrace(const Peer&) {
  if (recorder_ == nullptr) {
    return absl::FailedPreconditionError(
        "this daemon records nothing: trace.enabled is false in its configuration");
  }
  recorder_->Flush();
  if (!recorder_->problem().empty()) return absl::FailedPreconditionError(recorder_->problem());
  return recorder_->SegmentPaths();
}

// --- Life
// -----------------------------------------------------------------------------------------

void Daemon::WaitForSignals() {
  signals_.async_wait([this](boost::system::error_code error, int number) {
    if (error) return;
    if (number != SIGHUP) {
      spdlog::info("signal {}: this daemon ends, builds go on with the tokens that they have",
                   number);
      End();
      return;
    }
    notifier_.Reloading();
    if (const absl::Status reloaded = Reload(); !reloaded.ok()) {
      spdlog::error("configuration not changed: {}", Str(reloaded));
    }
    notifier_.Ready("serving");
    WaitForSignals();
  });
}

void Daemon::Housekeep() {
  // A private one never idles for long: it ends.
  housekeeping_.expires_after(options_.private_daemon ? milliseconds(kHousekeeping) / 4
                              : observer_.idle()      ? milliseconds(kHousekeeping) * 5
                                                      : milliseconds(kHousekeeping));
  housekeeping_.async_wait([this](boost::system::error_code error) {
    if (error || ending_) return;
    if (recorder_ != nullptr) recorder_->Flush();
    thawer_.Tend();
    gate_.Tend();
    EndIfDone();
    if (!ending_) Housekeep();
  });
}

void Daemon::End() {
  if (std::exchange(ending_, true)) return;
  notifier_.Stopping();
  control_->Stop();
  gate_.Stop();
  execs_descriptor_.reset();
  execs_timer_.cancel();
  observer_.Stop();
  std::vector<ProcId> frozen;
  for (const auto& [proc, pidfd] : thawer_.held()) frozen.push_back(proc);
  for (const ProcId& proc : frozen) Thaw(proc);
  if (recorder_ != nullptr) recorder_->Flush();
  io_.stop();
}

}  // namespace headroom::daemon
