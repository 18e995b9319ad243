#include "server/policy/brake.h"

#include <algorithm>
#include <cmath>

#include "server/policy/gate.h"

namespace headroom::policy {
namespace {

// What the domain still loses before an action takes effect: one sample, the signal, the kernel.
constexpr double kReactSeconds = 0.3;

// An action's effect shows within this time; the next one waits for it.
constexpr Duration kSettle = std::chrono::milliseconds(200);

// Nothing is thawed sooner, so that a decision on the edge does not flutter.
constexpr Duration kLeastFrozen = std::chrono::milliseconds(500);

// An expected excess below this share of the domain is noise.
constexpr double kNoise = 0.02;

// The horizon up to which the others' growth is held against the oldest: 2 s, time for several
// looks and for a signal to reach a busy process.
constexpr size_t kSoon = 1;

bool Under(const Plan& plan, int domain, int above) {
  for (int at = domain; at >= 0; at = plan.domains()[static_cast<size_t>(at)].parent) {
    if (at == above) return true;
  }
  return false;
}

// The worst shortfall of the expected sum, without safety, against the domain less `reserve`.
double Excess(const Plan::Domain& d, double reserve) {
  double worst = -1e18;
  for (size_t h = 0; h < kHorizons; ++h) {
    const double foreign = d.foreign_rate * std::min(3.0, kHorizonSeconds[h]);
    worst = std::max(worst, d.growth[h] + foreign - (d.available - reserve));
  }
  return worst;
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

// Stops or continues all tool processes of a unit.
void Signal(State& state, const Unit& unit, bool freeze, const Reason& reason, Time now,
            std::vector<Action>& actions) {
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
  JobState& job = state.jobs[unit.index];
  job.frozen = freeze;
  for (ProcState& proc : state.procs) {
    if (proc.in_job && proc.job == job.job) one(proc);
  }
}

Time FrozenAt(const State& state, const Unit& unit) {
  if (!unit.job) return state.procs[unit.index].frozen_at;
  Time at{};
  for (const ProcState& proc : state.procs) {
    if (proc.in_job && proc.job == state.jobs[unit.index].job) at = std::max(at, proc.frozen_at);
  }
  return at;
}

bool CanFreeze(const State& state, const Unit& unit) {
  if (unit.frozen || unit.lane == LaneId::kNone) return false;
  if (unit.job) return state.jobs[unit.index].procs > 0;
  return true;
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

// What it is expected to take still.
double Growth(const Unit& unit) {
  double most = 0;
  for (double level : unit.forecast.level) {
    most = std::max(most, level - static_cast<double>(unit.now.count));
  }
  return most;
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
  // Processes that a frozen job has started since.
  for (size_t i = 0; i < plan.units().size() && plan.any_frozen(); ++i) {
    const Unit& unit = plan.units()[i];
    if (!unit.job || !unit.frozen || unit.domain < 0) continue;
    Signal(state, unit, true,
           Why(ReasonCode::kBrake, plan.domains()[static_cast<size_t>(unit.domain)], unit), now,
           actions);
  }
  // Attached units by age; made when somebody must stop or may go on, which is seldom.
  std::vector<size_t> youngest;
  const auto sort_by_age = [&] {
    if (!youngest.empty()) return;
    for (size_t i = 0; i < plan.units().size(); ++i) {
      if (plan.units()[i].lane != LaneId::kNone) youngest.push_back(i);
    }
    std::stable_sort(youngest.begin(), youngest.end(), [&](size_t a, size_t b) {
      return plan.units()[a].since > plan.units()[b].since;
    });
  };

  for (size_t at = 0; at < plan.domains().size(); ++at) {
    const int here = static_cast<int>(at);
    DomainState& domain = state.domains.at(plan.domains()[at].id);
    const auto excess = [&](double share) {
      return Excess(plan.domains()[at], plan.domains()[at].reserve * share);
    };
    const double noise = kNoise * plan.domains()[at].limit;

    // The oldest must be able to finish: what it may need at most, with what the others grow by
    // until the next looks, stays below what is left. Then, whatever happens, it ends and makes
    // room.
    size_t oldest = plan.units().size();
    for (size_t i = 0; i < plan.units().size(); ++i) {
      const Unit& unit = plan.units()[i];
      if (unit.frozen || unit.lane == LaneId::kNone) continue;
      if (oldest < plan.units().size() && unit.since >= plan.units()[oldest].since) continue;
      if (Under(plan, unit.domain, here)) oldest = i;
    }
    const auto oldest_squeezed = [&] {
      if (oldest == plan.units().size()) return false;
      const Unit& unit = plan.units()[oldest];
      const Plan::Domain& d = plan.domains()[at];
      const double own = unit.forecast.level[kSoon] - static_cast<double>(unit.now.count);
      return AtMost(plan, unit) - static_cast<double>(unit.now.count) +
                 std::max(0.0, d.growth[kSoon] - own) >
             d.available - d.reserve / 2;
    };

    // Freeze.
    bool urgent = domain.braking && now - domain.brake_acted >= kSettle;
    if (urgent || plan.any_frozen() || oldest_squeezed() || excess(0.5) > noise) sort_by_age();
    for (size_t i : youngest) {
      const bool squeezed = oldest_squeezed();
      if (!urgent && !squeezed && excess(0.5) <= noise) break;
      if (plan.domains()[at].units <= 1) break;
      const Unit& unit = plan.units()[i];
      if (!Under(plan, unit.domain, here) || !CanFreeze(state, unit)) continue;
      if (!unit.job) {
        // A gated process that can be run again is evicted (gate.cc), and only when memory is
        // really short: what it then gives back is worth more than standing still.
        const GateId gate = state.procs[unit.index].gate;
        const auto found = state.gates.find(gate);
        if (found != state.gates.end() && found->second.replayable) continue;
      }
      if (i == oldest) continue;
      if (!urgent && Growth(unit) < noise / 8) continue;
      Signal(state, unit, true, Why(ReasonCode::kBrake, plan.domains()[at], unit), now, actions);
      plan.Freeze(i);
      domain.brake_acted = now;
      urgent = false;
    }

    // Thaw, oldest first.
    for (auto it = youngest.rbegin(); it != youngest.rend(); ++it) {
      const Unit& unit = plan.units()[*it];
      if (!unit.frozen || unit.domain != here) continue;
      bool room = true;
      bool last = true;
      plan.Thaw(*it);
      for (int up = unit.domain; up >= 0; up = plan.domains()[static_cast<size_t>(up)].parent) {
        const Plan::Domain& d = plan.domains()[static_cast<size_t>(up)];
        room = room && Excess(d, d.reserve) <= 0 && !state.domains.at(d.id).braking;
      }
      last = plan.domains()[at].units <= 1;
      room = room && !oldest_squeezed();
      const bool rested = now - FrozenAt(state, unit) >= kLeastFrozen;
      if ((room && rested) || last) {
        Signal(state, unit, false,
               Why(room ? ReasonCode::kRoomAgain : ReasonCode::kFloor, plan.domains()[at], unit),
               now, actions);
      } else {
        plan.Freeze(*it);
        break;
      }
    }
  }
}

}  // namespace headroom::policy
