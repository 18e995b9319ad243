#include "server/daemon/status.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <set>
#include <string>

#include "server/policy/admit.h"
#include "server/policy/domain.h"
#include "server/policy/track.h"

namespace headroom::daemon {
namespace {

using policy::Bytes;
using policy::DomainId;
using policy::DomainState;
using policy::JobState;
using policy::LaneId;
using policy::LaneState;

// Quantities that the protocol has without a sign; below 0 is a fault of Headroom that must not
// become a huge number.
uint64_t NotNegative(int64_t value) {
  return static_cast<uint64_t>(std::max<int64_t>(value, 0));
}
uint32_t Count(int value) {
  return static_cast<uint32_t>(std::max(value, 0));
}

DomainPlan PlanOf(const StatusFacts& facts, DomainId id) {
  const auto found = facts.plans.find(id);
  return found == facts.plans.end() ? DomainPlan{} : found->second;
}

Bytes HeadroomOf(const DomainState& domain, const StatusFacts& facts) {
  const DomainPlan plan = PlanOf(facts, domain.id);
  return domain.available - plan.reserve - plan.expected_growth;
}

void Fill(const DomainState& domain, const StatusFacts& facts, v1::Memory* out) {
  const DomainPlan plan = PlanOf(facts, domain.id);
  out->set_total(NotNegative(domain.limit.count));
  out->set_available(domain.available.count);
  out->set_reserve(NotNegative(plan.reserve.count));
  out->set_expected_growth(NotNegative(plan.expected_growth.count));
  out->set_headroom(HeadroomOf(domain, facts).count);
  out->set_domain(domain.name);
}

// The domains that bind a lane: its own and all above it.
void AddWithParents(const policy::State& state, DomainId id, std::set<DomainId>& out) {
  // insert: a circle of parents ends where it began.
  while (id != DomainId::kNone && out.insert(id).second) {
    const auto domain = state.domains.find(id);
    if (domain == state.domains.end()) return;
    id = domain->second.parent;
  }
}

const DomainState* Tightest(const policy::State& state, const StatusFacts& facts) {
  std::set<DomainId> candidates;
  for (const auto& [id, lane] : state.lanes) AddWithParents(state, lane.domain, candidates);
  // A build may put its tools into cgroups of their own, below the lane's.
  for (const auto& [id, gate] : state.gates) AddWithParents(state, gate.domain, candidates);
  for (const policy::ProcState& proc : state.procs) {
    if (proc.lane != LaneId::kNone) AddWithParents(state, proc.domain, candidates);
  }
  const DomainState* tightest = nullptr;
  for (const auto& [id, domain] : state.domains) {
    const bool host = domain.parent == DomainId::kNone;
    // The host binds every lane, also one whose domain is not known any more.
    if (!host && !candidates.contains(id)) continue;
    // What was never looked at has no figures yet.
    if (!domain.sampled && !host) continue;
    if (tightest == nullptr || HeadroomOf(domain, facts) < HeadroomOf(*tightest, facts))
      tightest = &domain;
  }
  return tightest;
}

void AddPool(const LaneState& lane, v1::Pool* sum) {
  sum->set_target(sum->target() + Count(lane.target));
  sum->set_minted(sum->minted() + Count(lane.minted));
  sum->set_idle(sum->idle() + Count(lane.idle));
  sum->set_out(sum->out() + Count(lane.minted - lane.idle));
  sum->set_debt(sum->debt() + Count(lane.debt));
}

// What a job's tool processes are together.
struct Tools {
  bool all_frozen = true;
  Bytes anon;
};

// Of the jobs that have any. (JobState's own sums are kept in lanes without a gate alone, where the
// policy plans with jobs as a whole.)
std::map<policy::ProcId, Tools> ToolsOfJobs(const policy::State& state) {
  std::map<policy::ProcId, Tools> jobs;
  for (const policy::ProcState& proc : state.procs) {
    if (!proc.job) continue;
    Tools& tools = jobs[proc.job];
    tools.all_frozen = tools.all_frozen && proc.frozen;
    tools.anon += proc.use.anon;
  }
  return jobs;
}

int CoresOf(const LaneState& lane) {
  return lane.jobs_cap.value_or(lane.cores);
}

void CountTools(const policy::State& state, const StatusFacts& facts, LaneId lane, policy::Time now,
                v1::Lane* to) {
  std::set<policy::GateId> blocked;
  for (const auto& [id, gate] : state.gates) {
    if (gate.phase == policy::GatePhase::kWaiting) blocked.insert(gate.under);
  }
  uint32_t running = 0;
  uint32_t waiting = 0;
  policy::Duration longest{};
  std::optional<policy::Time> let_go;
  std::set<DomainId> above;
  for (const auto& [id, gate] : state.gates) {
    if (gate.lane != lane) continue;
    if (gate.phase == policy::GatePhase::kWaiting) {
      ++waiting;
      AddWithParents(state, gate.domain, above);
      longest = std::max(longest, now - gate.asked_at);
    } else if (gate.phase == policy::GatePhase::kAdmitted ||
               gate.phase == policy::GatePhase::kRunning) {
      if (!blocked.contains(id)) ++running;
      let_go = let_go ? std::max(*let_go, gate.admitted_at) : gate.admitted_at;
    }
  }
  if (waiting > 0 && let_go) longest = std::min(longest, now - *let_go);
  const DomainState* tightest = nullptr;
  for (const DomainId id : above) {
    const auto found = state.domains.find(id);
    if (found == state.domains.end() || (!found->second.sampled && above.size() > 1)) continue;
    if (tightest == nullptr || HeadroomOf(found->second, facts) < HeadroomOf(*tightest, facts)) {
      tightest = &found->second;
    }
  }
  if (tightest != nullptr) Fill(*tightest, facts, to->mutable_waits_in());
  uint64_t bytes = 0;
  for (const policy::ProcState& proc : state.procs) {
    if (proc.lane == lane && proc.gate != policy::GateId::kNone) {
      bytes += NotNegative(proc.use.anon.count);
    }
  }
  to->set_tools_bytes(bytes);
  to->set_tools_running(running);
  to->set_tools_waiting(waiting);
  to->set_stuck_ns(NotNegative(longest.count()));
}

}  // namespace

std::string WaitsFor(const LaneState& lane, std::optional<policy::ReasonCode> last_reason) {
  // Tokens lie ready: the build tool has nothing more to start.
  if (lane.idle > 0) return "";
  // The implicit slot of each client is one job more than tokens.
  if (lane.minted + std::max(lane.clients, 1) >= CoresOf(lane))
    return lane.jobs_cap ? absl::StrCat("all ", *lane.jobs_cap, " jobs of --jobs run")
                         : absl::StrCat("all ", lane.cores, " cores are in use");
  if (!last_reason) return "";
  switch (*last_reason) {
    case policy::ReasonCode::kMemoryTight:
      return "memory: what runs is expected to need it";
    case policy::ReasonCode::kBrake:
      return "memory: it ran short";
    case policy::ReasonCode::kTooBig:
      return "memory: the next job needs more than there is";
    case policy::ReasonCode::kFairShare:
      return "other builds: each gets its share";
    case policy::ReasonCode::kSlowStart:
      return "its first jobs: they show what the others will need";
    case policy::ReasonCode::kCoresFull:
      return "cores: all are in use";
    case policy::ReasonCode::kMemoryFits:
    case policy::ReasonCode::kFloor:
    case policy::ReasonCode::kLeak:
    case policy::ReasonCode::kClientsGone:
    case policy::ReasonCode::kSurplus:
    case policy::ReasonCode::kRoomAgain:
    case policy::ReasonCode::kWaitsForGate:
    case policy::ReasonCode::kRetryEvicted:
    case policy::ReasonCode::kRetryOomKill:
    case policy::ReasonCode::kRetryKilled:
    case policy::ReasonCode::kTriesUsedUp:
    case policy::ReasonCode::kNotReplayable:
    case policy::ReasonCode::kOwnEnd:
    case policy::ReasonCode::kPredictionOff:
      break;
  }
  return "";
}

void AddOutlook(policy::State state, StatusFacts& facts) {
  // No more than any domain has: a fault in the arithmetic must not become a huge number.
  const auto bytes = [](double value) {
    return Bytes{static_cast<int64_t>(std::clamp(value, 0.0, 1e18))};
  };
  for (const auto& [id, domain] : state.domains)
    facts.plans[id].reserve = policy::ReserveOf(state, domain, nullptr);
  std::vector<uint32_t> classes;
  for (const auto& [id, gate] : state.gates) classes.push_back(gate.klass);
  const policy::Plan plan(state, classes);
  for (size_t i = 0; i < plan.domains().size(); ++i) {
    const policy::Plan::Room room = plan.Own(static_cast<int>(i), policy::kTokenSafety);
    facts.plans[plan.domains()[i].id].expected_growth = bytes(room.growth + room.safety);
  }
  for (const policy::Unit& unit : plan.units()) {
    const policy::ProcId job = unit.job ? state.jobs[unit.index].job : state.procs[unit.index].job;
    if (!unit.job) {
      const policy::GateId gate = state.procs[unit.index].gate;
      if (gate != policy::GateId::kNone) facts.predicted_gates[gate] = bytes(unit.forecast.peak);
    }
    if (!job) continue;
    Bytes& peak = facts.predicted[job];
    peak += bytes(unit.forecast.peak);
  }
  for (const auto& [id, gate] : state.gates) {
    if (facts.predicted_gates.contains(id)) continue;
    facts.predicted_gates[id] = bytes(plan.Of({{gate.klass, 1.0}}, gate.floor).need);
  }
}

v1::Status BuildStatus(const policy::State& state, const StatusFacts& facts, policy::Time now,
                       uid_t viewer) {
  v1::Status out;
  out.set_version(facts.version);
  out.set_pid(facts.pid);
  out.set_private_daemon(facts.private_daemon);
  out.set_uptime_ns(NotNegative(facts.uptime.count()));
  out.set_broken_invariants(facts.broken_invariants);
  for (const std::string& note : facts.notes) out.add_notes(note);

  if (const DomainState* tightest = Tightest(state, facts))
    Fill(*tightest, facts, out.mutable_memory());
  for (const auto& [id, domain] : state.domains) {
    v1::Domain* to = out.add_domains();
    to->set_id(static_cast<uint32_t>(id));
    to->set_parent(static_cast<uint32_t>(domain.parent));
    to->set_name(domain.name);
    Fill(domain, facts, to->mutable_memory());
    to->set_oom_kills(domain.oom_kills);
    if (domain.psi_full_avg10)
      to->set_psi_full_avg10_permyriad(Count(domain.psi_full_avg10->count));
    if (domain.parent == DomainId::kNone) {
      to->set_shmem(NotNegative(facts.shmem.count));
      to->set_arc_credit(NotNegative(facts.arc_credit.count));
    }
  }

  std::map<LaneId, v1::Lane*> lanes;
  out.mutable_pool();
  for (const auto& [id, lane] : state.lanes) {
    const auto found = facts.lanes.find(id);
    const LaneFacts lane_facts = found == facts.lanes.end() ? LaneFacts{} : found->second;
    v1::Lane* to = out.add_lanes();
    lanes[id] = to;
    to->set_id(static_cast<uint32_t>(id));
    to->set_name(lane.name);
    to->set_kind(lane.kind == policy::LaneKind::kOwn ? "own" : "shared");
    to->set_uid(lane.uid);
    AddPool(lane, to->mutable_pool());
    AddPool(lane, out.mutable_pool());
    to->set_clients(Count(lane.clients));
    to->set_cores(Count(CoresOf(lane)));
    to->set_dir(lane_facts.dir);
    to->set_waits_for(WaitsFor(lane, lane_facts.last_reason));
  }

  size_t listed = 0;
  size_t left_out = 0;
  // The lane's entry, or null where the job is not to be listed.
  const auto add = [&](LaneId id) -> v1::Job* {
    const auto lane = lanes.find(id);
    if (lane == lanes.end()) return nullptr;
    if (listed == kMostJobs) {
      ++left_out;
      return nullptr;
    }
    ++listed;
    return lane->second->add_jobs();
  };
  const auto may_see = [&](LaneId id) {
    const auto lane = state.lanes.find(id);
    return viewer == 0 || (lane != state.lanes.end() && lane->second.uid == viewer);
  };
  const auto tools_of = ToolsOfJobs(state);
  for (const JobState& job : state.jobs) {
    v1::Job* to = add(job.lane);
    if (to == nullptr) continue;
    to->set_pid(job.job.pid);
    to->set_driver(job.driver);
    if (may_see(job.lane)) to->set_source(job.source);
    const auto tools = tools_of.find(job.job);
    if (tools != tools_of.end()) to->set_bytes(NotNegative(tools->second.anon.count));
    if (const auto peak = facts.predicted.find(job.job); peak != facts.predicted.end())
      to->set_predicted_peak(NotNegative(peak->second.count));
    to->set_age_ns(NotNegative((now - job.use.since).count()));
    to->set_state(tools != tools_of.end() && tools->second.all_frozen ? "frozen" : "running");
  }
  // What waits, and what runs below no client that is known: a shell loop has no jobs.
  for (const auto& [id, gate] : state.gates) {
    const bool waits = gate.phase == policy::GatePhase::kWaiting;
    const bool runs =
        gate.phase == policy::GatePhase::kAdmitted || gate.phase == policy::GatePhase::kRunning;
    if (!waits && (!runs || policy::FindJob(state, gate.job) != nullptr)) continue;
    v1::Job* to = add(gate.lane);
    if (to == nullptr) continue;
    const policy::ProcState* worker = waits ? nullptr : policy::FindProc(state, gate.worker);
    to->set_pid(worker != nullptr ? worker->proc.pid : gate.keeper.pid);
    to->set_driver(gate.tool);
    if (may_see(gate.lane)) to->set_source(gate.source);
    if (worker != nullptr) to->set_bytes(NotNegative(worker->use.anon.count));
    if (const auto peak = facts.predicted_gates.find(id); peak != facts.predicted_gates.end())
      to->set_predicted_peak(NotNegative(std::max(peak->second, gate.floor).count));
    to->set_age_ns(NotNegative((now - (waits ? gate.asked_at : gate.admitted_at)).count()));
    to->set_state(waits ? "waiting" : worker != nullptr && worker->frozen ? "frozen" : "running");
  }
  for (auto& [id, lane] : lanes) CountTools(state, facts, id, now, lane);
  if (left_out > 0) out.add_notes(absl::StrCat(left_out, " more jobs are not listed"));
  return out;
}

}  // namespace headroom::daemon
