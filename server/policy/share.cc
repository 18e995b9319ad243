#include "server/policy/share.h"

#include <algorithm>

#include "server/policy/gate.h"

namespace headroom::policy {
namespace {

// Growing needs this much room beyond the plan's own margin, as a share of the domain: between it
// and zero the pool keeps its size, so that noise of the samples does not move tokens to and fro.
constexpr double kGrowMargin = 0.01;

// A job of unknown kind, for the question whether slow start can be left out.
constexpr double kUnknownJobBytes = 4e9;

struct Want {
  LaneState* lane = nullptr;
  int* of_user = nullptr;  // jobs of all lanes of its user
  int domain = -1;
  Addition addition;
  int base = 0;    // jobs that run
  int cap = 1;     // jobs that may run at most
  int floor = 1;   // jobs that may always run
  int loose = 0;   // jobs that fit
  int strict = 0;  // jobs that fit with the margin for growing
  bool active = false;
  bool closed = false;
  bool shared_cores = false;
  ReasonCode why = ReasonCode::kMemoryFits;
  Plan::Room room;
};

bool Known(const LaneState& lane) {
  for (const HintState& hint : lane.hints) {
    if (hint.count > 0) return true;
  }
  return false;
}

// Jobs that the lane's clients run or have just begun; `seen`: those that were seen.
int JobsInUse(const LaneState& lane, int seen) {
  const int out = Out(lane);
  // A client that holds tokens uses its implicit slot too.
  const int used = out > 0 ? out + std::max(1, lane.clients) : 0;
  return std::max(seen, used);
}

// Slow start's present width; large where it does not apply.
int SlowLimit(LaneState& lane, const Plan& plan, int domain, int cap, Time now) {
  constexpr int kNone = 1 << 20;
  if (Known(lane)) return kNone;
  if (lane.slow_limit == 0) {
    lane.slow_limit = kSlowStartJobs;
    lane.slow_at = now;
  }
  if (lane.slow_limit >= cap) return kNone;
  Addition unknown;
  unknown.growth.fill(kUnknownJobBytes);
  const int seen = std::max(lane.jobs_seen, lane.jobs_ended);
  if (seen == 0 && plan.After(domain, &unknown, cap, 0, &lane).bytes > 0) return kNone;
  if (now - lane.slow_at >= kSlowStartStep && 2 * seen >= lane.slow_limit) {
    lane.slow_limit *= 2;
    lane.slow_at = now;
  }
  return lane.slow_limit;
}

// Gives lanes of one pass what fits, the least served first.
void Fill(std::vector<Want*>& wants, Plan& plan, int& cores_left, double safety) {
  const auto grant = [&](Want& want, int count) {
    plan.Add(want.domain, want.addition, count);
    want.loose += count;
    *want.of_user += count;
    if (want.shared_cores) cores_left -= count;
  };
  for (;;) {
    Want* next = nullptr;
    int open = 0;
    for (Want* want : wants) {
      if (want->closed) continue;
      if (want->loose >= want->cap ||
          (want->shared_cores && cores_left <= 0 && want->loose >= want->floor)) {
        want->closed = true;
        if (want->loose < want->cap) {
          want->why = ReasonCode::kFairShare;
        } else if (want->why != ReasonCode::kSlowStart) {
          want->why = ReasonCode::kMemoryFits;
        }
        continue;
      }
      ++open;
      if (next == nullptr ||
          std::pair(*want->of_user, want->loose) < std::pair(*next->of_user, next->loose)) {
        next = want;
      }
    }
    if (next == nullptr) return;
    Want& want = *next;
    const double margin =
        want.domain < 0 ? 0 : kGrowMargin * plan.domains()[static_cast<size_t>(want.domain)].limit;
    if (want.loose < want.floor) {
      grant(want, 1);
      want.strict = want.loose;
      if (want.why != ReasonCode::kSlowStart) want.why = ReasonCode::kFloor;
      continue;
    }
    // One lane left: all at once if it fits, else by halves.
    int most = 1;
    if (open == 1) {
      most = want.cap - want.loose;
      if (want.shared_cores) most = std::min(most, cores_left);
    }
    const bool may_be_strict = want.strict == want.loose;
    int fits = 0;
    int fits_strict = 0;
    Plan::Room room = plan.After(want.domain, &want.addition, most, safety, want.lane);
    if (room.bytes >= 0) {
      fits = most;
    } else {
      int over = most;  // the smallest count known not to fit
      while (over - fits > 1) {
        const int middle = fits + (over - fits) / 2;
        const Plan::Room at = plan.After(want.domain, &want.addition, middle, safety, want.lane);
        if (at.bytes >= 0) {
          fits = middle;
        } else {
          over = middle;
          room = at;
        }
      }
    }
    if (may_be_strict && fits > 0) {
      fits_strict = fits;
      while (fits_strict > 0 &&
             plan.After(want.domain, &want.addition, fits_strict, safety, want.lane).bytes <
                 margin) {
        --fits_strict;
      }
    }
    want.room = room;
    if (may_be_strict) want.strict += fits_strict;
    if (fits > 0) grant(want, fits);
    if (fits < most) {
      want.closed = true;
      want.why = ReasonCode::kMemoryTight;
    }
  }
}

}  // namespace

Mixture MixtureOf(Profile& profile, const LaneState& lane) {
  // A few kinds are enough, and bound the work: the heaviest by weight.
  constexpr size_t kMostKinds = 8;
  std::vector<std::pair<const HintState*, double>> kinds;
  double remaining = 0;
  for (const HintState& hint : lane.hints) remaining += std::max(0, hint.count - hint.started);
  for (const HintState& hint : lane.hints) {
    const double weight = remaining > 0 ? std::max(0, hint.count - hint.started) : hint.started;
    if (weight > 0) kinds.emplace_back(&hint, weight);
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (kinds.size() > kMostKinds) kinds.resize(kMostKinds);
  Mixture mixture;
  for (const auto& [hint, weight] : kinds) {
    mixture.emplace_back(JobClass(profile, hint->driver, hint->fan_out, ""), weight);
  }
  // Nothing is known: as a C++ compiler. Slow start bounds the harm.
  if (mixture.empty()) mixture.emplace_back(JobClass(profile, "c++", 1, ""), 1);
  return mixture;
}

void ShareTokens(State& state, Plan& plan, const std::map<LaneId, Mixture>& mixtures,
                 const std::map<LaneId, LedgerNews>& news, Time now, std::vector<Action>& actions) {
  // Of each lane: its jobs, and those that stand still.
  struct Count {
    int seen = 0;
    int frozen = 0;
  };
  std::map<LaneId, Count> counts;
  for (const auto& [id, lane] : state.lanes) counts.emplace(id, Count{});
  for (const JobState& job : state.jobs) {
    if (const auto it = counts.find(job.lane); it != counts.end()) ++it->second.seen;
  }
  // Something stands still in the domain itself.
  std::vector<bool> stalled(plan.domains().size());
  if (plan.any_frozen()) {
    for (const Unit& unit : plan.units()) {
      if (!unit.frozen) continue;
      if (const auto it = counts.find(unit.lane); it != counts.end()) ++it->second.frozen;
      if (unit.domain >= 0) stalled[static_cast<size_t>(unit.domain)] = true;
    }
  }
  const std::map<LaneId, int> gate_tokens = GateTokens(state);
  std::vector<Want> wants;
  wants.reserve(state.lanes.size());
  std::map<uint32_t, int> of_user;
  int cores = 0;
  for (auto& [id, lane] : state.lanes) {
    if (!lane.jobs_cap) cores = std::max(cores, lane.cores);
  }
  int cores_left = cores;
  for (auto& [id, lane] : state.lanes) {
    if (lane.gated) {
      lane.target = gate_tokens.at(id);
      const auto found = news.find(id);
      const ReasonCode code = found != news.end() ? found->second.code : ReasonCode::kWaitsForGate;
      Settle(lane, Reason{code, {{Input::kTarget, lane.target}}}, actions);
      continue;
    }
    Want want;
    want.lane = &lane;
    want.domain = plan.DomainOf(lane.domain);
    const auto mixture = mixtures.find(id);
    if (mixture != mixtures.end()) want.addition = plan.Of(mixture->second, Bytes{});
    const int seen = counts.at(id).seen;
    const int in_use = JobsInUse(lane, seen);
    want.base = in_use;
    want.floor = std::max(1, lane.clients);
    want.cap = std::max(want.floor, lane.jobs_cap.value_or(lane.cores));
    want.shared_cores = !lane.jobs_cap;
    want.active =
        lane.clients > 0 || in_use > 0 || (lane.kind == LaneKind::kOwn && !lane.had_client);
    const int slow = SlowLimit(lane, plan, want.domain, want.cap, now);
    if (slow < want.cap) {
      want.cap = std::max(want.floor, slow);
      want.why = ReasonCode::kSlowStart;
    }
    want.loose = in_use;
    want.strict = in_use;
    want.of_user = &of_user[lane.uid];
    *want.of_user += in_use;
    if (want.shared_cores) cores_left -= in_use;
    // Jobs that must have begun and were not seen yet.
    if (in_use > seen) plan.Add(want.domain, want.addition, in_use - seen);
    wants.push_back(std::move(want));
  }
  const double safety = state.spoiled_peak || !state.prediction ? 0 : kTokenSafety;
  for (const bool active : {true, false}) {
    std::vector<Want*> pass;
    for (Want& want : wants) {
      if (want.active == active) pass.push_back(&want);
    }
    // A lane without a client may hold as many tokens as there are cores: they are used, if ever,
    // when it has one, and shared anew then.
    if (!active) cores_left = std::max(cores_left, cores);
    Fill(pass, plan, cores_left, safety);
  }
  for (Want& want : wants) {
    LaneState& lane = *want.lane;
    const int implicit = std::max(1, lane.clients);
    const int current = lane.target + implicit;
    // Up only where more than what runs fits with the margin; down to what fits, in no case below
    // what runs. Jobs that are counted twice for a moment (one seen to start before the other is
    // seen to end) move nothing.
    int jobs = current;
    const int most_strict = std::min(want.strict, want.cap);
    const int most_loose = std::min(want.loose, want.cap);
    if (want.strict > want.base && most_strict > current) {
      jobs = most_strict;
    } else if (most_loose < current) {
      jobs = most_loose;
    }
    bool braking = false;
    bool frozen_here = false;
    const int frozen = counts.at(lane.id).frozen;
    for (int at = want.domain; at >= 0; at = plan.domains()[static_cast<size_t>(at)].parent) {
      const auto domain = state.domains.find(plan.domains()[static_cast<size_t>(at)].id);
      braking = braking || (domain != state.domains.end() && domain->second.braking);
      frozen_here = frozen_here || stalled[static_cast<size_t>(at)];
    }
    if (want.domain < 0) jobs = std::max(1, lane.clients);  // memory was never looked at
    int target = std::max(0, jobs - implicit);
    ReasonCode code = want.why;
    // While anything stands still for want of memory nothing new begins, and what ends makes room:
    // the frozen have still to grow.
    const int most = frozen_here ? std::max(0, Out(lane) - frozen) : Out(lane);
    if ((braking || frozen_here) && target > most) {
      target = most;
      code = ReasonCode::kBrake;
    }
    if (target > lane.target && code == ReasonCode::kMemoryTight) code = ReasonCode::kMemoryFits;
    if (target < lane.target && code == ReasonCode::kMemoryFits) code = ReasonCode::kCoresFull;
    const auto found = news.find(lane.id);
    if (found != news.end()) code = found->second.code;
    lane.target = target;
    Reason reason = Because(code, plan, want.room);
    reason.inputs.push_back({Input::kNeedBytes, static_cast<int64_t>(want.addition.need)});
    reason.inputs.push_back({Input::kRunningJobs, want.base});
    reason.inputs.push_back({Input::kClients, lane.clients});
    reason.inputs.push_back({Input::kMinted, lane.minted});
    reason.inputs.push_back({Input::kIdle, lane.idle});
    reason.inputs.push_back({Input::kOut, Out(lane)});
    reason.inputs.push_back({Input::kTarget, target});
    reason.inputs.push_back({Input::kCores, lane.jobs_cap.value_or(lane.cores)});
    if (found != news.end()) {
      reason.inputs.push_back({Input::kExplained, lane.explained.value_or(0)});
    }
    Settle(lane, reason, actions);
  }
}

}  // namespace headroom::policy
