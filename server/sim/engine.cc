#include "server/sim/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headroom::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// How fast the kernel takes back the memory of a killed process: 4 KiB pages, about 0.35 us each
// for anonymous memory (an exit of 1 GB takes 0.08 to 0.1 s).
constexpr double kReleaseBytesPerSecond = 10e9;
constexpr double kKillLatencySeconds = 0.002;
constexpr int kReleaseChunks = 8;

// A token that a client gives back while the daemon waits for it: who reads it first? Measured with
// a reader at real-time priority, 5 tokens owed and 80 job starts a second: 1 to 5 starts slip in,
// so about two of three returns are caught.
constexpr double kCatches = 0.65;

}  // namespace

Engine::Engine(EngineConfig config, Scheduler& scheduler)
    : config_(std::move(config)), scheduler_(scheduler), race_(Mix(config_.seed, 0x7ACE)) {
  for (const BuildSpec& spec : config_.builds) {
    Build build;
    build.spec = spec;
    if (build.spec.order.empty()) {
      for (size_t i = 0; i < spec.commands->size(); ++i) {
        build.spec.order.push_back(static_cast<int>(i));
      }
    }
    builds_.push_back(std::move(build));
  }
}

double Engine::Rate() const {
  const double wanted = running_ + load_cores_;
  return wanted <= config_.cores ? 1.0 : config_.cores / wanted;
}

double Engine::CpuOf(int id) const {
  const Proc& proc = procs_[Index(id)];
  return proc.state == ProcState::kRunning ? service_ - proc.base : proc.cpu;
}

double Engine::BytesOf(int id) const {
  const Proc& proc = procs_[Index(id)];
  switch (proc.state) {
    case ProcState::kWaiting:
    case ProcState::kDone:
      return 0;
    case ProcState::kFrozen:
    case ProcState::kDying:
      return proc.held;
    case ProcState::kRunning:
      break;
  }
  if (proc.next_knot >= proc.shape->knots.size())
    return proc.shape->knots.back().bytes * proc.scale;
  const Knot& next = proc.shape->knots[proc.next_knot];
  return next.bytes * proc.scale - proc.slope * (proc.base + next.cpu - service_);
}

void Engine::At(double at, std::function<void()> what) {
  timers_.push({std::max(at, now_), timer_order_++, std::move(what)});
}

// --- Processes
// ------------------------------------------------------------------------------------

void Engine::Arm(int id) {
  Proc& proc = procs_[Index(id)];
  const std::vector<Knot>& knots = proc.shape->knots;
  const Knot& next = knots[proc.next_knot];
  const Knot& last = knots[proc.next_knot - 1];
  proc.slope = (next.bytes - last.bytes) * proc.scale / (next.cpu - last.cpu);
  slope_ += proc.slope;
  knots_.push({proc.base + next.cpu, id, proc.generation});
}

void Engine::Start(int id) {
  Proc& proc = procs_[Index(id)];
  if (proc.state != ProcState::kWaiting) return;
  proc.state = ProcState::kRunning;
  proc.started_at = now_;
  proc.base = service_;
  proc.next_knot = 1;
  ++proc.generation;
  ++running_;
  used_ += proc.shape->knots.front().bytes * proc.scale;
  Arm(id);
}

double Engine::Leave(int id) {
  Proc& proc = procs_[Index(id)];
  const double bytes = BytesOf(id);
  proc.cpu = CpuOf(id);
  proc.peak_seen = std::max(proc.peak_seen, bytes);
  ++proc.generation;
  slope_ -= proc.slope;
  --running_;
  if (running_ == 0) slope_ = 0;  // whatever rounding has left there
  return bytes;
}

void Engine::Freeze(int id) {
  Proc& proc = procs_[Index(id)];
  if (proc.state != ProcState::kRunning) return;
  proc.held = Leave(id);
  proc.state = ProcState::kFrozen;
  ++result_.freezes;
}

void Engine::Thaw(int id) {
  Proc& proc = procs_[Index(id)];
  if (proc.state != ProcState::kFrozen) return;
  proc.state = ProcState::kRunning;
  proc.base = service_ - proc.cpu;
  ++running_;
  // On the same part of its curve as before.
  const Knot& next = proc.shape->knots[proc.next_knot];
  slope_ += proc.slope;
  knots_.push({proc.base + next.cpu, id, proc.generation});
}

void Engine::Evict(int id) {
  Proc& proc = procs_[Index(id)];
  if (proc.state == ProcState::kRunning) {
    proc.held = Leave(id);
  } else if (proc.state != ProcState::kFrozen) {
    return;
  }
  proc.state = ProcState::kDying;
  ++result_.evictions;
  result_.wasted_cpu_s += proc.cpu;
  result_.cpu_s += proc.cpu;
  // Its pages come back one after another.
  const double chunk = proc.held / kReleaseChunks;
  for (int i = 1; i <= kReleaseChunks; ++i) {
    At(now_ + kKillLatencySeconds + i * chunk / kReleaseBytesPerSecond, [this, id, chunk, i] {
      Proc& gone = procs_[Index(id)];
      used_ -= chunk;
      gone.held -= chunk;
      if (i < kReleaseChunks) return;
      gone.held = 0;
      gone.state = ProcState::kWaiting;
      gone.ready_at = now_;
      ++gone.attempt;
      scheduler_.OnEnd(*this, id, ProcEnd::kEvicted);
      procs_[Index(id)].cpu = 0;
    });
  }
}

// The kernel's OOM killer: the largest tool process. Where none runs, the other load has taken all
// memory by itself, and one of its processes goes.
void Engine::KernelKills() {
  int victim = -1;
  double most = 0;
  for (int id = 0; id < static_cast<int>(procs_.size()); ++id) {
    const ProcState state = procs_[Index(id)].state;
    if (state != ProcState::kRunning && state != ProcState::kFrozen) continue;
    if (const double bytes = BytesOf(id); bytes > most) {
      most = bytes;
      victim = id;
    }
  }
  if (result_.first_oom_s == 0) result_.first_oom_s = now_;
  if (victim < 0) {
    ++result_.foreign_kills;
    load_bytes_ = std::min(load_bytes_, config_.mem_bytes - used_) * 0.5;
    return;
  }
  Proc& proc = procs_[Index(victim)];
  const double bytes = proc.state == ProcState::kRunning ? Leave(victim) : proc.held;
  used_ -= bytes;
  ++result_.oom_kills;
  result_.wasted_cpu_s += proc.cpu;
  result_.cpu_s += proc.cpu;
  proc.held = 0;
  scheduler_.OnEnd(*this, victim, ProcEnd::kOomKilled);
  if (scheduler_.Retries(*this, victim)) {
    Proc& again = procs_[Index(victim)];
    again.state = ProcState::kWaiting;
    again.cpu = 0;
    again.ready_at = now_;
    ++again.attempt;
    return;
  }
  Proc& dead = procs_[Index(victim)];
  dead.state = ProcState::kDone;
  Job& job = jobs_[Index(dead.job)];
  job.failed = true;
  Build& build = builds_[Index(dead.build)];
  if (!build.failed) build.failed_at = now_;
  build.failed = true;
  if (--job.live == 0) EndJob(dead.job);
}

void Engine::ProcEnded(int id) {
  Proc& proc = procs_[Index(id)];
  used_ -= Leave(id);
  result_.cpu_s += proc.cpu;
  proc.state = ProcState::kDone;
  const int job = proc.job;
  const int copy = proc.copy;
  scheduler_.OnEnd(*this, id, ProcEnd::kExit);
  Advanced(job, copy);
}

// --- Jobs
// -----------------------------------------------------------------------------------------

void Engine::Spawn(int job_id, int shape, int copy) {
  Proc proc;
  const Job& job = jobs_[Index(job_id)];
  proc.build = job.build;
  proc.job = job_id;
  proc.command = job.command;
  proc.shape_index = shape;
  proc.copy = copy;
  proc.shape = &(*builds_[Index(job.build)].spec.commands)[Index(job.command)].shapes[Index(shape)];
  proc.ready_at = now_;
  if (config_.noise > 0) {
    uint64_t key = Mix(config_.seed, static_cast<uint64_t>(job.build));
    key = Mix(key, static_cast<uint64_t>(job.command));
    key = Mix(key, static_cast<uint64_t>(shape));
    key = Mix(key, static_cast<uint64_t>(copy + 1));
    proc.scale = Rng(key).Uniform(1 - config_.noise, 1 + config_.noise);
  }
  const int id = static_cast<int>(procs_.size());
  procs_.push_back(proc);
  jobs_[Index(job_id)].procs.push_back(id);
  scheduler_.OnReady(*this, id);
}

void Engine::StartStage(int job_id, const Stage& stage, int copy) {
  ++jobs_[Index(job_id)].live;
  const auto spawn = [this, job_id, shape = stage.shape, copy] {
    Job& job = jobs_[Index(job_id)];
    if (!job.failed) {
      Spawn(job_id, shape, copy);
    } else if (--job.live == 0) {  // a sibling died meanwhile: the driver gives up
      EndJob(job_id);
    }
  };
  if (stage.gap_s > 0) {
    At(now_ + stage.gap_s, spawn);
  } else {
    spawn();
  }
}

void Engine::NextStage(int job_id) {
  const Command& command = (*builds_[Index(jobs_[Index(job_id)].build)]
                                 .spec.commands)[Index(jobs_[Index(job_id)].command)];
  const BuildSpec& spec = builds_[Index(jobs_[Index(job_id)].build)].spec;
  for (;;) {
    Job& job = jobs_[Index(job_id)];
    if (job.part == 1) {
      const int chains = command.Chains(spec.archs);
      if (job.chains_done == chains) {
        job.part = 2;
        job.stage = 0;
        continue;
      }
      while (jobs_[Index(job_id)].chains_started < chains &&
             jobs_[Index(job_id)].chains_started - jobs_[Index(job_id)].chains_done <
                 std::max(1, spec.threads)) {
        const int copy = jobs_[Index(job_id)].chains_started++;
        jobs_[Index(job_id)].chain_stage.push_back(0);
        StartStage(job_id, command.Chain(copy)[0], copy);
      }
      return;
    }
    const std::vector<Stage>& stages = job.part == 0 ? command.front : command.back;
    if (Index(job.stage) < stages.size()) {
      StartStage(job_id, stages[Index(job.stage++)], -1);
      return;
    }
    if (job.part == 0) {
      job.part = 1;
      continue;
    }
    // The driver's last work, then its end.
    ++job.live;
    At(now_ + command.end_gap_s, [this, job_id] {
      Job& ended = jobs_[Index(job_id)];
      if (--ended.live == 0) EndJob(job_id);
    });
    return;
  }
}

void Engine::Advanced(int job_id, int copy) {
  Job& job = jobs_[Index(job_id)];
  --job.live;
  if (job.failed) {
    if (job.live == 0) EndJob(job_id);
    return;
  }
  if (copy < 0) {
    if (job.live == 0) NextStage(job_id);
    return;
  }
  const std::vector<Stage>& chain =
      (*builds_[Index(job.build)].spec.commands)[Index(job.command)].Chain(copy);
  const int stage = ++job.chain_stage[Index(copy)];
  if (Index(stage) < chain.size()) {
    StartStage(job_id, chain[Index(stage)], copy);
    return;
  }
  ++job.chains_done;
  NextStage(job_id);
}

void Engine::EndJob(int job_id) {
  Job& job = jobs_[Index(job_id)];
  job.done = true;
  const int build_id = job.build;
  Build& build = builds_[Index(build_id)];
  --build.running;
  ++build.done;
  ++build.client_wakes;
  const bool with_token = job.has_token;
  scheduler_.OnJobEnded(*this, job_id);
  if (with_token) {
    ReturnToken(build_id);
  } else {
    build.implicit_used = false;
  }
}

// --- Build tools
// ----------------------------------------------------------------------------------

void Engine::ReturnToken(int build_id) {
  Build& build = builds_[Index(build_id)];
  --build.held;
  if (build.debt > 0 && race_.Chance(kCatches)) {
    --build.debt;
    --build.minted;
    scheduler_.OnCollected(*this, build_id, 1);
  } else {
    ++build.idle;
  }
}

void Engine::Mint(int build_id, int count) {
  Build& build = builds_[Index(build_id)];
  build.minted += count;
  build.idle += count;
  if (build.spec.client != ClientKind::kNinja113) ++build.client_wakes;
}

int Engine::Collect(int build_id, int debt) {
  Build& build = builds_[Index(build_id)];
  const int now = std::min(build.idle, debt);
  build.idle -= now;
  build.minted -= now;
  build.debt = debt - now;
  return now;
}

void Engine::StartJob(int build_id, bool with_token) {
  Build& build = builds_[Index(build_id)];
  Job job;
  job.build = build_id;
  job.command = build.spec.order[Index(build.next++)];
  job.started_at = now_;
  job.has_token = with_token;
  ++build.running;
  const int id = static_cast<int>(jobs_.size());
  jobs_.push_back(std::move(job));
  scheduler_.OnJobStarted(*this, id);
  NextStage(id);
}

void Engine::ClientStarts(int build_id) {
  for (;;) {
    Build& build = builds_[Index(build_id)];
    if (build.failed || Index(build.next) >= build.spec.order.size()) break;
    if (build.spec.client == ClientKind::kFixed) {
      if (build.running >= build.spec.jobs) break;
      build.implicit_used = true;
      StartJob(build_id, false);
      continue;
    }
    if (!build.implicit_used) {
      build.implicit_used = true;
      StartJob(build_id, false);
    } else if (build.idle > 0) {
      --build.idle;
      ++build.held;
      StartJob(build_id, true);
    } else {
      break;
    }
  }
  FinishBuild(build_id);
}

void Engine::FinishBuild(int build_id) {
  Build& build = builds_[Index(build_id)];
  if (build.finished || build.running > 0) return;
  if (!build.failed && Index(build.next) < build.spec.order.size()) return;
  build.finished = true;
  build.finished_at = now_;
  ++finished_;
  scheduler_.OnBuildEnded(*this, build_id);
}

void Engine::Settle() {
  bool again = true;
  while (again) {
    again = false;
    for (int id = 0; id < build_count(); ++id) {
      Build& build = builds_[Index(id)];
      if (!build.started || build.finished || build.client_wakes == 0) continue;
      build.client_wakes = 0;
      ClientStarts(id);
    }
    scheduler_.Decide(*this);
    for (const Build& build : builds_) {
      again = again || (build.started && !build.finished && build.client_wakes > 0);
    }
  }
}

// --- Time
// -----------------------------------------------------------------------------------------

void Engine::Advance(double dt) {
  now_ += dt;
  const double given = dt * Rate();
  service_ += given;
  used_ += slope_ * given;
}

RunResult Engine::Run() {
  for (const LoadStep& step : config_.load) {
    At(step.at_s, [this, step] {
      load_bytes_ = step.bytes;
      load_cores_ = step.cores;
    });
  }
  scheduler_.Begin(*this);
  for (int id = 0; id < build_count(); ++id) {
    At(builds_[Index(id)].spec.starts_at_s, [this, id] {
      scheduler_.OnBuildStarted(*this, id);
      At(now_ + builds_[Index(id)].spec.parse_s, [this, id] {
        builds_[Index(id)].started = true;
        builds_[Index(id)].client_wakes = 1;
      });
    });
  }
  for (;;) {
    Settle();
    if (finished_ == build_count()) break;
    if (config_.stop_on_failure && result_.oom_kills > 0 &&
        std::any_of(builds_.begin(), builds_.end(), [](const Build& b) { return b.failed; })) {
      break;
    }
    while (!knots_.empty() &&
           knots_.top().generation != procs_[Index(knots_.top().proc)].generation) {
      knots_.pop();
    }
    const double rate = Rate();
    const double to_knot = knots_.empty() ? kNever : (knots_.top().service - service_) / rate;
    const double to_timer = timers_.empty() ? kNever : timers_.top().at - now_;
    const double room = config_.mem_bytes - memory_used();
    const double to_oom = room < 0 ? 0 : (slope_ > 0 ? room / (slope_ * rate) : kNever);
    const double dt = std::max(0.0, std::min({to_knot, to_timer, to_oom}));
    if (running_ > 0 ||
        std::any_of(builds_.begin(), builds_.end(), [](const Build& b) { return !b.started; })) {
      ran_at_ = now_;
    }
    if (dt == kNever || now_ > ran_at_ + config_.idle_limit_s) {
      result_.hung = true;
      break;
    }
    Advance(dt);
    result_.peak_bytes = std::max(result_.peak_bytes, memory_used());
    if (to_oom <= to_knot && to_oom <= to_timer) {
      KernelKills();
      continue;
    }
    if (to_timer <= to_knot) {
      const std::function<void()> what = timers_.top().what;
      now_ = timers_.top().at;
      timers_.pop();
      what();
      continue;
    }
    const int id = knots_.top().proc;
    knots_.pop();
    Proc& proc = procs_[Index(id)];
    const Knot& reached = proc.shape->knots[proc.next_knot];
    service_ = proc.base + reached.cpu;
    proc.peak_seen = std::max(proc.peak_seen, reached.bytes * proc.scale);
    if (++proc.next_knot == proc.shape->knots.size()) {
      --proc.next_knot;  // BytesOf() still looks at it
      ProcEnded(id);
    } else {
      slope_ -= proc.slope;
      Arm(id);
    }
  }
  result_.seconds = now_;
  for (const Build& build : builds_) {
    if (!build.failed) continue;
    result_.seconds = result_.failed ? std::min(result_.seconds, build.failed_at) : build.failed_at;
    result_.failed = true;
  }
  result_.failed = result_.failed || result_.hung;
  return result_;
}

}  // namespace headroom::sim
