#include "server/daemon/core.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "server/policy/step.h"

namespace headroom::daemon {
namespace {

using policy::Action;
using policy::GateId;
using policy::LaneId;
using policy::ProcId;

// `explain` shows some of the last decisions; at a few a second this is minutes of a busy build, at
// some 300 bytes each.
constexpr size_t kDecisionsKept = 2000;

// A broken invariant tends to stay broken; once a minute is enough to be found in the log.
constexpr policy::Duration kComplainEvery = std::chrono::minutes(1);

void Set(v1::Decision& out, std::string name, int count) {
  out.set_action(std::move(name));
  out.set_count(count);
}

}  // namespace

Core::Clock Core::Clock::Real() {
  return {[] {
            return policy::Time(std::chrono::duration_cast<policy::Duration>(
                std::chrono::steady_clock::now().time_since_epoch()));
          },
          [] { return std::chrono::system_clock::now(); }};
}

Core::Core(Clock clock, Interpreter& interpreter, trace::Recorder* recorder)
    : clock_(std::move(clock)), interpreter_(interpreter), recorder_(recorder) {
  if (recorder_ != nullptr) recorder_->Begin(state_, Now());
}

void Core::Feed(policy::Event event) {
  queue_.push_back(std::move(event));
  if (draining_) return;
  draining_ = true;
  while (!queue_.empty()) {
    const policy::Event next = std::move(queue_.front());
    queue_.pop_front();
    One(next);
  }
  draining_ = false;
}

void Core::One(const policy::Event& event) {
  const policy::Time now = Now();
  ended_.reset();
  if (const auto* end = std::get_if<policy::GateEnded>(&event)) {
    // A verdict may be the last that is heard of it.
    if (const auto gate = state_.gates.find(end->gate); gate != state_.gates.end()) {
      ended_ = gate->second;
    }
  }
  const std::vector<Action> actions = policy::Step(state_, event, now);
  if (recorder_ != nullptr) recorder_->Record(event, now, actions, state_);
  Check(now);
  for (const Action& action : actions) Remember(action);
  for (const Action& action : actions) interpreter_.Carry(action);
}

void Core::Check(policy::Time now) {
  const std::vector<std::string> broken = policy::BrokenInvariants(state_);
  if (broken.empty()) return;
  broken_invariants_ += broken.size();
  if (complained_at_ != policy::Time{} && now - complained_at_ < kComplainEvery) return;
  complained_at_ = now;
  for (const std::string& text : broken) {
    spdlog::error("broken invariant (a fault of Headroom; please report it with its trace): {}",
                  text);
  }
}

void Core::Remember(const Action& action) {
  const policy::Reason* reason = ReasonOf(action);
  if (reason == nullptr) return;
  Decision decision;
  decision.at = clock_.wall();
  decision.action = action;
  const auto of_gate = [&](GateId id) {
    const auto there = state_.gates.find(id);
    const policy::GateState* gate = there != state_.gates.end()    ? &there->second
                                    : ended_ && ended_->gate == id ? &*ended_
                                                                   : nullptr;
    if (gate == nullptr) return;
    decision.lane = gate->lane;
    decision.pid = gate->worker ? gate->worker.pid : gate->keeper.pid;
    decision.tool = gate->tool;
    decision.source = gate->source;
  };
  const auto of_proc = [&](const ProcId& id, LaneId lane) {
    decision.lane = lane;
    decision.pid = id.pid;
    const auto proc = std::find_if(state_.procs.begin(), state_.procs.end(),
                                   [&](const policy::ProcState& p) { return p.proc == id; });
    if (proc == state_.procs.end()) return;
    decision.tool = proc->tool;
    decision.source = proc->source;
  };
  std::visit(
      [&](const auto& a) {
        using T = std::decay_t<decltype(a)>;
        if constexpr (std::is_same_v<T, policy::Mint> || std::is_same_v<T, policy::Collect>) {
          decision.lane = a.lane;
        } else if constexpr (std::is_same_v<T, policy::Freeze> || std::is_same_v<T, policy::Thaw>) {
          of_proc(a.proc, a.lane);
        } else if constexpr (!std::is_same_v<T, policy::SetSampling>) {
          of_gate(a.gate);
        }
      },
      action);
  if (const auto lane = state_.lanes.find(decision.lane); lane != state_.lanes.end()) {
    decision.lane_name = lane->second.name;
    decision.uid = lane->second.uid;
  }
  for (const policy::Reason::Value& value : reason->inputs) {
    if (value.input != policy::Input::kDomain) continue;
    const auto domain =
        state_.domains.find(static_cast<policy::DomainId>(static_cast<uint32_t>(value.value)));
    if (domain != state_.domains.end()) decision.domain = domain->second.name;
  }
  decisions_.push_back(std::move(decision));
  if (decisions_.size() > kDecisionsKept) decisions_.pop_front();
}

const policy::Reason* ReasonOf(const Action& action) {
  return std::visit(
      [](const auto& a) -> const policy::Reason* {
        if constexpr (std::is_same_v<std::decay_t<decltype(a)>, policy::SetSampling>) {
          return nullptr;
        } else {
          return &a.reason;
        }
      },
      action);
}

std::string NameOf(policy::ReasonCode code) {
  using policy::ReasonCode;
  switch (code) {
    case ReasonCode::kMemoryFits:
      return "memory_fits";
    case ReasonCode::kMemoryTight:
      return "memory_tight";
    case ReasonCode::kCoresFull:
      return "cores_full";
    case ReasonCode::kFloor:
      return "floor";
    case ReasonCode::kFairShare:
      return "fair_share";
    case ReasonCode::kSlowStart:
      return "slow_start";
    case ReasonCode::kLeak:
      return "leak";
    case ReasonCode::kClientsGone:
      return "clients_gone";
    case ReasonCode::kSurplus:
      return "surplus";
    case ReasonCode::kBrake:
      return "brake";
    case ReasonCode::kRoomAgain:
      return "room_again";
    case ReasonCode::kWaitsForGate:
      return "waits_for_gate";
    case ReasonCode::kRetryEvicted:
      return "retry_evicted";
    case ReasonCode::kRetryOomKill:
      return "retry_oom_kill";
    case ReasonCode::kRetryKilled:
      return "retry_killed";
    case ReasonCode::kTriesUsedUp:
      return "tries_used_up";
    case ReasonCode::kNotReplayable:
      return "not_replayable";
    case ReasonCode::kOwnEnd:
      return "own_end";
    case ReasonCode::kTooBig:
      return "too_big";
    case ReasonCode::kPredictionOff:
      return "prediction_off";
  }
  return "unknown";
}

std::string NameOf(policy::Input input) {
  using policy::Input;
  switch (input) {
    case Input::kDomain:
      return "domain";
    case Input::kAvailableBytes:
      return "available_bytes";
    case Input::kReserveBytes:
      return "reserve_bytes";
    case Input::kExpectedGrowthBytes:
      return "expected_growth_bytes";
    case Input::kSafetyBytes:
      return "safety_bytes";
    case Input::kHeadroomBytes:
      return "headroom_bytes";
    case Input::kNeedBytes:
      return "need_bytes";
    case Input::kRunningJobs:
      return "running_jobs";
    case Input::kClients:
      return "clients";
    case Input::kMinted:
      return "minted";
    case Input::kIdle:
      return "idle";
    case Input::kOut:
      return "out";
    case Input::kTarget:
      return "target";
    case Input::kCores:
      return "cores";
    case Input::kFillRateBytesPerSecond:
      return "fill_rate_bytes_per_second";
    case Input::kHorizonNanos:
      return "horizon_nanos";
    case Input::kProcBytes:
      return "proc_bytes";
    case Input::kPredictedPeakBytes:
      return "predicted_peak_bytes";
    case Input::kPredictionSource:
      return "prediction_source";
    case Input::kAttempt:
      return "attempt";
    case Input::kOomKills:
      return "oom_kills";
    case Input::kLimitBytes:
      return "limit_bytes";
    case Input::kPsiFullPermyriad:
      return "psi_full_permyriad";
    case Input::kExplained:
      return "explained";
  }
  return "unknown";
}

v1::Decision ToProto(const Decision& decision) {
  v1::Decision out;
  out.set_at_ns(static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(decision.at.time_since_epoch())
          .count()));
  std::visit(
      [&](const auto& a) {
        using T = std::decay_t<decltype(a)>;
        if constexpr (std::is_same_v<T, policy::Mint>) {
          Set(out, "mint", a.count);
        } else if constexpr (std::is_same_v<T, policy::Collect>) {
          Set(out, "collect", a.debt);
        } else if constexpr (std::is_same_v<T, policy::Freeze>) {
          Set(out, "freeze", 0);
        } else if constexpr (std::is_same_v<T, policy::Thaw>) {
          Set(out, "thaw", 0);
        } else if constexpr (std::is_same_v<T, policy::Admit>) {
          Set(out, "admit", 0);
        } else if constexpr (std::is_same_v<T, policy::Evict>) {
          Set(out, "evict", 0);
        } else if constexpr (std::is_same_v<T, policy::Verdict>) {
          Set(out, a.again ? "retry" : "give_up", 0);
        }
      },
      decision.action);
  out.set_lane(static_cast<uint32_t>(decision.lane));
  out.set_lane_name(decision.lane_name);
  out.set_pid(decision.pid);
  out.set_tool(decision.tool);
  out.set_source(decision.source);
  out.set_domain(decision.domain);
  if (const policy::Reason* reason = ReasonOf(decision.action)) {
    out.set_reason(NameOf(reason->code));
    for (const policy::Reason::Value& value : reason->inputs) {
      (*out.mutable_inputs())[NameOf(value.input)] = value.value;
    }
  }
  return out;
}

}  // namespace headroom::daemon
