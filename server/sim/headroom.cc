#include "server/sim/headroom.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <string_view>
#include <utility>

#include "server/policy/tool.h"

namespace headroom::sim {
namespace {

using policy::Bytes;
using policy::DomainId;
using policy::Duration;
using policy::GateId;
using policy::LaneId;
using policy::ProcId;

constexpr DomainId kHost{1};
constexpr uint32_t kUid = 1000;

// Delays, in seconds.
constexpr double kSocketSeconds = 0.0005;   // one message over the gate's socket, woken at the end
constexpr double kExecSeenSeconds = 0.002;  // exec event to the process being known
constexpr double kExitSeenSeconds = 0.002;
constexpr double kFifoSeenSeconds = 0.0005;  // inotify, p50 28 us, and a round of the loop
constexpr double kSignalSeconds = 0.001;
constexpr double kWriteSeconds = 0.0002;
constexpr double kHintSeconds = 0.010;  // finding and reading the client's build.ninja
constexpr double kSlowLookSeconds = 1.0;

// The step's clock begins well after Time{}, which the policy uses for "never".
constexpr double kEpochSeconds = 1000;

// The tools that the preload library stops before main() (design.md, The gate, in detail).
constexpr std::array<std::string_view, 14> kGated = {
    "cicc", "ptxas",  "nvlink",  "cudafe++", "cc1",    "cc1plus", "lto1",
    "f951", "ld.bfd", "ld.gold", "ld",       "ld.lld", "mold",    "rustc"};

bool IsGated(std::string_view tool) {
  return std::find(kGated.begin(), kGated.end(), tool) != kGated.end();
}

LaneId LaneOf(int build) {
  return LaneId{static_cast<uint32_t>(build + 1)};
}
int BuildOf(LaneId lane) {
  return static_cast<int>(lane) - 1;
}
GateId GateOf(int proc) {
  return GateId{static_cast<uint64_t>(proc + 1)};
}
int ProcOf(GateId gate) {
  return static_cast<int>(static_cast<uint64_t>(gate)) - 1;
}

// Identities: ranges of pids by kind; the attempt is the start time.
ProcId ClientPid(int build) {
  return {10 + build, 1};
}
ProcId JobPid(int job) {
  return {1'000'000 + job, 1};
}
ProcId KeeperPid(int proc) {
  return {10'000'000 + proc, 1};
}
ProcId WorkerPid(int proc, int attempt) {
  return {100'000'000 + proc, static_cast<uint64_t>(attempt)};
}
int ProcOf(ProcId worker) {
  return worker.pid - 100'000'000;
}

Bytes ToBytes(double bytes) {
  return {static_cast<int64_t>(bytes)};
}
Duration ToDuration(double seconds) {
  return Duration{static_cast<int64_t>(std::llround(seconds * 1e9))};
}

int64_t InputOf(const policy::Reason& reason, policy::Input input) {
  for (const policy::Reason::Value& value : reason.inputs) {
    if (value.input == input) return value.value;
  }
  return -1;
}

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace

Headroom::Headroom(HeadroomOptions options) : options_(std::move(options)) {
  state_.profile = options_.profile;
}

policy::Time Headroom::Now(const Engine& engine) const {
  return policy::Time{ToDuration(kEpochSeconds + engine.now())};
}

Headroom::Known& Headroom::known(int proc) {
  if (known_.size() <= static_cast<size_t>(proc)) known_.resize(static_cast<size_t>(proc) + 1);
  return known_[static_cast<size_t>(proc)];
}

void Headroom::Broke(const std::string& what) {
  if (broken_.size() < 20 && std::find(broken_.begin(), broken_.end(), what) == broken_.end()) {
    broken_.push_back(what);
  }
}

void Headroom::Feed(Engine& engine, const policy::Event& event) {
  const std::vector<policy::Action> actions = policy::Step(state_, event, Now(engine));
  ++steps_;
  for (const std::string& broken : policy::BrokenInvariants(state_)) {
    Broke("at " + std::to_string(engine.now()) + " s: " + broken);
  }
  for (const policy::Action& action : actions) {
    if (options_.actions && options_.timeline != nullptr) Tell(engine, action);
    Carry(engine, action);
  }
}

void Headroom::Carry(Engine& engine, const policy::Action& action) {
  const auto later = [&engine](double delay, std::function<void()> what) {
    engine.At(engine.now() + delay, std::move(what));
  };
  std::visit(
      Overloaded{
          [&](const policy::Mint& mint) {
            if (mint.count <= 0) Broke("Mint of " + std::to_string(mint.count));
            later(kWriteSeconds, [this, &engine, lane = mint.lane, count = mint.count] {
              engine.Mint(BuildOf(lane), count);
              const int idle = engine.build(BuildOf(lane)).idle;
              told_idle_[static_cast<size_t>(BuildOf(lane))] = idle;
              Feed(engine, policy::TokensMoved{lane, count, 0, idle});
            });
          },
          [&](const policy::Collect& collect) {
            later(kWriteSeconds, [this, &engine, lane = collect.lane, debt = collect.debt] {
              const int taken = engine.Collect(BuildOf(lane), debt);
              if (taken > 0) OnCollected(engine, BuildOf(lane), taken);
            });
          },
          [&](const policy::Freeze& freeze) {
            later(kSignalSeconds, [&engine, worker = freeze.proc] {
              const int proc = ProcOf(worker);
              if (WorkerPid(proc, engine.proc(proc).attempt) == worker) engine.Freeze(proc);
            });
          },
          [&](const policy::Thaw& thaw) {
            later(kSignalSeconds, [&engine, worker = thaw.proc] {
              const int proc = ProcOf(worker);
              if (WorkerPid(proc, engine.proc(proc).attempt) == worker) engine.Thaw(proc);
            });
          },
          [&](const policy::Admit& admit) {
            const int proc = ProcOf(admit.gate);
            Known& known_proc = known(proc);
            known_proc.predicted = static_cast<double>(admit.predicted_peak.count);
            known_proc.source =
                static_cast<int>(InputOf(admit.reason, policy::Input::kPredictionSource));
            later(kSocketSeconds, [this, &engine, proc, attempt = engine.proc(proc).attempt] {
              if (engine.proc(proc).attempt != attempt) return;
              engine.Start(proc);
              const ProcId worker = WorkerPid(proc, attempt);
              Started(engine, proc, worker);
            });
          },
          [&](const policy::Evict& evict) {
            later(kSocketSeconds, [&engine, proc = ProcOf(evict.gate)] { engine.Evict(proc); });
          },
          [&](const policy::Verdict& verdict) {
            Known& known_proc = known(ProcOf(verdict.gate));
            known_proc.verdict_given = true;
            known_proc.verdict_again = verdict.again;
            known_proc.floor = verdict.floor;
          },
          [&](const policy::SetSampling& sampling) {
            fast_s_ = std::chrono::duration<double>(sampling.fast).count();
            glance_s_ = std::chrono::duration<double>(sampling.glance).count();
            LookLater(engine);
          },
      },
      action);
}

// --- What the daemon sees
// -------------------------------------------------------------------------

policy::ToolInfo Headroom::InfoOf(const Engine& engine, int id) const {
  const Proc& proc = engine.proc(id);
  policy::ToolInfo info;
  info.tool = proc.shape->tool;
  info.source = (*engine.build(proc.build).spec.commands)[static_cast<size_t>(proc.command)].source;
  // Each arch has flags of its own.
  info.flags_hash = policy::FlagsHash(
      std::vector<std::string>{info.tool, "-arch", "sm_" + std::to_string(80 + proc.copy)});
  info.input_bytes = proc.shape->input_bytes;
  return info;
}

policy::DomainSample Headroom::HostSample(const Engine& engine) const {
  policy::DomainSample sample;
  sample.id = kHost;
  sample.available = ToBytes(std::max(0.0, engine.memory_free()));
  sample.oom_kills = static_cast<uint64_t>(engine.oom_kills());
  sample.psi_full_avg10 = policy::Permyriad{0};
  return sample;
}

policy::LaneSample Headroom::LaneSampleOf(const Engine& engine, int build) const {
  policy::LaneSample sample;
  sample.id = LaneOf(build);
  sample.idle = engine.build(build).idle;
  sample.clients = engine.build(build).started && !engine.build(build).finished ? 1 : 0;
  return sample;
}

void Headroom::Begin(Engine& engine) {
  told_idle_.assign(static_cast<size_t>(engine.build_count()), 0);
  lane_pending_.assign(static_cast<size_t>(engine.build_count()), false);
  lane_open_.assign(static_cast<size_t>(engine.build_count()), false);
  policy::Configure configure;
  configure.prediction = options_.prediction;
  configure.spoiled_peak = options_.spoiled_peak;
  Feed(engine, configure);
  policy::DomainSeen host;
  host.id = kHost;
  host.name = "host";
  host.limit = ToBytes(engine.config().mem_bytes);
  Feed(engine, host);
  Look(engine, true);
}

void Headroom::OnBuildStarted(Engine& engine, int build) {
  policy::LaneOpened lane;
  lane.id = LaneOf(build);
  lane.kind = policy::LaneKind::kOwn;
  lane.uid = kUid;
  lane.name = "run-" + std::to_string(build);
  lane.domain = kHost;
  lane.cores = std::max(1, static_cast<int>(engine.config().cores));
  lane.jobs_cap = options_.jobs;
  lane.gated = options_.gated;
  lane_open_[static_cast<size_t>(build)] = true;
  Feed(engine, lane);
  engine.At(engine.now() + kHintSeconds, [this, &engine, build] {
    const Build& b = engine.build(build);
    if (b.finished) return;
    policy::Sample sample;
    policy::LaneSample lane_sample = LaneSampleOf(engine, build);
    lane_sample.opened = true;
    sample.lanes.push_back(lane_sample);
    Feed(engine, sample);
    if (!options_.hint) return;
    policy::LaneHint hint;
    hint.id = LaneOf(build);
    for (const int index : b.spec.order) {
      const Command& command = (*b.spec.commands)[static_cast<size_t>(index)];
      const int fan_out =
          std::max(1, std::min(command.Chains(b.spec.archs), std::max(1, b.spec.threads)));
      auto edge = std::find_if(hint.edges.begin(), hint.edges.end(), [&](const auto& e) {
        return e.driver == command.driver && e.fan_out == fan_out;
      });
      if (edge == hint.edges.end()) {
        hint.edges.push_back({command.driver, 0, fan_out});
        edge = hint.edges.end() - 1;
      }
      ++edge->count;
    }
    Feed(engine, hint);
  });
}

void Headroom::OnBuildEnded(Engine& engine, int build) {
  lane_open_[static_cast<size_t>(build)] = false;
  engine.At(engine.now() + kExitSeenSeconds,
            [this, &engine, build] { Feed(engine, policy::LaneClosed{LaneOf(build)}); });
}

void Headroom::OnJobStarted(Engine& engine, int id) {
  engine.At(engine.now() + kExecSeenSeconds, [this, &engine, id] {
    const Job& job = engine.job(id);
    const Build& build = engine.build(job.build);
    const Command& command = (*build.spec.commands)[static_cast<size_t>(job.command)];
    policy::JobSeen seen;
    seen.job = JobPid(id);
    seen.lane = LaneOf(job.build);
    seen.client = ClientPid(job.build);
    seen.driver = command.driver;
    seen.source = command.source;
    seen.fan_out =
        std::max(1, std::min(command.Chains(build.spec.archs), std::max(1, build.spec.threads)));
    Feed(engine, seen);
  });
}

void Headroom::OnJobEnded(Engine& engine, int id) {
  engine.At(engine.now() + kExitSeenSeconds,
            [this, &engine, id] { Feed(engine, policy::JobGone{JobPid(id)}); });
}

void Headroom::TellProc(Engine& engine, int id) {
  const Proc& proc = engine.proc(id);
  const std::string word = proc.shape->tool;
  const policy::Command command = policy::Recognise(word, std::vector<std::string>{word});
  if (command.role != policy::Role::kTool) return;
  policy::ProcSeen seen;
  seen.proc = WorkerPid(id, proc.attempt);
  seen.job = JobPid(proc.job);
  seen.lane = LaneOf(proc.build);
  seen.domain = kHost;
  seen.info = InfoOf(engine, id);
  seen.gate = known(id).gated ? GateOf(id) : GateId::kNone;
  seen.uid = kUid;
  known(id).seen = true;
  alive_.push_back(id);
  Feed(engine, seen);
}

void Headroom::Ask(Engine& engine, int id, Bytes floor) {
  const Proc& proc = engine.proc(id);
  policy::GateRequest request;
  request.gate = GateOf(id);
  request.lane = LaneOf(proc.build);
  request.domain = kHost;
  request.keeper = KeeperPid(id);
  request.job = JobPid(proc.job);
  request.info = InfoOf(engine, id);
  request.replayable = true;
  request.attempt = proc.attempt;
  request.floor = floor;
  request.evictions = known(id).evictions;
  request.oom_kills = known(id).oom_kills;
  Feed(engine, request);
}

void Headroom::OnReady(Engine& engine, int id) {
  Known& known_proc = known(id);
  known_proc.gated = options_.gated && IsGated(engine.proc(id).shape->tool);
  if (known_proc.gated) {
    engine.At(engine.now() + kSocketSeconds, [this, &engine, id] { Ask(engine, id, Bytes{}); });
    return;
  }
  engine.Start(id);
  engine.At(engine.now() + kExecSeenSeconds, [this, &engine, id] {
    if (engine.proc(id).state != ProcState::kDone) TellProc(engine, id);
  });
}

void Headroom::Started(Engine& engine, int id, ProcId worker) {
  engine.At(engine.now() + kSocketSeconds, [this, &engine, id, worker] {
    const Proc& proc = engine.proc(id);
    if (proc.state == ProcState::kDone || WorkerPid(id, proc.attempt) != worker) return;
    Feed(engine, policy::GateStarted{GateOf(id), worker});
    TellProc(engine, id);
  });
}

void Headroom::OnEnd(Engine& engine, int id, ProcEnd end) {
  const Proc proc = engine.proc(id);
  Known& known_proc = known(id);
  std::erase(alive_, id);
  const bool seen = std::exchange(known_proc.seen, false);
  // After an eviction the engine has already counted the next attempt.
  const ProcId worker = WorkerPid(id, end == ProcEnd::kEvicted ? proc.attempt - 1 : proc.attempt);
  if (!known_proc.gated) {
    if (seen) {
      engine.At(engine.now() + kExitSeenSeconds,
                [this, &engine, worker] { Feed(engine, policy::ProcGone{worker}); });
    }
    return;
  }
  policy::GateEnded ended;
  ended.gate = GateOf(id);
  ended.peak = ToBytes(proc.peak_seen);
  ended.cpu = ToDuration(proc.cpu);
  switch (end) {
    case ProcEnd::kExit: {
      ended.end = policy::GateEnd::kExit;
      Coverage& coverage = coverage_[{proc.shape->tool, known_proc.source}];
      const double peak = proc.shape->peak * proc.scale;
      ++coverage.processes;
      coverage.covered += peak <= known_proc.predicted ? 1 : 0;
      coverage.ratio_sum += known_proc.predicted / peak;
      break;
    }
    case ProcEnd::kEvicted:
      ended.end = policy::GateEnd::kEvicted;
      ended.code = 9;
      ++known_proc.evictions;
      break;
    case ProcEnd::kOomKilled:
      return;  // Retries() is asked next
  }
  engine.At(engine.now() + kSocketSeconds, [this, &engine, id, ended, worker, seen, end] {
    Feed(engine, ended);
    if (seen) Feed(engine, policy::ProcGone{worker});
    if (end == ProcEnd::kEvicted) {
      engine.At(engine.now() + kSocketSeconds,
                [this, &engine, id, floor = ended.peak] { Ask(engine, id, floor); });
    }
  });
}

bool Headroom::Retries(Engine& engine, int id) {
  if (!known(id).gated) return false;
  const ProcId worker = WorkerPid(id, engine.proc(id).attempt);
  known(id).verdict_given = false;
  ++known(id).oom_kills;
  // The daemon looks at the kernel's counter before it asks the policy.
  policy::Sample sample;
  sample.domains.push_back(HostSample(engine));
  Feed(engine, sample);
  policy::GateEnded ended;
  ended.gate = GateOf(id);
  ended.end = policy::GateEnd::kKilled;
  ended.code = 9;
  ended.peak = ToBytes(engine.proc(id).peak_seen);
  ended.cpu = ToDuration(engine.proc(id).cpu);
  Feed(engine, ended);
  Feed(engine, policy::ProcGone{worker});
  if (!known(id).verdict_given) Broke("no verdict on a worker that the OOM killer took");
  if (!known(id).verdict_again) return false;
  engine.At(engine.now() + kSocketSeconds,
            [this, &engine, id] { Ask(engine, id, known(id).floor); });
  return true;
}

void Headroom::OnCollected(Engine& engine, int build, int count) {
  // Also called from within the engine's own steps: told from a step of its own.
  engine.At(engine.now() + kFifoSeenSeconds, [this, &engine, build, count] {
    const int idle = engine.build(build).idle;
    told_idle_[static_cast<size_t>(build)] = idle;
    Feed(engine, policy::TokensMoved{LaneOf(build), 0, count, idle});
  });
}

void Headroom::TellLane(Engine& engine, int build) {
  lane_pending_[static_cast<size_t>(build)] = false;
  if (!lane_open_[static_cast<size_t>(build)]) return;
  told_idle_[static_cast<size_t>(build)] = engine.build(build).idle;
  policy::Sample sample;
  sample.lanes.push_back(LaneSampleOf(engine, build));
  Feed(engine, sample);
}

// The fifo's inotify events: what changed is looked at once, shortly after.
void Headroom::Decide(Engine& engine) {
  for (int build = 0; build < engine.build_count(); ++build) {
    const size_t i = static_cast<size_t>(build);
    if (!lane_open_[i] || lane_pending_[i] || engine.build(build).idle == told_idle_[i]) continue;
    lane_pending_[i] = true;
    engine.At(engine.now() + kFifoSeenSeconds, [this, &engine, build] { TellLane(engine, build); });
  }
}

void Headroom::Look(Engine& engine, bool all) {
  policy::Sample sample;
  sample.domains.push_back(HostSample(engine));
  for (const int id : alive_) {
    const Proc& proc = engine.proc(id);
    if (proc.state == ProcState::kDying) continue;
    sample.procs.push_back(
        {WorkerPid(id, proc.attempt), ToBytes(engine.BytesOf(id)), ToDuration(engine.CpuOf(id))});
  }
  std::sort(sample.procs.begin(), sample.procs.end(),
            [](const auto& a, const auto& b) { return a.proc < b.proc; });
  if (all) {
    for (int build = 0; build < engine.build_count(); ++build) {
      if (!lane_open_[static_cast<size_t>(build)]) continue;
      policy::LaneSample lane = LaneSampleOf(engine, build);
      lane.explained = engine.build(build).held;
      lane.opened = lane.clients > 0;
      told_idle_[static_cast<size_t>(build)] = lane.idle;
      sample.lanes.push_back(lane);
    }
    slow_look_at_ = engine.now() + kSlowLookSeconds;
    if (options_.timeline != nullptr) Timeline(engine);
  }
  look_at_ = engine.now();
  Feed(engine, sample);
  LookLater(engine);
}

void Headroom::LookLater(Engine& engine) {
  double interval = fast_s_ > 0 ? fast_s_ : kSlowLookSeconds;
  interval = std::max(interval, options_.fastest_look_s);
  const double look = std::min(look_at_ + interval, slow_look_at_);
  double at = look;
  if (glance_s_ > 0) {
    const double glance = std::max(glance_s_, options_.fastest_look_s);
    at = std::min(look, std::max(look_at_, glance_at_) + glance);
  }
  at = std::max(engine.now(), at);
  const uint64_t round = ++look_round_;
  engine.At(at, [this, &engine, round, glance = at < look] {
    if (round != look_round_) return;
    if (glance) {
      glance_at_ = engine.now();
      const policy::DomainSample sample = HostSample(engine);
      if (!policy::NeedsLook(state_, std::span(&sample, 1))) return LookLater(engine);
    }
    Look(engine, engine.now() >= slow_look_at_ - 1e-9);
  });
}

void Headroom::Tell(const Engine& engine, const policy::Action& action) {
  std::ostream& out = *options_.timeline;
  const auto line = [&](const char* what, int proc, const policy::Reason& reason) {
    const Proc& p = engine.proc(proc);
    out << std::fixed << std::setprecision(3) << engine.now() << " s  " << what << ' ' << proc
        << ' ' << p.shape->tool << " attempt " << p.attempt << " bytes "
        << engine.BytesOf(proc) / 1e9 << " cpu " << engine.CpuOf(proc) << " true peak "
        << p.shape->peak * p.scale / 1e9 << " free " << engine.memory_free() / 1e9 << "  reason "
        << static_cast<int>(reason.code);
    for (const policy::Reason::Value& value : reason.inputs) {
      out << ' ' << static_cast<int>(value.input) << '=' << static_cast<double>(value.value) / 1e9;
    }
    out << '\n';
  };
  std::visit(
      Overloaded{
          [](const policy::Mint&) {},
          [](const policy::Collect&) {},
          [](const policy::SetSampling&) {},
          [&](const policy::Freeze& freeze) { line("freeze", ProcOf(freeze.proc), freeze.reason); },
          [&](const policy::Thaw& thaw) { line("thaw", ProcOf(thaw.proc), thaw.reason); },
          [&](const policy::Admit& admit) { line("admit", ProcOf(admit.gate), admit.reason); },
          [&](const policy::Evict& evict) { line("evict", ProcOf(evict.gate), evict.reason); },
          [&](const policy::Verdict& verdict) {
            line(verdict.again ? "again" : "give up", ProcOf(verdict.gate), verdict.reason);
          },
      },
      action);
}

void Headroom::Timeline(Engine& engine) {
  int waiting = 0;
  int frozen = 0;
  int dying = 0;
  for (const Proc& proc : engine.procs()) {
    waiting += proc.state == ProcState::kWaiting ? 1 : 0;
    frozen += proc.state == ProcState::kFrozen ? 1 : 0;
    dying += proc.state == ProcState::kDying ? 1 : 0;
  }
  std::ostream& out = *options_.timeline;
  out << std::fixed << std::setprecision(1) << engine.now() << " s  memory "
      << engine.memory_used() / 1e9 << " GB  running " << engine.running() << "  waiting "
      << waiting << "  frozen " << frozen << "  dying " << dying;
  for (int build = 0; build < engine.build_count(); ++build) {
    const Build& b = engine.build(build);
    out << "  [jobs " << b.running << " done " << b.done << " minted " << b.minted << " idle "
        << b.idle << " debt " << b.debt << "]";
  }
  out << '\n';
}

}  // namespace headroom::sim
