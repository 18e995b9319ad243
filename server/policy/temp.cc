#include "server/policy/temp.h"

#include <algorithm>

#include "server/policy/track.h"

namespace headroom::policy {
namespace {

// flash-attention#1043: 165 MB for one of the files of one architecture.
constexpr Bytes kHeavyJob = MiB(256);
// More than this is no job's, but somebody else's on the same disk.
constexpr Bytes kMostOfJob = GiB(2);
constexpr Bytes kLeastOfJob = MiB(1);
// A job that has begun and has no tool at the gate for so long is at something light, or stuck.
constexpr Duration kBetweenTools = std::chrono::seconds(2);
// Of what was free, that jobs may fill: file systems get slow and hand out less near their end.
constexpr Permyriad kUsable{9500};

bool Runs(const GateState& gate) {
  return gate.phase == GatePhase::kAdmitted || gate.phase == GatePhase::kRunning ||
         gate.phase == GatePhase::kEvicting;
}

int CountBegun(const State& state, LaneId lane) {
  int count = 0;
  for (const JobState& job : state.jobs) count += job.lane == lane && job.begun ? 1 : 0;
  // Jobs that were not told of yet; and tools whose job is not known are jobs of their own.
  std::set<ProcId> untold;
  for (const auto& [id, gate] : state.gates) {
    if (gate.lane != lane || !Runs(gate)) continue;
    const JobState* job = FindJob(state, gate.job);
    if (!gate.job) {
      ++count;
    } else if ((job == nullptr || !job->begun) && untold.insert(gate.job).second) {
      ++count;
    }
  }
  return count;
}

}  // namespace

void Observe(State& state, const TempSample& sample) {
  const auto it = state.lanes.find(sample.id);
  if (it == state.lanes.end()) return;
  TempState& temp = it->second.temp;
  temp.free = std::max(Bytes{0}, sample.free);
  const int jobs = CountBegun(state, sample.id);
  // What others write or remove while nothing of ours runs is theirs.
  if (!temp.known || jobs == 0) {
    temp.most = temp.free;
    temp.known = true;
    return;
  }
  temp.most = std::max(temp.most, temp.free);
  temp.each = std::clamp((temp.most - temp.free) / jobs, temp.each, kMostOfJob);
}

Bytes TempOfJob(const TempState& temp) {
  const Bytes seen = temp.each + temp.each / 4;
  return std::max(kLeastOfJob, temp.learned ? seen : std::max(seen, kHeavyJob));
}

TempPlan::TempPlan(State& state, Time now) : state_(state), now_(now) {
  if (std::none_of(state.lanes.begin(), state.lanes.end(),
                   [](const auto& entry) { return entry.second.temp.known; }))
    return;
  // A job may have become known after its first tool was admitted.
  for (const auto& [id, gate] : state.gates) {
    if (!Runs(gate)) continue;
    if (const auto lane = state.lanes.find(gate.lane); lane != state.lanes.end())
      lane->second.temp.ran_at = now;
    if (!gate.job) continue;
    if (JobState* job = FindJob(state, gate.job)) job->begun = true;
  }
  for (const auto& [id, lane] : state.lanes)
    if (lane.temp.known) in_flight_[id] = CountBegun(state, id);
  for (const auto& [id, gate] : state.gates)
    if (gate.phase == GatePhase::kWaiting && HasBegun(gate)) begun_waits_.insert(gate.lane);
}

bool TempPlan::HasBegun(const GateState& gate) const {
  if (!gate.job) return false;
  const JobState* job = FindJob(state_, gate.job);
  return job != nullptr && job->begun;
}

bool TempPlan::Fits(const GateState& gate, bool nothing_runs) const {
  const auto jobs = in_flight_.find(gate.lane);
  if (jobs == in_flight_.end() || HasBegun(gate)) return true;
  const TempState& temp = state_.lanes.at(gate.lane).temp;
  // Where a job that has begun waits, it is the one to go on. One may also be between two tools.
  if (nothing_runs && begun_waits_.count(gate.lane) == 0 &&
      (jobs->second == 0 || now_ - std::max(gate.asked_at, temp.ran_at) > kBetweenTools))
    return true;
  const Bytes each = TempOfJob(temp);
  return each * (jobs->second + 1) <= Share(temp.most, kUsable) && each <= temp.free;
}

void TempPlan::Admitted(const GateState& gate) {
  const auto jobs = in_flight_.find(gate.lane);
  if (jobs == in_flight_.end() || HasBegun(gate)) return;
  jobs->second += 1;
  if (JobState* job = FindJob(state_, gate.job)) job->begun = true;
}

}  // namespace headroom::policy
