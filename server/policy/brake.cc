#include "server/policy/brake.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/policy/gate.h"
#include "server/policy/track.h"

namespace headroom::policy {
namespace {

// What the domain still loses before an action takes effect: one sample, the signal, the kernel.
constexpr double kReactSeconds = 0.3;

// An action's effect shows within this time; the next one waits for it.
constexpr Duration kSettle = std::chrono::milliseconds(200);

// Nothing is thawed sooner, so that a decision on the edge does not flutter.
constexpr Duration kLeastFrozen = std::chrono::milliseconds(500);

// Who has just been let go at the gate may be seen before its keeper has told of it, and looks like
// one that no gate holds. It was planned with, and to stop it at once would undo the decision.
constexpr Duration kKeeperTells = std::chrono::seconds(1);

// An expected excess below this share of the domain is noise.
constexpr double kNoise = 0.02;

// The horizon up to which the others' growth is held against the oldest: 2 s, time for several
// looks and for a signal to reach a busy process.
constexpr size_t kSoon = 1;

// What the expected sum, without safety, lacks at a horizon against the domain less `reserve`.
double Shortfall(const Plan::Domain& d, double reserve, size_t horizon) {
  const double foreign = d.foreign_rate * std::min(3.0, kHorizonSeconds[horizon]);
  return d.growth[horizon] + foreign - (d.available - reserve);
}

// The first horizon at which it lacks more than `noise`; kHorizons: none. What comes after it need
// not be looked at: by then the kernel has killed.
size_t ShortAt(const Plan::Domain& d, double reserve, double noise) {
  size_t h = 0;
  while (h < kHorizons && Shortfall(d, reserve, h) <= noise) ++h;
  return h;
}

Reason Why(ReasonCode code, const Plan::Domain& d, const Unit& unit) {
  double growth = 0;
  for (double g : d.growth) growth = std::max(growth, g);
  return Reason{code,
                {{Input::kDomain, static_cast<int64_t>(d.id)},
                 {Input::kAvailableBytes, static_cast<int64_t>(d.available)},
                 {Input::kReserveBytes, static_cast<int64_t>(d.reserve)},
                 {Input::kExpectedGrowthBytes, static_cast<int64_t>(growth)},
                 {Input::kFillRateBytesPerSecond, static_cast<int64_t>(d.fill_rate)},
                 {Input::kProcBytes, unit.now.count},
                 {Input::kPredictedPeakBytes, static_cast<int64_t>(unit.forecast.peak)}}};
}

// The tool processes of each job that is planned with as a whole, by the job's position; made when
// first asked for, in one pass.
class JobProcs {
 public:
  explicit JobProcs(State& state) : state_(state) {}

  std::vector<ProcState*> Of(size_t job) {
    if (first_.empty()) Make();
    std::vector<ProcState*> procs;
    for (size_t i = first_[job]; i < first_[job + 1]; ++i)
      procs.push_back(&state_.procs[procs_[i]]);
    return procs;
  }

  // Calls `visit(proc, job's position)` for each. Most processes are of the same job as the one
  // before: the look-up is not repeated.
  template <typename Visit>
  void ForEach(Visit visit) {
    JobState* job = nullptr;
    for (ProcState& proc : state_.procs) {
      if (!proc.in_job) continue;
      job = FindJob(state_, proc.job, job);
      if (job != nullptr) visit(proc, static_cast<size_t>(job - state_.jobs.data()));
    }
  }

 private:
  void Make() {
    first_.assign(state_.jobs.size() + 2, 0);
    ForEach([&](ProcState&, size_t job) { ++first_[job + 2]; });
    for (size_t i = 2; i < first_.size(); ++i) first_[i] += first_[i - 1];
    procs_.resize(first_.back());
    ForEach([&](ProcState& proc, size_t job) {
      procs_[first_[job + 1]++] = static_cast<size_t>(&proc - state_.procs.data());
    });
  }

  State& state_;
  std::vector<size_t> first_;  // of job i: procs_[first_[i] .. first_[i + 1])
  std::vector<size_t> procs_;
};

// Stops or continues all tool processes of a unit.
void Signal(State& state, JobProcs& job_procs, const Unit& unit, bool freeze, const Reason& reason,
            Time now, std::vector<Action>& actions) {
  const auto one = [&](ProcState& proc) {
    if (proc.frozen == freeze) return;
    proc.frozen = freeze;
    if (freeze) {
      proc.frozen_at = now;
      actions.push_back(Freeze{proc.proc, proc.lane, reason});
    } else {
      proc.thawed_at = now;
      actions.push_back(Thaw{proc.proc, proc.lane, reason});
    }
  };
  if (!unit.job) {
    one(state.procs[unit.index]);
    return;
  }
  state.jobs[unit.index].frozen = freeze;
  for (ProcState* proc : job_procs.Of(unit.index)) one(*proc);
}

Time FrozenAt(const State& state, JobProcs& job_procs, const Unit& unit) {
  if (!unit.job) return state.procs[unit.index].frozen_at;
  Time at{};
  for (const ProcState* proc : job_procs.Of(unit.index)) at = std::max(at, proc->frozen_at);
  return at;
}

bool CanFreeze(const State& state, const Unit& unit, Time now) {
  if (unit.frozen || unit.lane == LaneId::kNone) return false;
  if (unit.job) return state.jobs[unit.index].procs > 0;
  const ProcState& proc = state.procs[unit.index];
  if (proc.gate == GateId::kNone && now - proc.use.since < kKeeperTells) {
    const auto lane = state.lanes.find(unit.lane);
    return lane == state.lanes.end() || !lane->second.gated;
  }
  return true;
}

// Of a gated process that can be run again, null for any other.
const GateState* Replayable(const State& state, const Unit& unit) {
  if (unit.job) return nullptr;
  const GateId gate = state.procs[unit.index].gate;
  const auto found = gate == GateId::kNone ? state.gates.end() : state.gates.find(gate);
  return found != state.gates.end() && found->second.replayable ? &found->second : nullptr;
}

// What it will come to at most: with 95 % as long as only the prior is known, then with 84 %; what
// is missed then, the next looks still see in time.
double AtMost(const Plan& plan, const Unit& unit) {
  const Model& model = plan.predictor().models()[static_cast<size_t>(unit.slot)];
  const Forecast& f = unit.forecast;
  const double var = f.own_var + f.common_gain * f.common_gain * model.total_var;
  const double deviations = model.source == PredictionSource::kPrior ? 1.645 : 1.0;
  return f.peak * std::exp(deviations * std::sqrt(var));
}

// What it is expected to take until then; below zero: it will have given back.
double Growth(const Unit& unit, size_t horizon) {
  return static_cast<double>(unit.forecast.level[horizon]) - static_cast<double>(unit.now.count);
}

}  // namespace

void WatchDomains(State& state, const Plan& plan, Time now) {
  for (const Plan::Domain& d : plan.domains()) {
    DomainState& domain = state.domains.at(d.id);
    if (!state.prediction) {
      domain.braking = false;
      continue;
    }
    const double soon = d.available - std::max(0.0, domain.fill_rate) * kReactSeconds;
    if (soon < d.reserve / 2) {
      if (!domain.braking) domain.brake_since = now;
      domain.braking = true;
    } else if (domain.braking && soon > 0.9 * d.reserve) {
      domain.braking = false;
    }
  }
}

void Brake(State& state, Plan& plan, Time now, std::vector<Action>& actions) {
  if (!state.prediction) return;
  const std::vector<Unit>& units = plan.units();
  const size_t domain_count = plan.domains().size();
  const size_t none = units.size();
  JobProcs job_procs(state);

  // Processes that a frozen job has started since.
  if (plan.any_frozen()) {
    std::vector<bool> late(state.jobs.size());
    job_procs.ForEach([&](const ProcState& proc, size_t job) {
      if (!proc.frozen && state.jobs[job].frozen) late[job] = true;
    });
    for (size_t i = 0; i < units.size(); ++i) {
      const Unit& unit = units[i];
      if (!unit.job || !unit.frozen || unit.domain < 0 || !late[unit.index]) continue;
      Signal(state, job_procs, unit, true,
             Why(ReasonCode::kBrake, plan.domains()[static_cast<size_t>(unit.domain)], unit), now,
             actions);
    }
  }

  // Stopped before its keeper had told of it: the gate has planned with it, and can take it back.
  for (size_t i = 0; plan.any_frozen() && i < units.size(); ++i) {
    const Unit& unit = units[i];
    const GateState* gate = Replayable(state, unit);
    if (!unit.frozen || unit.domain < 0 || gate == nullptr || gate->phase != GatePhase::kRunning) {
      continue;
    }
    plan.Thaw(i);
    Signal(state, job_procs, unit, false,
           Why(ReasonCode::kRoomAgain, plan.domains()[static_cast<size_t>(unit.domain)], unit), now,
           actions);
  }

  // In each domain and all below it, the oldest that moves.
  std::vector<size_t> oldest(domain_count, none);
  for (size_t i = 0; i < units.size(); ++i) {
    const Unit& unit = units[i];
    if (unit.frozen || unit.lane == LaneId::kNone) continue;
    for (int at = unit.domain; at >= 0; at = plan.domains()[static_cast<size_t>(at)].parent) {
      size_t& first = oldest[static_cast<size_t>(at)];
      if (first == none || unit.since < units[first].since) first = i;
    }
  }
  // In each domain and all below it, who may be stopped, and in each domain alone, who may go on.
  // Made when somebody must stop or may go on, which is seldom; heaps, since few are taken.
  const auto younger = [&](size_t a, size_t b) {
    return std::pair(units[a].since, b) > std::pair(units[b].since, a);
  };
  const auto less_young = [&](size_t a, size_t b) { return younger(b, a); };
  std::vector<std::vector<size_t>> moving(domain_count);
  std::vector<std::vector<size_t>> standing(domain_count);
  bool listed = false;
  const auto list = [&] {
    if (listed) return;
    listed = true;
    for (size_t i = 0; i < units.size(); ++i) {
      const Unit& unit = units[i];
      if (unit.frozen && unit.domain >= 0 && unit.lane != LaneId::kNone) {
        standing[static_cast<size_t>(unit.domain)].push_back(i);
      }
      if (!CanFreeze(state, unit, now)) continue;
      // A gated process that can be run again is evicted (gate.cc), and only when memory is really
      // short: what it then gives back is worth more than standing still.
      if (Replayable(state, unit) != nullptr) continue;
      for (int at = unit.domain; at >= 0; at = plan.domains()[static_cast<size_t>(at)].parent) {
        if (oldest[static_cast<size_t>(at)] != i) moving[static_cast<size_t>(at)].push_back(i);
      }
    }
  };
  const auto take = [](std::vector<size_t>& heap, const auto& less) {
    std::pop_heap(heap.begin(), heap.end(), less);
    const size_t top = heap.back();
    heap.pop_back();
    return top;
  };

  for (size_t at = 0; at < domain_count; ++at) {
    const Plan::Domain& d = plan.domains()[at];
    DomainState& domain = state.domains.at(d.id);
    const double noise = kNoise * d.limit;

    // The oldest must be able to finish: what it may need at most, with what the others grow by
    // until the next looks, stays below what is left. Then, whatever happens, it ends and makes
    // room.
    const size_t first = oldest[at];
    double first_own = 0;
    double first_most = 0;
    if (first != none) {
      const double has = static_cast<double>(units[first].now.count);
      first_own = static_cast<double>(units[first].forecast.level[kSoon]) - has;
      first_most = AtMost(plan, units[first]) - has;
    }
    const auto oldest_squeezed = [&] {
      return first != none &&
             first_most + std::max(0.0, d.growth[kSoon] - first_own) > d.available - d.reserve / 2;
    };

    // Freeze, youngest first.
    bool urgent = domain.braking && now - domain.brake_acted >= kSettle;
    const auto short_at = [&] { return ShortAt(d, d.reserve * 0.5, noise); };
    const auto short_of_it = [&] { return urgent || oldest_squeezed() || short_at() < kHorizons; };
    // Whoever will have ended by the time that counts gives back more by going on.
    const auto helps = [&](const Unit& unit) {
      const double least = noise / 8;
      if (urgent && Growth(unit, 0) > 0) return true;
      if (oldest_squeezed() && Growth(unit, kSoon) > least) return true;
      const size_t horizon = short_at();
      return horizon < kHorizons && Growth(unit, horizon) > least;
    };
    if (short_of_it()) {
      list();
      std::vector<size_t>& heap = moving[at];
      std::make_heap(heap.begin(), heap.end(), less_young);
      const auto freeze = [&](size_t i) {
        const Unit& unit = units[i];
        Signal(state, job_procs, unit, true, Why(ReasonCode::kBrake, d, unit), now, actions);
        plan.Freeze(i);
        standing[static_cast<size_t>(unit.domain)].push_back(i);
        domain.brake_acted = now;
        urgent = false;
      };
      size_t youngest = none;  // of those that are expected to give back
      while (!heap.empty() && d.units > 1 && short_of_it()) {
        const size_t i = take(heap, less_young);
        if (units[i].frozen) continue;  // for another domain's sake
        if (helps(units[i])) {
          freeze(i);
        } else if (youngest == none) {
          youngest = i;
        }
      }
      // What is expected has been outrun already.
      if (urgent && youngest != none && d.units > 1) freeze(youngest);
    }

    // Thaw, oldest first.
    if (!plan.any_frozen()) continue;
    list();
    std::vector<size_t>& heap = standing[at];
    std::make_heap(heap.begin(), heap.end(), younger);
    while (!heap.empty()) {
      const size_t i = take(heap, younger);
      const Unit& unit = units[i];
      bool room = true;
      plan.Thaw(i);
      for (int up = unit.domain; up >= 0; up = plan.domains()[static_cast<size_t>(up)].parent) {
        const Plan::Domain& over = plan.domains()[static_cast<size_t>(up)];
        room = room && ShortAt(over, over.reserve, 0) == kHorizons &&
               !state.domains.at(over.id).braking;
      }
      const bool last = d.units <= 1;
      room = room && !oldest_squeezed();
      if (last || (room && now - FrozenAt(state, job_procs, unit) >= kLeastFrozen)) {
        Signal(state, job_procs, unit, false,
               Why(room ? ReasonCode::kRoomAgain : ReasonCode::kFloor, d, unit), now, actions);
      } else {
        plan.Freeze(i);
        break;
      }
    }
  }
}

}  // namespace headroom::policy
