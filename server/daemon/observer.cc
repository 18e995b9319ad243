#include "server/daemon/observer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/daemon/hints.h"
#include "server/policy/tool.h"
#include "server/sys/oom_score.h"
#include "server/sys/process.h"
#include "server/sys/process_table.h"

namespace headroom::daemon {
namespace {

using policy::Bytes;
using policy::DomainId;
using policy::Duration;
using policy::LaneId;
using policy::ProcId;
using policy::Role;
using policy::Time;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Enough to put a tool process before a shell, sshd or a desktop of the same size and half the
// machine more; below what a user may want for his own hog (1000).
constexpr int kToolOomScoreAdj = 500;

// The listing of 300 processes takes 0.3 ms: at 50 ms 0.6 % of a core, while memory is short.
constexpr int kScanPerFast = 5;
constexpr milliseconds kScanMin{50};
constexpr milliseconds kScanMax{250};
// Where no process of a lane came or went for kSettled: on a machine where others start processes
// all the time each scan lists them all. Who begins to take memory meanwhile is seen by the fast
// tier, which makes scans more frequent.
constexpr milliseconds kScanSettled{500};
constexpr seconds kSettled{2};
constexpr seconds kIdlePeriod{5};
// Something that happened is looked at after this: an opener has then exec'ed, and a burst of ends
// is one look.
constexpr milliseconds kSoon{2};

// A process that hasn't grown for so long leaves the fast tier, a new one enters it for as long.
constexpr seconds kGrowing{1};
// CPU time needs a second file: at this pace it costs a tenth of the fast tier.
constexpr milliseconds kCpuEvery{200};
// What doesn't grow: a pass over all of them takes 5 us each, so this often 0.1 % of a core; a
// short job's CPU time would else be known only up to its middle.
constexpr std::chrono::microseconds kStillEach{5000};
constexpr milliseconds kStillMin{200};
constexpr milliseconds kStillMax{900};

constexpr seconds kDomainEvery{5};
constexpr milliseconds kOpenersEvery{900};
constexpr milliseconds kOpenersGoneEvery{100};

bool Alive(const KnownProcess& process) {
  return !process.dead;
}

bool IsTool(const KnownProcess& process) {
  return Alive(process) && process.what.command.role == Role::kTool;
}

}  // namespace

Observer::Observer(boost::asio::io_context& io, ObserverHost& host, const sys::Roots& roots,
                   Domains domains, Options options)
    : io_(io),
      host_(host),
      roots_(roots),
      domains_(std::move(domains)),
      temp_space_(roots),
      options_(std::move(options)),
      catalog_(roots),
      timer_(io) {
  catalog_.SetExtraTools(options_.extra_tools);
}

Observer::~Observer() {
  Stop();
  readers_.stop();
  // A reader may hang in a user's file system; the pool's destructor waits for it, but the daemon's
  // end must not: see Daemon::Run, which leaves by _exit after all is closed.
}

void Observer::Start() {
  running_ = true;
  Look();
}

void Observer::Stop() {
  running_ = false;
  timer_.cancel();
  clients_.clear();
  for (auto& [id, entry] : lanes_) {
    entry.watch_descriptor.reset();
    entry.watch.reset();
  }
}

void Observer::SetOptions(Options options) {
  options_ = std::move(options);
  catalog_.SetExtraTools(options_.extra_tools);
}

void Observer::SetFast(Duration period, Duration glance) {
  if (fast_ == period && glance_ == glance) return;
  fast_ = period;
  glance_ = glance > Duration{0} ? std::max<Duration>(glance, options_.fast_min) : Duration{0};
  if (!running_ || idle_) return;
  const Time now = host_.Now();
  fast_due_ = std::min(fast_due_, now + FastPeriod());
  scan_due_ = std::min(scan_due_, now + ScanPeriod());
  glance_due_ = now + glance_;
  Arm();
}

std::chrono::nanoseconds Observer::FastPeriod() const {
  const std::chrono::nanoseconds want = fast_ > Duration{0} ? fast_ : Duration(options_.fast_max);
  return std::clamp<std::chrono::nanoseconds>(want, options_.fast_min, options_.fast_max);
}

std::chrono::nanoseconds Observer::ScanPeriod() const {
  const bool settled = host_.Now() - changed_at_ > kSettled;
  return std::clamp<std::chrono::nanoseconds>(kScanPerFast * FastPeriod(), kScanMin,
                                              settled ? kScanSettled : kScanMax);
}

void Observer::AddLane(Lane lane) {
  const LaneId id = lane.id;
  LaneEntry& entry = lanes_[id];
  entry.lane = std::move(lane);
  stale_ = true;
  std::set<uint32_t> uids;
  for (const auto& [other, there] : lanes_) uids.insert(there.lane.uid);
  catalog_.SetUsers(std::move(uids));
  temp_space_.Hold(id, entry.lane.root.pid);
  // Before its first job writes: what is free now is what its jobs may fill.
  if (policy::Sample sample; !(sample.temps = temp_space_.Read()).empty())
    host_.Emit(std::move(sample));
  if (running_) {
    SetIdle(false);
    LookSoon();
  }
}

DomainId Observer::Hold(LaneId lane, pid_t pid) {
  const DomainId domain = domains_.Hold(lane, pid);
  policy::Sample sample;
  sample.domains = domains_.ReadAll();
  host_.Emit(std::move(sample));
  return domain;
}

void Observer::RemoveLane(LaneId lane) {
  lanes_.erase(lane);
  stale_ = true;
  domains_.Drop(lane);
  temp_space_.Drop(lane);
  std::erase_if(told_jobs_, [&](const auto& job) { return job.second.lane == lane; });
}

void Observer::SetRoot(LaneId lane, const ProcId& root) {
  const auto entry = lanes_.find(lane);
  if (entry == lanes_.end()) return;
  entry->second.lane.root = root;
  stale_ = true;
  temp_space_.Hold(lane, root.pid);
}

void Observer::LookSoon() {
  if (!running_ || look_posted_) return;
  look_posted_ = true;
  SetIdle(false);
  const Time soon = host_.Now() + kSoon;
  scan_due_ = std::min(scan_due_, soon);
  Arm();
}

void Observer::Look() {
  Scan(host_.Now());
}

void Observer::LookAtAll() {
  slow_due_ = Time{};
  Look();
}

void Observer::Survey(std::set<uint32_t> uids) {
  domains_.Start([this](policy::Event event) { host_.Emit(std::move(event)); });
  catalog_.SetUsers(std::move(uids));
  catalog_.Refresh(host_.Now(), {});
}

void Observer::SetIdle(bool idle) {
  if (idle_ == idle) return;
  idle_ = idle;
  for (auto& [id, entry] : lanes_) {
    entry.watch_descriptor.reset();
    entry.watch.reset();
    if (!idle) continue;
    absl::StatusOr<sys::FifoWatch> watch = sys::FifoWatch::Open(*entry.lane.fifo);
    if (!watch.ok()) continue;  // the idle period finds it, later
    entry.watch = std::make_unique<sys::FifoWatch>(*std::move(watch));
    entry.watch_descriptor =
        std::make_unique<boost::asio::posix::stream_descriptor>(io_, dup(entry.watch->fd()));
    entry.watch_descriptor->async_wait(boost::asio::posix::descriptor_base::wait_read,
                                       [this](boost::system::error_code error) {
                                         // Whatever it was: a look costs little, and own reads and
                                         // writes are rare when idle.
                                         if (!error) LookSoon();
                                       });
  }
}

void Observer::Arm() {
  if (!running_) return;
  const Time now = host_.Now();
  Time due = scan_due_;
  if (!idle_) due = std::min(due, fast_due_);
  if (!idle_ && glance_ > Duration{0}) due = std::min(due, glance_due_);
  timer_.expires_after(std::max(Duration{0}, due - now));
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error && running_) OnTimer();
  });
}

void Observer::OnTimer() {
  const Time now = host_.Now();
  // A scan is a look as well: one that is nearly due isn't made twice.
  if (now + FastPeriod() / 2 >= scan_due_ && now >= std::min(scan_due_, fast_due_)) {
    Scan(now);
  } else if (now >= fast_due_) {
    Fast(now);
    Arm();
  } else {
    if (glance_ > Duration{0} && now >= glance_due_) Glance(now);
    Arm();
  }
}

void Observer::Glance(Time now) {
  glance_due_ = now + glance_;
  if (host_.NeedsLook(domains_.Glance())) Fast(now);
}

Duration Observer::StillPeriod() const {
  return std::clamp<Duration>(kStillEach * static_cast<int64_t>(tools_.size()), kStillMin,
                              kStillMax);
}

void Observer::Fast(Time now) {
  policy::Sample sample;
  sample.domains = domains_.ReadFast();
  for (auto& [id, entry] : lanes_) {
    policy::LaneSample lane;
    lane.id = id;
    lane.idle = host_.ReadIdle(id);
    lane.clients = entry.figures.clients;
    sample.lanes.push_back(lane);
  }
  const Duration still = StillPeriod();
  for (auto& [proc, tool] : tools_) {
    KnownProcess* process = tool.process;
    if (!process->reader) continue;
    if (now - process->grew_at > kGrowing && now - process->sampled_at < still) continue;
    if (!SampleProcess(*process, now, &sample.procs))
      scan_due_ = std::min(scan_due_, now + kScanMin);
  }
  fast_due_ = now + FastPeriod();
  glance_due_ = now + glance_;
  host_.Emit(std::move(sample));
}

bool Observer::SampleProcess(KnownProcess& process, Time now,
                             std::vector<policy::ProcSample>* samples) {
  std::optional<sys::AnonReader::Memory> memory;
  if (now - process.cpu_at >= kCpuEvery) {
    if (const std::optional<sys::AnonReader::Sample> read = process.reader->Read()) {
      process.cpu_at = now;
      process.cpu = read->cpu;
      memory = read->memory;
      process.files = std::max<int64_t>(0, memory->resident_bytes - memory->anon_bytes);
    }
  } else {
    memory = process.reader->ReadMemory();
  }
  if (!memory) {
    catalog_.LookSoon(process.id.pid);  // the next scan tells of its end
    return false;
  }
  const int64_t anon = memory->anon_bytes;
  if (anon > process.anon + options_.growth_bytes || process.sampled_at == Time{})
    process.grew_at = now;
  process.anon = anon;
  process.sampled_at = now;
  samples->push_back({process.id, Bytes{anon}, process.cpu});
  return true;
}

void Observer::Derive() {
  std::map<std::string, LaneId> lane_of_dir;
  std::vector<TreeRoot> roots;
  for (const auto& [id, entry] : lanes_) {
    lane_of_dir[entry.lane.dir] = id;
    roots.push_back({id, entry.lane.uid, entry.lane.root});
  }
  const std::vector<TreeProcess> processes = catalog_.ForTree(lane_of_dir);
  view_ = DeriveTree(processes, roots);
  view_ids_.clear();
  members_.clear();
  roots_of_lanes_.clear();
  for (const TreeRoot& root : roots) {
    if (root.root) roots_of_lanes_.insert(root.root.pid);
  }
  for (const TreeProcess& process : processes) view_ids_.push_back(process.id);
  for (auto& [id, entry] : lanes_) {
    entry.tree = view_.lanes[id];
    members_.insert(entry.tree.members.begin(), entry.tree.members.end());
  }
}

std::vector<pid_t> Observer::Openers(const sys::Fifo& fifo, uint32_t uid) const {
  std::vector<pid_t> pids;
  for (const auto& [pid, process] : catalog_.processes()) {
    if (process.dead) continue;
    if (process.uid == uid || process.uid == 0) pids.push_back(pid);
  }
  return sys::FindOpeners(roots_, fifo.id(), pids).pids;
}

bool Observer::IsOpen(const sys::Fifo& fifo, uint32_t uid) const {
  return !Openers(fifo, uid).empty();
}

// The events of a scan may make the policy mint or collect before its sample is told.
int Observer::IdleOf(const LaneEntry& entry) const {
  return entry.idle + static_cast<int>(host_.Moved(entry.lane.id) - entry.moved);
}

// Only where the books don't add up: who has the fifo open costs some 15 us a process to find out.
bool Observer::FindTokenTakers(Time now) {
  bool changed = false;
  for (auto& [id, entry] : lanes_) {
    entry.opened.reset();
    const int out = host_.Out(id, IdleOf(entry));
    const bool alone = entry.tree.clients.empty();
    const bool just_gone = alone && entry.figures.clients > 0;
    if (out <= 0 || out <= entry.tree.explained) continue;
    // The next client may start at once, and finds only what is there by then.
    if (!just_gone && now - entry.openers_at < (alone ? kOpenersGoneEvery : kOpenersEvery)) {
      continue;
    }
    entry.openers_at = now;
    std::vector<pid_t> candidates;
    for (const ProcId& member : entry.tree.members) {
      KnownProcess* process = catalog_.Find(member);
      if (process == nullptr || process->dead) continue;
      process->opener = false;
      if (process->what.is_shell || process->what.command.role == Role::kTool) continue;
      candidates.push_back(member.pid);
    }
    for (const pid_t pid : sys::FindOpeners(roots_, entry.lane.fifo->id(), candidates).pids) {
      catalog_.processes().at(pid).opener = true;
      changed = true;
    }
  }
  if (changed) Derive();
  for (auto& [id, entry] : lanes_) {
    if (entry.openers_at != now || !entry.tree.clients.empty()) continue;
    // A shell or `run` that only hands descriptors down can't hold a token.
    bool opened = false;
    for (const pid_t pid : Openers(*entry.lane.fifo, entry.lane.uid)) {
      const auto process = catalog_.processes().find(pid);
      if (process == catalog_.processes().end() || process->second.what.is_shell) continue;
      if (process->second.id == entry.lane.root) continue;
      opened = true;
    }
    entry.opened = opened;
  }
  return changed;
}

std::string Observer::Relative(const std::string& source, const std::string& cwd) const {
  if (cwd.empty() || source.size() <= cwd.size() + 1 || !source.starts_with(cwd) ||
      source[cwd.size()] != '/') {
    return source;
  }
  return source.substr(cwd.size() + 1);
}

void Observer::TellGone(const std::vector<KnownProcess>& gone, Time now) {
  const auto proc_gone = [&](KnownProcess& process) {
    if (tools_.erase(process.id) == 0) return;
    EndedTool ended;
    ended.proc = process.id;
    for (const auto& [id, entry] : lanes_) {
      const auto& members = entry.tree.members;
      if (std::binary_search(members.begin(), members.end(), process.id)) ended.lane = id;
    }
    ended.tool = process.what.command.name;
    ended.source = process.what.command.source;
    ended.anon_bytes = process.anon;
    ended.at = now;
    process.told = false;
    process.reader.reset();
    if (process.gated) return host_.OnGatedGone(ended);
    host_.Emit(policy::ProcGone{process.id});
    host_.OnEnded(ended);
  };
  for (const KnownProcess& process : gone) {
    // `gone` was moved out of the catalog; what is done to it here matters to nobody.
    proc_gone(const_cast<KnownProcess&>(process));
  }
  std::vector<KnownProcess*> become_other;
  for (auto& [id, tool] : tools_) {
    if (!tool.process->gated && !IsTool(*tool.process)) become_other.push_back(tool.process);
  }
  for (KnownProcess* process : become_other) proc_gone(*process);
}

void Observer::TellJobs() {
  std::map<ProcId, ToldJob> now_there;
  // The heaviest of what a job runs tells what it is: itself, what its shell line names, or a
  // descendant.
  std::map<ProcId, const KnownProcess*> known_by;
  const auto rank = [](const policy::Command& command) {
    if (command.role == Role::kDriver) return 2;
    if (command.role == Role::kTool) return 1;
    return 0;
  };
  for (size_t i = 0; i < view_ids_.size(); ++i) {
    if (view_.job_of[i] < 0) continue;
    const ProcId& job = view_ids_[static_cast<size_t>(view_.job_of[i])];
    const KnownProcess* process = catalog_.Find(view_ids_[i]);
    if (process == nullptr) continue;
    const KnownProcess*& best = known_by[job];
    if (best == nullptr || rank(process->what.runs) > rank(best->what.runs)) best = process;
  }
  for (auto& [id, entry] : lanes_) {
    for (const TreeJob& job : entry.tree.jobs) {
      ToldJob told;
      told.lane = id;
      told.driver = "other";
      const KnownProcess* client = catalog_.Find(job.client);
      const auto known = known_by.find(job.job);
      if (known != known_by.end() && rank(known->second->what.runs) > 0) {
        const policy::Command& command = known->second->what.runs;
        told.driver = DriverOf(command);
        told.source = Relative(command.source, client != nullptr ? client->cwd : std::string());
        told.fan_out = std::max(1, command.fan_out);
      }
      const auto before = told_jobs_.find(job.job);
      if (before == told_jobs_.end() || before->second.driver == "other") {
        if (before == told_jobs_.end() || told.driver != before->second.driver) {
          host_.Emit(
              policy::JobSeen{job.job, id, job.client, told.driver, told.source, told.fan_out});
        }
      } else {
        told = before->second;
      }
      now_there.emplace(job.job, std::move(told));
    }
  }
  for (const auto& [job, told] : told_jobs_) {
    if (!now_there.contains(job)) host_.Emit(policy::JobGone{job});
  }
  told_jobs_ = std::move(now_there);
}

void Observer::TellProcs(Time now) {
  for (size_t i = 0; i < view_ids_.size(); ++i) {
    KnownProcess* process = catalog_.Find(view_ids_[i]);
    if (process == nullptr || process->told || process->gated || !IsTool(*process)) continue;
    std::optional<sys::AnonReader> reader =
        sys::AnonReader::Open(roots_, {process->id.pid, process->id.start});
    if (!reader) {
      stale_ = true;
      continue;
    }
    const LaneId lane = view_.lane_of[i];
    policy::ProcSeen seen;
    seen.proc = process->id;
    seen.lane = lane;
    seen.uid = process->uid;
    if (view_.job_of[i] >= 0) seen.job = view_ids_[static_cast<size_t>(view_.job_of[i])];
    seen.domain = domains_.Lookup(process->id.pid);
    seen.info.tool = process->what.command.name;
    seen.info.flags_hash = policy::FlagsHash(process->argv);
    std::string cwd;
    if (lane != LaneId::kNone) {
      for (const TreeJob& job : lanes_.at(lane).tree.jobs) {
        if (job.job != seen.job) continue;
        if (const KnownProcess* client = catalog_.Find(job.client)) cwd = client->cwd;
      }
      // The kernel takes a compiler, then, and never the user's shell. Not ours to raise: too bad.
      sys::RaiseOomScoreAdj(roots_, {process->id.pid, process->id.start}, kToolOomScoreAdj)
          .IgnoreError();
    }
    seen.info.source = Relative(process->what.command.source, cwd);
    // A look into another user's file system may hang: only for our own processes.
    if (process->uid == geteuid()) {
      for (const std::string& word : process->argv) {
        const bool input = word.ends_with(".ii") || word.ends_with(".i") ||
                           word.ends_with(".ptx") || word == process->what.command.source;
        if (!input || word.starts_with('-')) continue;
        const std::string path =
            word.starts_with('/') ? word
                                  : absl::StrCat(roots_.proc, "/", process->id.pid, "/cwd/", word);
        struct stat info {};
        if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
          seen.info.input_bytes = info.st_size;
          break;
        }
      }
    }
    if (lane != LaneId::kNone) {
      const ObserverHost::Claim claim = host_.OnFound(*process, lane, seen);
      if (claim != ObserverHost::Claim::kTell) {
        // To be asked again: what the gate says of it changes by itself.
        stale_ = true;
        continue;
      }
    }
    Begin(*process, *std::move(reader), seen.job, now);
    host_.Emit(std::move(seen));
  }
}

void Observer::Begin(KnownProcess& process, sys::AnonReader reader, const ProcId& job, Time now) {
  process.told = true;
  process.reader = std::move(reader);
  process.grew_at = now;
  process.sampled_at = Time{};
  process.cpu_at = Time{};
  tools_[process.id] = {job, &process};
  stale_ = true;
}

bool Observer::Follow(const ProcId& proc, const ProcId& job) {
  const Time now = host_.Now();
  KnownProcess* process = catalog_.Learn(proc, now);
  if (process == nullptr) return false;
  std::optional<sys::AnonReader> reader =
      sys::AnonReader::Open(roots_, {process->id.pid, process->id.start});
  if (!reader) return false;
  process->gated = true;
  Begin(*process, *std::move(reader), job, now);
  return true;
}

std::optional<int64_t> Observer::Unfollow(const ProcId& proc) {
  KnownProcess* process = catalog_.Find(proc);
  if (process == nullptr || !process->gated) return std::nullopt;
  tools_.erase(proc);
  stale_ = true;
  process->gated = false;
  process->told = false;
  process->reader.reset();
  if (process->cpu_at == Time{}) return std::nullopt;  // never looked at
  return process->files;
}

void Observer::Retract(const ProcId& proc) {
  KnownProcess* process = catalog_.Find(proc);
  if (process == nullptr || !process->told || process->gated) return;
  tools_.erase(proc);
  stale_ = true;
  process->told = false;
  process->reader.reset();
}

Placement Observer::PlaceOf(LaneId lane, pid_t pid) const {
  Placement place;
  const auto entry = lanes_.find(lane);
  if (entry == lanes_.end()) return place;
  const TreeLane& tree = entry->second.tree;
  const auto is_client = [&](const ProcId& id) {
    return std::binary_search(tree.clients.begin(), tree.clients.end(), id) ||
           std::binary_search(tree.nested.begin(), tree.nested.end(), id);
  };
  constexpr int kMostHops = 64;
  std::optional<sys::ProcStat> at = sys::ReadProcStat(roots_, pid);
  for (int hop = 0; at && at->ppid > 1 && hop < kMostHops; ++hop) {
    std::optional<sys::ProcStat> parent = sys::ReadProcStat(roots_, at->ppid);
    if (!parent) break;
    place.ancestors.push_back(parent->pid);
    const ProcId parent_id{parent->pid, parent->start_ticks};
    // By its first word alone: a shell is none, whatever its line says.
    if (const auto words = sys::ReadCmdline(roots_, parent->pid); words && !words->empty()) {
      const policy::Role role =
          policy::Recognise(sys::Basename(words->front()), std::span(*words).first(1)).role;
      if (role == policy::Role::kClient || role == policy::Role::kDriver) {
        place.awaited.push_back({parent_id, {at->pid, at->start_ticks}});
      }
    }
    if (!place.job && is_client(parent_id)) {
      place.job = {at->pid, at->start_ticks};
      const auto known = catalog_.processes().find(parent->pid);
      if (known != catalog_.processes().end()) place.build_dir = known->second.cwd;
    }
    if (parent_id == entry->second.lane.root) break;
    at = std::move(parent);
  }
  return place;
}

policy::Sample Observer::SampleDomains() {
  policy::Sample sample;
  sample.domains = domains_.ReadAll();
  return sample;
}

void Observer::FollowDomains(Time now) {
  for (auto& [id, entry] : lanes_) {
    std::vector<ProcId> whose = entry.tree.clients;
    if (whose.empty() && entry.lane.root) whose.push_back(entry.lane.root);
    if (whose.empty()) continue;  // as it was: the next build is likely to run there, too
    if (whose == entry.domain_of && now - entry.domain_at < kDomainEvery) continue;
    entry.domain_of = whose;
    entry.domain_at = now;
    // Many clients of a shared lane: the first few tell.
    constexpr size_t kMost = 16;
    if (whose.size() > kMost) whose.resize(kMost);
    std::vector<DomainId> domains;
    for (const ProcId& proc : whose) domains.push_back(domains_.Hold(id, proc.pid));
    if (std::all_of(domains.begin(), domains.end(),
                    [&](DomainId there) { return there == entry.domain; })) {
      continue;
    }
    // What is left there has to be known before it is chosen, and before the policy plans with it.
    policy::Sample sample;
    sample.domains = domains_.ReadAll();
    host_.Emit(std::move(sample));
    const DomainId domain = domains_.Tightest(domains);
    if (domain == entry.domain) continue;
    entry.domain = domain;
    host_.OnDomain(id, domain);
  }
}

void Observer::ReadHints(LaneEntry& entry, const KnownProcess& client) {
  if (client.what.command.name != "ninja" || !hinted_.insert(client.id).second) return;
  const LaneId lane = entry.lane.id;
  boost::asio::post(readers_,
                    [this, lane, proc = roots_.proc, pid = client.id.pid, argv = client.argv] {
                      std::vector<policy::LaneHint::Edges> edges = ReadNinjaHints(proc, pid, argv);
                      if (edges.empty()) return;
                      boost::asio::post(io_, [this, lane, edges = std::move(edges)]() mutable {
                        if (running_ && lanes_.contains(lane)) {
                          host_.Emit(policy::LaneHint{lane, std::move(edges)});
                        }
                      });
                    });
}

void Observer::FollowClients() {
  std::set<ProcId> there;
  for (auto& [id, entry] : lanes_) {
    std::erase_if(entry.hints, [&](const auto& hint) { return !clients_.contains(hint.first); });
    for (const std::vector<ProcId>* list : {&entry.tree.clients, &entry.tree.nested}) {
      for (const ProcId& proc : *list) {
        there.insert(proc);
        if (clients_.contains(proc)) continue;
        if (const KnownProcess* client = catalog_.Find(proc)) ReadHints(entry, *client);
        absl::StatusOr<sys::PidFd> pidfd = sys::PidFd::Open(roots_, {proc.pid, proc.start});
        if (!pidfd.ok()) continue;  // gone, or no pidfds here: the next scan tells
        auto descriptor =
            std::make_unique<boost::asio::posix::stream_descriptor>(io_, dup(pidfd->fd()));
        descriptor->async_wait(boost::asio::posix::descriptor_base::wait_read,
                               [this](boost::system::error_code error) {
                                 if (!error) LookSoon();
                               });
        clients_.emplace(proc, Watched{*std::move(pidfd), std::move(descriptor)});
      }
    }
  }
  std::erase_if(clients_, [&](const auto& client) { return !there.contains(client.first); });
  std::erase_if(hinted_, [&](const ProcId& client) { return !there.contains(client); });
}

void Observer::Count() {
  std::set<ProcId> with_running;
  std::set<ProcId> with_frozen;
  for (auto& [id, entry] : lanes_) {
    entry.figures = {};
    entry.figures.members = static_cast<int>(entry.tree.members.size());
    entry.figures.clients = static_cast<int>(entry.tree.clients.size());
  }
  // Both are in the order of pids.
  auto tool = tools_.begin();
  for (size_t i = 0; i < view_ids_.size() && tool != tools_.end(); ++i) {
    while (tool != tools_.end() && tool->first < view_ids_[i]) ++tool;
    if (tool == tools_.end()) break;
    const LaneId lane = view_.lane_of[i];
    if (lane == LaneId::kNone || tool->first != view_ids_[i]) continue;
    const KnownProcess* process = tool->second.process;
    LaneFigures& figures = lanes_.at(lane).figures;
    figures.anon_bytes += process->anon;
    const bool frozen = host_.IsFrozen(process->id);
    if (!frozen) ++figures.running_tools;
    const ProcId job = tool->second.job;
    if (job) (frozen ? with_frozen : with_running).insert(job);
  }
  for (auto& [id, entry] : lanes_) {
    for (const TreeJob& job : entry.tree.jobs) {
      const bool frozen = with_frozen.contains(job.job) && !with_running.contains(job.job);
      if (!frozen) ++entry.figures.running_jobs;
    }
  }
}

void Observer::Scan(Time now) {
  look_posted_ = false;
  // Before the processes: a token that is taken in between is then not mistaken for a lost one.
  for (auto& [id, entry] : lanes_) {
    entry.idle = host_.ReadIdle(id);
    entry.moved = host_.Moved(id);
  }
  const Catalog::Changes changes = catalog_.Refresh(now, members_, roots_of_lanes_);
  bool changed = std::exchange(stale_, false) || changes.any;
  if (changed) {
    TellGone(changes.gone, now);
    Derive();
  }
  if (FindTokenTakers(now)) changed = true;
  FollowDomains(now);
  if (changed) {
    changed_at_ = now;
    TellJobs();
    TellProcs(now);
    FollowClients();
  }

  policy::Sample sample;
  const bool slow = now >= slow_due_;
  if (slow) slow_due_ = now + options_.slow;
  sample.domains = slow ? domains_.ReadAll() : domains_.ReadFast();
  if (slow) sample.temps = temp_space_.Read();
  for (auto& [proc, tool] : tools_) {
    KnownProcess* process = tool.process;
    if (!process->reader) continue;
    if (!slow && now - process->grew_at > kGrowing && now - process->sampled_at < StillPeriod()) {
      continue;
    }
    SampleProcess(*process, now, &sample.procs);
  }
  Count();
  bool busy = false;
  for (auto& [id, entry] : lanes_) {
    policy::LaneSample lane;
    lane.id = id;
    lane.idle = IdleOf(entry);
    lane.clients = entry.figures.clients;
    lane.explained = entry.tree.explained;
    lane.opened = entry.opened;
    sample.lanes.push_back(lane);
    busy = busy || entry.lane.kind == policy::LaneKind::kOwn || entry.figures.clients > 0 ||
           entry.figures.running_tools > 0 || host_.Out(id, IdleOf(entry)) > 0;
  }
  host_.Emit(std::move(sample));
  host_.OnScanned();
  if (!running_) return;
  SetIdle(!busy);
  const Time after = host_.Now();
  scan_due_ = after + (idle_ ? std::chrono::nanoseconds(kIdlePeriod) : ScanPeriod());
  fast_due_ = after + FastPeriod();
  glance_due_ = after + glance_;
  Arm();
}

LaneFigures Observer::figures(LaneId lane) const {
  const auto entry = lanes_.find(lane);
  return entry == lanes_.end() ? LaneFigures{} : entry->second.figures;
}

bool Observer::MayTouch(LaneId lane, const ProcId& proc) const {
  const auto entry = lanes_.find(lane);
  if (entry == lanes_.end() || !tools_.contains(proc)) return false;
  const auto& members = entry->second.tree.members;
  if (!std::binary_search(members.begin(), members.end(), proc)) return false;
  const auto process = catalog_.processes().find(proc.pid);
  return process != catalog_.processes().end() && process->second.id == proc &&
         process->second.uid == entry->second.lane.uid;
}

bool Observer::Lives(const std::string& dir, const ProcId& root) {
  for (const auto& [pid, process] : catalog_.processes()) {
    if (process.dead) continue;
    if (root && process.id == root) return true;
    if (!dir.empty() && process.lane_dir == dir) return true;
  }
  return false;
}

}  // namespace headroom::daemon
