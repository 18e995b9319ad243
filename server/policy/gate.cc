#include "server/policy/gate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "server/policy/arithmetic.h"
#include "server/policy/domain.h"
#include "server/policy/predict.h"
#include "server/policy/temp.h"
#include "server/policy/track.h"

namespace headroom::policy {
namespace {

// What an eviction frees is back within this time (exit of a large process: 0.1 to 0.3 s); if its
// end was not heard of by then, something else is wrong and admissions go on.
constexpr Duration kEvictionHold = std::chrono::milliseconds(500);
// An eviction looks ahead this long, and gives back so much of the reserve that the next growth
// does not need another one at once.
constexpr double kEvictAheadSeconds = 0.3;
constexpr double kRestore = 0.9;
// Measured from SIGKILL to wait4: 0.06 to 0.11 s for 1 GB, 0.35 to 0.43 s for 4 GB; six times as
// long with eight runnable processes a core, which the limit leaves to the next look.
constexpr double kExitSecondsPerByte = 0.1e-9;
constexpr double kMostExitSeconds = 0.7;
// What a second start costs beside the CPU time that is lost: processes of milliseconds are not
// free.
constexpr double kStartSeconds = 0.05;

// An OOM kill that the counter tells of explains ends that are heard of up to this much later.
constexpr Duration kOomEvidence = std::chrono::seconds(5);

// signal(7); the same on all architectures.
constexpr int kSigTerm = 15;

// Waiting for a second counts as this many seconds of expected work, so that nobody waits forever
// behind longer ones.
constexpr double kAging = 0.5;

// One that does not fit for this long is not overtaken any more.
constexpr Duration kPatience = std::chrono::seconds(30);

// One that was evicted more than once waits longer each time, up to a limit: what did not fit twice
// would else be started and taken back every half second beside a large one that needs its time.
constexpr Duration kFirstBackOff = std::chrono::milliseconds(500);
constexpr Duration kLongestBackOff = std::chrono::seconds(8);

Duration BackOff(int attempt) {
  if (attempt < 3) return Duration{0};
  return std::min(kLongestBackOff, kFirstBackOff * (1 << std::min(attempt - 3, 10)));
}

// A lane of which nothing runs lets one tool try after this time beside other lanes where its
// expected size fits, if not what it may come to at worst; or where its size is but a guess: hardly
// any of its kind has been seen. A young one is cheap to take back, and light work of others, each
// a little, could else keep it out until their build is over (seen: an nvcc beside a C++ build of
// 12 MB compilers, 49 s).
constexpr Duration kLaneFloorAfter = std::chrono::seconds(3);
// Variance of a kind's mean, as ln of the peak, above which it is a guess: one in three is more
// than 1.6 times as large, or less than that part of it.
constexpr double kGuess = 0.25;

// Whoever needs less than this part of the memory that goes with one core is light: it may overtake
// the impatient.
constexpr double kLight = 0.5;

bool Running(const GateState& gate) {
  return gate.phase == GatePhase::kAdmitted || gate.phase == GatePhase::kRunning;
}

// The domain and all above it, from the inside out; one that is not known is the host.
template <typename Visit>
void UpFrom(const State& state, DomainId id, Visit visit) {
  int hops = 0;
  for (const DomainState* at = FindDomain(state, id); at != nullptr && hops++ < 64;
       at = at->parent == DomainId::kNone ? nullptr : FindDomain(state, at->parent)) {
    visit(*at);
  }
}

// True, and the evidence used up, when an OOM kill explains an end. The kernel counts a kill for
// the cgroup of the one that it killed, whoever ran out of memory (memory.events,
// memory.oom_control), and so for all above: only the count of a gate's own domain speaks of it.
// Those above count what was killed anywhere else on the machine as well. It explains one end, not
// one each.
bool TakeOomEvidence(State& state, DomainId id, Time now) {
  const DomainState* own = FindDomain(state, id);
  if (own == nullptr || own->oom_unclaimed == 0 || now - own->oom_at > kOomEvidence) return false;
  UpFrom(state, id, [&](const DomainState& at) {
    if (at.oom_unclaimed > 0) state.domains.at(at.id).oom_unclaimed -= 1;
  });
  return true;
}

// What an evicted process had is free from now on, in its domain and all above.
void MarkFreed(State& state, DomainId id, Time now) {
  UpFrom(state, id, [&](const DomainState& at) { state.domains.at(at.id).freed_at = now; });
}

Bytes TightestLimit(const State& state, DomainId id) {
  Bytes tightest{INT64_MAX};
  UpFrom(state, id, [&](const DomainState& at) { tightest = std::min(tightest, at.limit); });
  return tightest;
}

// No process can have taken more: the limit, and 1 PiB where none is known.
Bytes MostReached(const State& state, DomainId id) {
  return std::min(TightestLimit(state, id), GiB(int64_t{1} << 20));
}

// Now, and by what is expected of those that run, there is room beyond the reserves: for what the
// gate's last try had, and an eighth more; and for what it is expected to take, unless that is a
// guess. In its domain and all above, of which none brakes or waits for what was evicted.
bool MayTry(const State& state, const Plan& plan, int domain_at, const GateState& gate, Time now) {
  const auto floor = static_cast<double>(gate.floor.count);
  for (int at = domain_at; at >= 0; at = plan.domains()[static_cast<size_t>(at)].parent) {
    const auto& d = plan.domains()[static_cast<size_t>(at)];
    const DomainState& domain = state.domains.at(d.id);
    if (domain.braking || now < domain.admissions_hold) return false;
    if (d.available - std::max(0.0, d.fill_rate) * kEvictAheadSeconds - d.reserve <= floor) {
      return false;
    }
  }
  const LaneState& lane = state.lanes.at(gate.lane);
  if (plan.After(domain_at, nullptr, 0, kGateSafety, &lane).bytes <= floor) return false;
  const int slot = plan.predictor().Slot(gate.klass);
  if (slot < 0 || plan.predictor().models()[static_cast<size_t>(slot)].total_var > kGuess) {
    return true;
  }
  const Addition addition = plan.Of({{gate.klass, 1.0}}, gate.floor, gate.input_bytes);
  return plan.After(domain_at, &addition, 1, 0, &lane).bytes >= 0;
}

// Another gated process runs in the same domain.
bool OthersRun(const State& state, const GateState& gate) {
  for (const auto& [id, other] : state.gates) {
    if (id != gate.gate && other.domain == gate.domain &&
        (Running(other) || other.phase == GatePhase::kEvicting)) {
      return true;
    }
  }
  return false;
}

}  // namespace

void Track(State& state, const GateRequest& request, Time now) {
  if (request.gate == GateId::kNone || state.lanes.count(request.lane) == 0) return;
  GateState& gate = state.gates[request.gate];
  const bool known = gate.gate != GateId::kNone;
  if (known && gate.phase != GatePhase::kEnded && request.attempt <= gate.attempt) return;
  gate.gate = request.gate;
  gate.lane = request.lane;
  gate.domain = request.domain;
  gate.keeper = request.keeper;
  gate.under = request.under;
  gate.job = request.job;
  gate.tool = request.info.tool;
  gate.source = request.info.source;
  gate.flags_hash = request.info.flags_hash;
  gate.input_bytes = request.info.input_bytes;
  gate.klass = ToolClass(state.profile, gate.tool, gate.source);
  gate.replayable = request.replayable;
  gate.attempt = std::max(1, request.attempt);
  gate.floor = std::max(gate.floor, std::min(request.floor, MostReached(state, gate.domain)));
  gate.oom_ends = std::max(gate.oom_ends, request.oom_kills);
  gate.killed_ends = std::max(gate.killed_ends, request.other_kills);
  gate.front = gate.front || gate.attempt > 1;
  gate.asked_at = now;
  gate.phase = GatePhase::kWaiting;
  gate.worker = ProcId{};
  // A scan may have seen it before it asked. It has run nothing, so it teaches nothing.
  Forget(state, request.keeper, false);
  if (request.worker) {
    // Known to an earlier daemon, and running.
    gate.phase = GatePhase::kRunning;
    gate.worker = request.worker;
    gate.admitted_at = now;
    Track(state,
          ProcSeen{request.worker, request.job, request.lane, request.domain, request.info,
                   request.gate, state.lanes.at(request.lane).uid},
          now);
  }
}

void Track(State& state, const GateStarted& started, Time now) {
  const auto it = state.gates.find(started.gate);
  if (it == state.gates.end() || it->second.phase == GatePhase::kWaiting) return;
  GateState& gate = it->second;
  gate.worker = started.worker;
  if (gate.phase == GatePhase::kAdmitted) gate.phase = GatePhase::kRunning;
  ProcSeen seen;
  seen.proc = started.worker;
  seen.job = gate.job;
  seen.lane = gate.lane;
  seen.domain = gate.domain;
  seen.info = ToolInfo{gate.tool, gate.source, gate.flags_hash, gate.input_bytes};
  seen.gate = gate.gate;
  seen.uid = state.lanes.at(gate.lane).uid;
  Track(state, seen, now);
}

void Track(State& state, const GateEnded& ended, Time now, std::vector<Action>& actions) {
  const auto it = state.gates.find(ended.gate);
  if (it == state.gates.end()) return;
  GateState& gate = it->second;
  ProcState* proc = FindProc(state, gate.worker);
  Bytes reached = ended.peak;
  if (proc != nullptr) {
    reached = std::max(reached, proc->use.peak);
    // The keeper's figures are exact; the last sample is up to a period old.
    // Only the peak and the time: what it had at its end is another thing, and belongs to the
    // curve.
    if (ended.end == GateEnd::kExit) {
      proc->use.peak = std::max(proc->use.peak, ended.peak);
      proc->use.cpu = std::max(proc->use.cpu, ended.cpu);
    }
  }
  // What a keeper says is a user's word: nothing has reached more than there is. Without a bound, a
  // floor that follows what was reached, and the other way round, would grow without end.
  reached = std::clamp(reached, Bytes{0}, MostReached(state, gate.domain));
  const bool learn = ended.end == GateEnd::kExit && ended.code == 0;
  Forget(state, gate.worker, learn);
  gate.worker = ProcId{};

  Reason reason{ReasonCode::kOwnEnd,
                {{Input::kProcBytes, reached.count},
                 {Input::kPredictedPeakBytes, gate.predicted_peak.count},
                 {Input::kAttempt, gate.attempt},
                 {Input::kLimitBytes, TightestLimit(state, gate.domain).count}}};
  bool again = false;
  bool verdict = true;
  switch (ended.end) {
    case GateEnd::kExit:
      verdict = false;
      break;
    case GateEnd::kSignal:
      break;
    case GateEnd::kEvicted:
      reason.code = ReasonCode::kRetryEvicted;
      again = true;
      MarkFreed(state, gate.domain, now);
      break;
    case GateEnd::kKilled:
      // The kernel's OOM killer sends SIGKILL and nothing else.
      if (ended.code != kSigTerm && TakeOomEvidence(state, gate.domain, now)) {
        gate.oom_ends += 1;
        reason.code = ReasonCode::kRetryOomKill;
        reason.inputs.push_back({Input::kOomKills, gate.oom_ends});
        if (!gate.replayable) {
          reason.code = ReasonCode::kNotReplayable;
        } else if (gate.alone || (gate.oom_ends >= 2 && !OthersRun(state, gate))) {
          // Nothing else ran, and still it was too much.
          reason.code = ReasonCode::kTooBig;
        } else if (gate.oom_ends >= kMostOomTries) {
          reason.code = ReasonCode::kTriesUsedUp;
        } else {
          again = true;
        }
      } else {
        gate.killed_ends += 1;
        reason.code = ReasonCode::kRetryKilled;
        if (!gate.replayable) {
          reason.code = ReasonCode::kNotReplayable;
        } else if (gate.killed_ends > kMostKilledTries) {
          reason.code = ReasonCode::kTriesUsedUp;
        } else {
          again = true;
        }
      }
      break;
  }
  if (again) {
    // At least what it had reached, and a little more: it was still growing.
    if (reason.code != ReasonCode::kRetryKilled) {
      gate.floor = std::max(gate.floor, reached + reached / 8);
    }
    gate.front = true;
    gate.alone = gate.oom_ends >= 2;
    gate.phase = GatePhase::kEnded;
    reason.inputs.push_back({Input::kNeedBytes, gate.floor.count});
    actions.push_back(Verdict{gate.gate, true, gate.floor, gate.alone, std::move(reason)});
    return;
  }
  if (verdict) {
    reason.inputs.push_back({Input::kNeedBytes, std::max(gate.floor, reached).count});
    actions.push_back(Verdict{gate.gate, false, gate.floor, false, std::move(reason)});
  }
  state.gates.erase(it);
}

void Track(State& state, const GateGone& gone) {
  const auto it = state.gates.find(gone.gate);
  if (it == state.gates.end()) return;
  Forget(state, it->second.worker, false);
  state.gates.erase(it);
}

bool AnyWaiting(const State& state) {
  for (const auto& [id, gate] : state.gates) {
    if (gate.phase == GatePhase::kWaiting) return true;
  }
  return false;
}

std::map<LaneId, int> GateTokens(const State& state) {
  // Jobs all of whose gated processes wait. A waiter whose job is not known counts as one.
  struct Count {
    std::set<ProcId> running;
    std::set<ProcId> waiting;
    int nameless = 0;
  };
  std::map<LaneId, Count> counts;
  for (const auto& [id, gate] : state.gates) {
    Count& count = counts[gate.lane];
    if (Running(gate)) {
      count.running.insert(gate.job);
    } else if (gate.job) {
      count.waiting.insert(gate.job);
    } else {
      ++count.nameless;
    }
  }
  std::map<LaneId, int> tokens;
  for (const auto& [id, lane] : state.lanes) {
    if (!lane.gated) continue;
    const Count& count = counts[id];
    int jobs = count.nameless;
    for (ProcId job : count.waiting) jobs += count.running.count(job) == 0 ? 1 : 0;
    const int cores = lane.jobs_cap.value_or(lane.cores);
    const int most = cores * kMostTokensPerCore;
    tokens[id] = std::max(0, std::min(cores + jobs, most) - std::max(1, lane.clients));
  }
  return tokens;
}

void EvictWhereShort(State& state, Plan& plan, Time now, std::vector<Action>& actions) {
  if (!state.prediction) return;
  // Units in each domain that brakes, and below it.
  std::vector<bool> braking(plan.domains().size());
  bool any = false;
  for (size_t at = 0; at < braking.size(); ++at) {
    braking[at] = state.domains.at(plan.domains()[at].id).braking;
    any = any || braking[at];
  }
  if (!any) return;
  std::vector<std::vector<size_t>> members(braking.size());
  for (size_t i = 0; i < plan.units().size(); ++i) {
    const Unit& unit = plan.units()[i];
    if (unit.frozen || unit.lane == LaneId::kNone) continue;
    for (int at = unit.domain; at >= 0; at = plan.domains()[static_cast<size_t>(at)].parent) {
      if (braking[static_cast<size_t>(at)]) members[static_cast<size_t>(at)].push_back(i);
    }
  }
  for (size_t at = 0; at < plan.domains().size(); ++at) {
    if (!braking[at]) continue;
    const Plan::Domain& d = plan.domains()[at];
    DomainState& domain = state.domains.at(d.id);
    // The figures are from before an evicted one's end: what it gave back is not in them yet, and
    // to evict another one for it would be too much.
    if (domain.freed_at != Time{} && domain.sampled_at <= domain.freed_at) continue;
    // Those that can be evicted, and what is on its way back already.
    std::vector<size_t> victims;
    int progress = 0;
    double coming = 0;
    size_t oldest = plan.units().size();
    for (size_t i : members[at]) {
      const Unit& unit = plan.units()[i];
      if (unit.frozen) continue;  // for another domain's sake
      const auto found =
          unit.job ? state.gates.end() : state.gates.find(state.procs[unit.index].gate);
      if (oldest == plan.units().size() || unit.since < plan.units()[oldest].since) oldest = i;
      if (found == state.gates.end()) {
        ++progress;
        continue;
      }
      const GateState& gate = found->second;
      if (gate.phase == GatePhase::kEvicting) {
        coming += static_cast<double>(unit.now.count);
        continue;
      }
      ++progress;
      if (gate.phase == GatePhase::kRunning && gate.replayable) victims.push_back(i);
    }
    // The kernel takes its time over a large one; meanwhile the others grow on.
    double largest = coming;
    for (const size_t i : victims) {
      largest = std::max(largest, static_cast<double>(plan.units()[i].now.count));
    }
    const double react =
        kEvictAheadSeconds + std::min(kMostExitSeconds, largest * kExitSecondsPerByte);
    double short_of =
        kRestore * d.reserve - (d.available - std::max(0.0, d.fill_rate) * react) - coming;
    // What one gives back: what it has, and what it would have taken meanwhile.
    const auto gives = [&](size_t i) {
      const Unit& unit = plan.units()[i];
      return static_cast<double>(unit.now.count) +
             std::max(0.0, state.procs[unit.index].use.growth) * react;
    };
    const auto lost = [&](size_t i) {
      return Seconds(state.procs[plan.units()[i].index].use.cpu) + kStartSeconds;
    };
    // Never the last one that makes progress, and never the oldest: whatever happens, it ends.
    std::stable_sort(victims.begin(), victims.end(), [&](size_t a, size_t b) {
      return plan.units()[a].since > plan.units()[b].since;
    });
    if (oldest < plan.units().size()) std::erase(victims, oldest);
    while (short_of > 0 && progress >= 2 && !victims.empty()) {
      // The one that is enough by itself and loses the least work; where none is, the one that
      // loses the least for what it gives.
      const auto best = std::min_element(victims.begin(), victims.end(), [&](size_t a, size_t b) {
        const bool a_enough = gives(a) >= short_of;
        const bool b_enough = gives(b) >= short_of;
        if (a_enough != b_enough) return a_enough;
        if (a_enough) return lost(a) < lost(b);
        return lost(a) * gives(b) < lost(b) * gives(a);
      });
      const size_t i = *best;
      victims.erase(best);
      const Unit& unit = plan.units()[i];
      GateState& gate = state.gates.at(state.procs[unit.index].gate);
      const Bytes has = state.procs[unit.index].use.peak;
      gate.phase = GatePhase::kEvicting;
      gate.floor = std::max(gate.floor, has + has / 8);
      domain.brake_acted = now;
      domain.admissions_hold = now + kEvictionHold;
      --progress;
      short_of -= gives(i);
      actions.push_back(
          Evict{gate.gate, gate.floor,
                Reason{ReasonCode::kBrake,
                       {{Input::kDomain, static_cast<int64_t>(d.id)},
                        {Input::kAvailableBytes, static_cast<int64_t>(d.available)},
                        {Input::kReserveBytes, static_cast<int64_t>(d.reserve)},
                        {Input::kFillRateBytesPerSecond, static_cast<int64_t>(d.fill_rate)},
                        {Input::kProcBytes, has.count},
                        {Input::kPredictedPeakBytes, gate.predicted_peak.count},
                        {Input::kAttempt, gate.attempt}}}});
      plan.Freeze(i);
    }
  }
}

WaitFor AdmitWaiting(State& state, Plan& plan, Time now, std::vector<Action>& actions) {
  WaitFor wait_for;
  // Who runs where.
  struct LaneLoad {
    int running = 0;
    uint32_t uid = 0;
    int cap = 1;
    bool own_cores = false;
  };
  std::map<LaneId, LaneLoad> loads;
  std::map<uint32_t, int> of_user;
  int cores = 0;
  for (const auto& [id, lane] : state.lanes) {
    loads[id] =
        LaneLoad{0, lane.uid, lane.jobs_cap.value_or(lane.cores), lane.jobs_cap.has_value()};
    if (!lane.jobs_cap) cores = std::max(cores, lane.cores);
  }
  // Those that wait for descendants at the gate are not running. One of the descendants always
  // goes, whatever it takes; the others (a link with -flto=64 has 64) as cores and memory allow.
  std::set<GateId> blocked;
  std::map<GateId, int> moving_below;
  std::map<DomainId, int> in_domain;
  std::set<DomainId> alone_runs;
  for (const auto& [id, gate] : state.gates) {
    if (gate.phase == GatePhase::kWaiting && gate.under != GateId::kNone)
      blocked.insert(gate.under);
    if (Running(gate) || gate.phase == GatePhase::kEvicting) {
      in_domain[gate.domain] += 1;
      if (gate.under != GateId::kNone) moving_below[gate.under] += 1;
      if (gate.alone) alone_runs.insert(gate.domain);
    }
  }
  int shared = 0;
  const auto count = [&](LaneId id) {
    const auto found = loads.find(id);
    if (found == loads.end()) return;
    found->second.running += 1;
    of_user[found->second.uid] += 1;
    if (!found->second.own_cores) ++shared;
  };
  for (const auto& [id, gate] : state.gates) {
    if (Running(gate) && blocked.count(id) == 0) count(gate.lane);
  }
  // Tool processes that no gate held count as well, unless they stand still.
  for (const ProcState& proc : state.procs) {
    if (proc.lane != LaneId::kNone && proc.gate == GateId::kNone && !proc.frozen && !proc.in_job) {
      count(proc.lane);
    }
  }

  struct Waiter {
    GateState* gate = nullptr;
    double work = 0;
  };
  std::vector<Waiter> waiters;
  for (auto& [id, gate] : state.gates) {
    if (gate.phase != GatePhase::kWaiting) continue;
    const int slot = plan.predictor().Slot(gate.klass);
    const double expected =
        slot < 0 ? 1.0 : plan.predictor().models()[static_cast<size_t>(slot)].cpu_s;
    waiters.push_back({&gate, expected + kAging * Seconds(now - gate.asked_at)});
  }
  // First what unblocks a running one, then what was evicted, then the longest work.
  std::stable_sort(waiters.begin(), waiters.end(), [](const Waiter& a, const Waiter& b) {
    const bool a_under = a.gate->under != GateId::kNone;
    const bool b_under = b.gate->under != GateId::kNone;
    if (a_under != b_under) return a_under;
    if (a.gate->front != b.gate->front) return a.gate->front;
    return a.work > b.work;
  });

  // Those that unblock a running one first; then repeatedly, of the lanes that are served least,
  // the first waiter that may go. A lane's waiters keep their order; one that does not fit is
  // overtaken by smaller ones until its patience ends.
  struct Queue {
    std::vector<size_t> waiters;  // last in order first, to take from the end
    LaneLoad* load = nullptr;
    int* of_user = nullptr;
  };
  std::map<LaneId, Queue> queues;
  std::vector<size_t> urgent;  // of each parent below which nothing moves, the first
  for (size_t i = 0; i < waiters.size() && waiters[i].gate->under != GateId::kNone; ++i) {
    if (moving_below[waiters[i].gate->under]++ == 0) urgent.push_back(i);
  }
  for (size_t i = waiters.size(); i-- > 0;) {
    const LaneId lane = waiters[i].gate->lane;
    if (std::binary_search(urgent.begin(), urgent.end(), i)) continue;
    Queue& queue = queues[lane];
    queue.load = &loads[lane];
    queue.of_user = &of_user[queue.load->uid];
    queue.waiters.push_back(i);
  }
  // Looked through for each waiter: side by side, in the order of lanes.
  std::vector<Queue*> open;
  open.reserve(queues.size());
  for (auto& [id, queue] : queues) open.push_back(&queue);
  size_t next_urgent = 0;
  TempPlan temps(state, now);
  std::set<DomainId> closed;  // an impatient one waits for room there
  // Kinds that did not fit in this decision: their like need not be tried again.
  std::set<std::pair<DomainId, uint32_t>> too_large;
  for (;;) {
    size_t best = waiters.size();
    const bool unblocks = next_urgent < urgent.size();
    if (unblocks) {
      best = urgent[next_urgent++];
    } else {
      Queue* least = nullptr;
      const auto served = [](const Queue& queue) {
        return std::pair(*queue.of_user, queue.load->running);
      };
      for (Queue* queue : open) {
        if (least == nullptr || served(*queue) < served(*least)) least = queue;
      }
      if (least == nullptr) break;
      best = least->waiters.back();
      least->waiters.pop_back();
      if (least->waiters.empty()) std::erase(open, least);
    }
    GateState& gate = *waiters[best].gate;
    LaneLoad& load = loads[gate.lane];
    const int domain_at = plan.DomainOf(gate.domain);
    const bool nothing_runs = in_domain[gate.domain] == 0 && load.running == 0;
    const bool cores_free =
        load.running < load.cap && (load.own_cores || shared < cores || load.running == 0);
    if (!cores_free && !unblocks) {
      if (const auto queue = queues.find(gate.lane); queue != queues.end()) {
        std::erase(open, &queue->second);
      }
      continue;
    }
    if (alone_runs.count(gate.domain) != 0 && !unblocks) continue;
    if (!unblocks && !temps.Fits(gate, nothing_runs)) continue;
    // Those that wait for it would have it wait for ever.
    int beside = in_domain[gate.domain];
    if (gate.under != GateId::kNone) {
      for (const GateId id : blocked) {
        const auto found = state.gates.find(id);
        if (found != state.gates.end() && found->second.domain == gate.domain &&
            Running(found->second)) {
          --beside;
        }
      }
    }
    if (gate.alone && beside > 0) {
      closed.insert(gate.domain);
      continue;
    }
    const bool lane_floor =
        !nothing_runs && load.running == 0 && gate.under == GateId::kNone &&
        now - gate.asked_at >= std::max(kLaneFloorAfter, BackOff(gate.attempt)) &&
        MayTry(state, plan, domain_at, gate, now);
    if (!unblocks && !nothing_runs && !lane_floor && gate.floor.count == 0 &&
        too_large.count({gate.domain, gate.klass}) != 0) {
      continue;  // what it waits for was noted then
    }
    const auto lane = state.lanes.find(gate.lane);
    Addition addition;
    Plan::Room room;
    ReasonCode code = gate.attempt > 1 ? ReasonCode::kRetryEvicted : ReasonCode::kMemoryFits;
    if (gate.attempt > 1 && gate.oom_ends > 0) code = ReasonCode::kRetryOomKill;
    if (gate.attempt > 1 && gate.oom_ends == 0 && gate.killed_ends > 0) {
      code = ReasonCode::kRetryKilled;
    }
    addition = plan.Of({{gate.klass, 1.0}}, gate.floor, gate.input_bytes);
    room = plan.After(domain_at, &addition, 1, kGateSafety, &lane->second);
    if (unblocks) {
      // Its waiting parent has memory and gives none back: never blocked.
      code = ReasonCode::kWaitsForGate;
    } else if (nothing_runs || (lane_floor && state.prediction)) {
      code = ReasonCode::kFloor;
    } else if (!state.prediction) {
      code = ReasonCode::kPredictionOff;
    } else {
      // Who takes less memory than goes with a core delays nobody by much, and puts a core to work.
      const double share = domain_at < 0 ? 0
                                         : plan.domains()[static_cast<size_t>(domain_at)].limit /
                                               std::max(1, load.own_cores ? load.cap : cores);
      if (closed.count(gate.domain) != 0 && addition.need > kLight * share) {
        wait_for.memory = true;
        continue;
      }
      bool hold = false;
      bool recent = false;
      for (int at = domain_at; at >= 0; at = plan.domains()[static_cast<size_t>(at)].parent) {
        const DomainState& domain = state.domains.at(plan.domains()[static_cast<size_t>(at)].id);
        hold = hold || domain.braking || now < domain.admissions_hold;
        recent = recent || (domain.admitted_at != Time{} && now - domain.admitted_at < kRamp);
      }
      if (hold || now - gate.asked_at < BackOff(gate.attempt)) {
        wait_for.time = true;
        continue;
      }
      if (room.bytes < 0) {
        wait_for.memory = true;
        if (now - gate.asked_at > kPatience) closed.insert(gate.domain);
        too_large.emplace(gate.domain, gate.klass);
        continue;
      }
      // With the spread of errors counted twice over there is room: no need to go slowly.
      if (recent && plan.After(domain_at, &addition, 1, 2.0, &lane->second).bytes < 0) {
        wait_for.time = true;
        too_large.emplace(gate.domain, gate.klass);
        continue;
      }
    }
    temps.Admitted(gate);
    gate.phase = GatePhase::kAdmitted;
    gate.admitted_at = now;
    gate.predicted_peak = plan.predictor().P95(gate.klass, gate.floor, gate.input_bytes);
    plan.Add(domain_at, addition, 1);
    in_domain[gate.domain] += 1;
    load.running += 1;
    of_user[load.uid] += 1;
    if (!load.own_cores) ++shared;
    for (int at = domain_at; at >= 0; at = plan.domains()[static_cast<size_t>(at)].parent) {
      state.domains.at(plan.domains()[static_cast<size_t>(at)].id).admitted_at = now;
    }
    Reason reason = Because(code, plan, room);
    reason.inputs.push_back({Input::kNeedBytes, static_cast<int64_t>(addition.need)});
    reason.inputs.push_back({Input::kPredictedPeakBytes, gate.predicted_peak.count});
    reason.inputs.push_back({Input::kRunningJobs, load.running});
    reason.inputs.push_back({Input::kCores, load.cap});
    reason.inputs.push_back({Input::kAttempt, gate.attempt});
    const int slot = plan.predictor().Slot(gate.klass);
    if (slot >= 0) {
      reason.inputs.push_back(
          {Input::kPredictionSource,
           static_cast<int64_t>(plan.predictor().models()[static_cast<size_t>(slot)].source)});
    }
    actions.push_back(Admit{gate.gate, gate.predicted_peak, std::move(reason)});
    if (gate.alone) alone_runs.insert(gate.domain);
  }
  return wait_for;
}

}  // namespace headroom::policy
