#include "server/policy/step.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "server/policy/admit.h"
#include "server/policy/brake.h"
#include "server/policy/domain.h"
#include "server/policy/gate.h"
#include "server/policy/ledger.h"
#include "server/policy/predict.h"
#include "server/policy/share.h"
#include "server/policy/temp.h"
#include "server/policy/track.h"

namespace headroom::policy {
namespace {

// Events that only add a fact (a process is seen, a job ends) lead to a decision at most this
// often; the sampler's rounds and whatever somebody waits for always do. A build that starts
// thousands of short commands a second must not cost a core.
constexpr Duration kQuietEvents = std::chrono::milliseconds(10);

// The sampler's intervals: a tenth of the time until the headroom is gone, at the rate at which it
// goes or is expected to go. 20 looks a second at 300 processes take 2 % of a core: no headroom
// that lasts for seconds needs them. A glance takes 50 us, however many processes there are.
constexpr Duration kFastest = std::chrono::milliseconds(10);
constexpr Duration kCalm = std::chrono::milliseconds(250);
constexpr Duration kIdle = std::chrono::seconds(1);
// No rate that was measured says how fast what runs may begin to grow: each core may take this much
// a second, four times the most in flash-attn's traces (cudafe++ 1.1 GB, cicc 0.75 GB a CPU
// second); with once the most, two more of 300 random scenarios had an OOM kill. Down to kFast it
// shortens the time between glances; for a look, or to go below, something must have been seen to
// grow.
constexpr double kMostPerCore = 4e9;
// A glance that shows this share of the room gone is followed by a look at once.
constexpr double kGone = 0.1;
constexpr Duration kFast = std::chrono::milliseconds(50);
// What a waiter's room depends on changes over tenths of seconds; the end of a process is an event.
constexpr Duration kWaiting = std::chrono::milliseconds(100);

Duration Tenth(double seconds, Duration least) {
  if (seconds >= 10) return kCalm;
  return std::clamp<Duration>(std::chrono::milliseconds(static_cast<int64_t>(seconds * 100)), least,
                              kCalm);
}

// Applies one event to the state and decides what follows from it.
class Stepper {
 public:
  Stepper(State& state, Time now) : state_(state), now_(now) {}

  void operator()(const Configure& e) {
    state_.reserve_bytes = e.reserve.bytes;
    state_.reserve_share = e.reserve.share;
    state_.prediction = e.prediction;
    state_.spoiled_peak = e.spoiled_peak;
    Decide();
  }
  void operator()(const DomainSeen& e) {
    if (e.id == DomainId::kNone) return;
    DomainState& domain = state_.domains[e.id];
    domain.id = e.id;
    domain.parent = e.parent;
    if (InCircle(state_, e.id)) domain.parent = DomainId::kNone;
    domain.name = e.name;
    domain.limit = std::max(Bytes{}, e.limit);
    domain.swap_possible = e.swap_possible;
    domain.kills_group = e.kills_group;
  }
  void operator()(const DomainGone& e) {
    Remove(state_, e.id);
    Decide();
  }
  void operator()(const LaneOpened& e) {
    if (e.id == LaneId::kNone) return;
    if (const auto there = state_.lanes.find(e.id); there != state_.lanes.end()) {
      SetConstants(there->second, e);
      Decide();
      return;
    }
    LaneState lane;
    lane.id = e.id;
    lane.kind = e.kind;
    lane.uid = e.uid;
    lane.name = e.name;
    SetConstants(lane, e);
    lane.opened_at = now_;
    lane.idle = std::max(0, e.idle);
    lane.minted = std::max(lane.idle, e.minted);
    lane.target = lane.minted;
    state_.lanes.insert_or_assign(e.id, std::move(lane));
    Decide();
  }
  void operator()(const LaneClosed& e) {
    const auto it = state_.lanes.find(e.id);
    if (it == state_.lanes.end()) return;
    for (const ProcState& proc : state_.procs) {
      if (proc.lane == e.id && proc.frozen) {
        actions_.push_back(Thaw{proc.proc, e.id, Reason{ReasonCode::kClientsGone, {}}});
      }
    }
    Disown(state_, e.id);
    state_.lanes.erase(it);
    Decide();
  }
  void operator()(const LaneHint& e) {
    const auto it = state_.lanes.find(e.id);
    if (it == state_.lanes.end()) return;
    // A new hint is a new run of the client: what was started before is not part of it.
    it->second.hints.clear();
    for (const LaneHint::Edges& edges : e.edges) {
      if (it->second.hints.size() >= 64) break;
      it->second.hints.push_back(
          HintState{edges.driver, std::max(1, edges.fan_out), std::max(0, edges.count), 0});
    }
    Decide();
  }
  void operator()(const TokensMoved& e) {
    const auto it = state_.lanes.find(e.id);
    if (it == state_.lanes.end()) return;
    Book(it->second, e);
    DecideSoon();
  }
  void operator()(const JobSeen& e) {
    Track(state_, e, now_);
    DecideSoon();
  }
  void operator()(const JobGone& e) {
    Track(state_, e);
    DecideAfterEnd();
  }
  void operator()(const ProcSeen& e) {
    Track(state_, e, now_);
    DecideSoon();
  }
  void operator()(const ProcGone& e) {
    const ProcState* proc = FindProc(state_, e.proc);
    // A gated one's end is told by its keeper, with exact figures; an OOM kill teaches nothing.
    Forget(state_, e.proc, proc != nullptr && proc->gate == GateId::kNone && !OomJustNow());
    DecideAfterEnd();
  }
  void operator()(const Sample& e) {
    Track(state_, e.procs, now_);
    for (const DomainSample& sample : e.domains) {
      const auto it = state_.domains.find(sample.id);
      if (it != state_.domains.end()) Update(it->second, sample, now_);
    }
    for (const TempSample& sample : e.temps) Observe(state_, sample);
    for (const LaneSample& sample : e.lanes) {
      const auto it = state_.lanes.find(sample.id);
      if (it == state_.lanes.end()) continue;
      if (const auto found = Observe(it->second, sample, now_)) news_[sample.id] = *found;
    }
    Decide();
  }
  void operator()(const GateRequest& e) {
    Track(state_, e, now_);
    Decide();
  }
  void operator()(const GateStarted& e) {
    Track(state_, e, now_);
    DecideSoon();
  }
  void operator()(const GateEnded& e) {
    Track(state_, e, now_, actions_);
    if (AnyWaiting(state_)) {
      Decide();
    } else {
      DecideSoon();
    }
  }
  void operator()(const GateGone& e) {
    Track(state_, e);
    Decide();
  }
  void operator()(const Tick&) { Decide(); }
  void operator()(const Recalled& e) {
    Recall(state_.profile, e.classes);
    // Kept tables go by counts, which a recalled class may have in common with what it replaces.
    state_.curves.value.clear();
    Decide();
  }

  std::vector<Action> Take() { return std::move(actions_); }

 private:
  // What a repeated LaneOpened may change while the lane is known.
  static void SetConstants(LaneState& lane, const LaneOpened& e) {
    lane.domain = e.domain;
    lane.cores = std::max(1, e.cores);
    lane.jobs_cap.reset();
    if (e.jobs_cap) lane.jobs_cap = std::max(1, *e.jobs_cap);
    lane.reserve_bytes = e.reserve.bytes;
    lane.reserve_share = e.reserve.share;
    lane.gated = e.gated;
  }

  bool OomJustNow() const {
    for (const auto& [id, domain] : state_.domains) {
      if (domain.oom_at != Time{} && now_ - domain.oom_at < std::chrono::seconds(1)) return true;
    }
    return false;
  }

  // When the last one that moves has ended, a frozen one goes on at once.
  void DecideAfterEnd() {
    const bool frozen = std::any_of(state_.procs.begin(), state_.procs.end(),
                                    [](const ProcState& proc) { return proc.frozen; });
    if (frozen) {
      Decide();
    } else {
      DecideSoon();
    }
  }

  void DecideSoon() {
    if (now_ - state_.decided_at >= kQuietEvents) Decide();
  }

  void Decide() {
    state_.decided_at = now_;
    // Classes that will be asked for; made first, since predictions refer to the profile.
    std::map<LaneId, Mixture> mixtures;
    std::vector<uint32_t> extra;
    for (const auto& [id, lane] : state_.lanes) {
      if (lane.gated) continue;
      Mixture mixture = MixtureOf(state_.profile, lane);
      for (const auto& [klass, weight] : mixture) extra.push_back(klass);
      mixtures.emplace(id, std::move(mixture));
    }
    bool waiting = false;
    for (const auto& [id, gate] : state_.gates) {
      extra.push_back(gate.klass);
      waiting = waiting || gate.phase == GatePhase::kWaiting;
    }
    Plan plan(state_, extra);
    for (const auto& [id, gate] : state_.gates) {
      // Let go, but its worker is not heard of yet.
      if (gate.phase != GatePhase::kAdmitted) continue;
      plan.Add(plan.DomainOf(gate.domain),
               plan.Of({{gate.klass, 1.0}}, gate.floor, gate.input_bytes), 1);
    }
    WatchDomains(state_, plan, now_);
    if (!state_.gates.empty()) EvictWhereShort(state_, plan, now_, actions_);
    Brake(state_, plan, now_, actions_);
    WaitFor wait_for;
    if (waiting) wait_for = AdmitWaiting(state_, plan, now_, actions_);
    ShareTokens(state_, plan, mixtures, news_, now_, actions_);
    SetSampler(plan, waiting, wait_for);
  }

  void SetSampler(const Plan& plan, bool waiting, const WaitFor& wait_for) {
    Duration want = state_.lanes.empty() ? kIdle : kCalm;
    Duration glance = want;
    bool anything = waiting || !state_.procs.empty();
    int cores = 1;
    for (const auto& [id, lane] : state_.lanes) {
      anything = anything || lane.clients > 0 || Out(lane) > 0;
      cores = std::max(cores, lane.cores);
    }
    if (!anything) want = kIdle;
    int moving = 0;
    for (const ProcState& proc : state_.procs) moving += proc.frozen ? 0 : 1;
    for (const auto& [id, gate] : state_.gates) {
      moving += gate.phase == GatePhase::kAdmitted ? 1 : 0;
    }
    const double most = kMostPerCore * std::min(cores, moving);
    for (const Plan::Domain& d : plan.domains()) {
      // What it loses a second: measured, or expected of what has just begun.
      const double rate = std::max({0.0, d.fill_rate, d.growth[0]});
      if (!anything) continue;
      const double room = std::max(0.0, d.available - d.reserve);
      if (rate > 0) want = std::min(want, Tenth(room / rate, kFastest));
      if (most > 0) glance = std::min(glance, Tenth(room / most, kFast));
    }
    if (wait_for.memory) want = std::min(want, kWaiting);
    if (wait_for.time) want = std::min(want, kFast);
    // One more glance shortly before a look shows nothing new.
    if (glance > want * 4 / 5) glance = Duration{0};
    // Only steps that matter are told: less by a fifth, or more by half.
    const auto matters = [](Duration before, Duration now) {
      return before == Duration{0} ? now != before : now < before * 4 / 5 || now > before * 3 / 2;
    };
    if (matters(state_.sampling, want) || matters(state_.glancing, glance)) {
      state_.sampling = want;
      state_.glancing = glance;
      actions_.push_back(SetSampling{want, glance});
    }
  }

  State& state_;
  Time now_;
  std::map<LaneId, LedgerNews> news_;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> Step(State& state, const Event& event, Time now) {
  Stepper stepper(state, now);
  std::visit(stepper, event);
  return stepper.Take();
}

bool NeedsLook(const State& state, std::span<const DomainSample> glance) {
  return std::any_of(glance.begin(), glance.end(), [&](const DomainSample& sample) {
    const auto domain = state.domains.find(sample.id);
    if (domain == state.domains.end()) return false;
    const Bytes reserve = ReserveOf(state, domain->second, nullptr);
    const double room = static_cast<double>((domain->second.available - reserve).count);
    const double gone = static_cast<double>((domain->second.available - sample.available).count);
    return gone > kGone * std::max(0.0, room);
  });
}

std::vector<std::string> BrokenInvariants(const State& state) {
  std::vector<std::string> broken;
  const auto text = [](auto value) { return std::to_string(value); };
  for (const auto& [id, lane] : state.lanes) {
    const std::string name = "lane " + lane.name;
    if (lane.idle < 0 || lane.minted < lane.idle) {
      broken.push_back(name + ": minted " + text(lane.minted) + " is not idle " + text(lane.idle) +
                       " + out");
    }
    if (lane.target < 0) broken.push_back(name + ": target " + text(lane.target));
    if (lane.debt < 0 || lane.asked < 0) {
      broken.push_back(name + ": debt " + text(lane.debt) + ", asked " + text(lane.asked));
    }
    if (lane.debt > lane.minted + lane.asked) {
      broken.push_back(name + ": debt " + text(lane.debt) + " of only " + text(lane.minted));
    }
  }
  // Of those that wait below an admitted process one must have been let go by the step that saw it.
  std::set<GateId> moves_below;
  for (const auto& [id, gate] : state.gates) {
    if (gate.phase != GatePhase::kWaiting && gate.phase != GatePhase::kEnded) {
      moves_below.insert(gate.under);
    }
  }
  std::map<DomainId, int> frozen;
  std::map<DomainId, int> moving;
  for (const ProcState& proc : state.procs) {
    if (proc.lane == LaneId::kNone) {
      if (proc.frozen) broken.push_back("process " + text(proc.proc.pid) + " of no lane is frozen");
      continue;
    }
    (proc.frozen ? frozen : moving)[proc.domain] += 1;
    const auto lane = state.lanes.find(proc.lane);
    if (proc.frozen && lane != state.lanes.end() && lane->second.uid != proc.uid) {
      broken.push_back("process " + text(proc.proc.pid) + " of user " + text(proc.uid) +
                       " is frozen in a lane of user " + text(lane->second.uid));
    }
  }
  for (const auto& [id, gate] : state.gates) {
    if (gate.phase == GatePhase::kWaiting && gate.under != GateId::kNone &&
        state.gates.count(gate.under) != 0 && moves_below.count(gate.under) == 0 && !gate.alone) {
      broken.push_back("gate " + text(static_cast<uint64_t>(id)) +
                       " waits below an admitted process, and nothing moves there");
    }
    if (gate.phase == GatePhase::kAdmitted || gate.phase == GatePhase::kRunning) {
      moving[gate.domain] += 1;
    }
  }
  // A job between two of its tools moves too.
  for (const JobState& job : state.jobs) {
    const auto lane = state.lanes.find(job.lane);
    if (!job.frozen && lane != state.lanes.end()) moving[lane->second.domain] += 1;
  }
  if (!frozen.empty() && moving.empty()) {
    broken.push_back("all that runs is frozen");
  }
  return broken;
}

}  // namespace headroom::policy
