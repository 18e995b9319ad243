#include "server/policy/step.h"

#include <algorithm>
#include <variant>

#include "server/policy/ledger.h"

namespace headroom::policy {
namespace {

// Applies one event to the state and decides what follows from it.
class Stepper {
 public:
  Stepper(State& state, Time now) : state_(state), now_(now) {}

  void operator()(const Configure& e) {
    state_.reserve_bytes = e.reserve.bytes;
    state_.reserve_share = e.reserve.share;
    state_.prediction = e.prediction;
    state_.spoiled_peak = e.spoiled_peak;
  }
  void operator()(const DomainSeen& e) {
    DomainState& domain = state_.domains[e.id];
    domain.id = e.id;
    domain.parent = e.parent;
    domain.name = e.name;
    domain.limit = e.limit;
    domain.swap_possible = e.swap_possible;
  }
  void operator()(const DomainGone& e) { state_.domains.erase(e.id); }
  void operator()(const LaneOpened& e) {
    LaneState& lane = state_.lanes[e.id];
    lane = LaneState{};
    lane.id = e.id;
    lane.kind = e.kind;
    lane.uid = e.uid;
    lane.name = e.name;
    lane.domain = e.domain;
    lane.cores = std::max(1, e.cores);
    lane.jobs_cap = e.jobs_cap;
    lane.reserve_bytes = e.reserve.bytes;
    lane.reserve_share = e.reserve.share;
    lane.gated = e.gated;
    lane.opened_at = now_;
    lane.idle = std::max(0, e.idle);
    lane.minted = std::max(lane.idle, e.minted);
    Refill(lane);
  }
  void operator()(const LaneClosed& e) { state_.lanes.erase(e.id); }
  void operator()(const LaneHint&) {}
  void operator()(const TokensMoved& e) {
    const auto it = state_.lanes.find(e.id);
    if (it == state_.lanes.end()) return;
    Book(it->second, e);
    Refill(it->second);
  }
  void operator()(const JobSeen&) {}
  void operator()(const JobGone&) {}
  void operator()(const ProcSeen&) {}
  void operator()(const ProcGone&) {}
  void operator()(const Sample& e) {
    for (const LaneSample& sample : e.lanes) {
      const auto it = state_.lanes.find(sample.id);
      if (it == state_.lanes.end()) continue;
      Observe(it->second, sample, now_);
      Refill(it->second);
    }
  }
  void operator()(const GateRequest&) {}
  void operator()(const GateStarted&) {}
  void operator()(const GateEnded&) {}
  void operator()(const GateGone&) {}
  void operator()(const Tick&) {}

  std::vector<Action> Take() { return std::move(actions_); }

 private:
  void Refill(LaneState& lane) {
    lane.target = std::max(0, lane.jobs_cap.value_or(lane.cores) - 1);
    Settle(lane, Reason{ReasonCode::kMemoryFits, {}}, actions_);
  }

  State& state_;
  Time now_;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> Step(State& state, const Event& event, Time now) {
  Stepper stepper(state, now);
  std::visit(stepper, event);
  return stepper.Take();
}

std::vector<std::string> BrokenInvariants(const State& state) {
  std::vector<std::string> broken;
  for (const auto& [id, lane] : state.lanes) {
    if (lane.idle > lane.minted || lane.idle < 0) {
      broken.push_back("lane " + lane.name + ": minted " + std::to_string(lane.minted) + ", idle " +
                       std::to_string(lane.idle));
    }
  }
  return broken;
}

}  // namespace headroom::policy
