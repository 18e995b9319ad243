// The daemon's heart: owns the policy's State, feeds it events, records what went in and came out,
// checks the invariants and hands the actions on. It decides nothing itself.
//
// A decision flows: an observer calls Feed(event) → Step → recorder → BrokenInvariants → ring of
// decisions (for `explain`) → Interpreter, whose results come back as further events through Feed.
// Those are queued: one event is fully dealt with before the next.
//
// Threading: one thread, the io_context's.
#ifndef HEADROOM_SERVER_DAEMON_CORE_H_
#define HEADROOM_SERVER_DAEMON_CORE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "headroom/v1/control.pb.h"
#include "server/policy/action.h"
#include "server/policy/event.h"
#include "server/policy/state.h"
#include "server/policy/types.h"
#include "server/trace/recorder.h"

namespace headroom::daemon {

// Carries one action out. May call Core::Feed.
class Interpreter {
 public:
  virtual ~Interpreter() = default;
  virtual void Carry(const policy::Action& action) = 0;
};

// An action as people are shown it, with its names looked up while they were still known.
struct Decision {
  std::chrono::system_clock::time_point at;
  policy::Action action;
  policy::LaneId lane = policy::LaneId::kNone;
  std::string lane_name;
  uint32_t uid = 0;  // of the lane: other users may not see it
  int32_t pid = 0;
  std::string tool;
  std::string source;
  std::string domain;
};

class Core {
 public:
  // What the daemon's clocks say; injected for tests.
  struct Clock {
    std::function<policy::Time()> monotonic;
    std::function<std::chrono::system_clock::time_point()> wall;
    static Clock Real();
  };

  // `recorder` may be null. Both outlive the core.
  Core(Clock clock, Interpreter& interpreter, trace::Recorder* recorder);

  void Feed(policy::Event event);

  const policy::State& state() const { return state_; }
  const std::deque<Decision>& decisions() const { return decisions_; }
  uint64_t broken_invariants() const { return broken_invariants_; }
  policy::Time Now() const { return clock_.monotonic(); }

 private:
  void One(const policy::Event& event);
  void Remember(const policy::Action& action);
  void Check(policy::Time now);

  Clock clock_;
  Interpreter& interpreter_;
  trace::Recorder* recorder_;
  policy::State state_;
  std::optional<policy::GateState> ended_;  // the gate of the present event, as it was before
  std::deque<policy::Event> queue_;
  bool draining_ = false;
  std::deque<Decision> decisions_;
  uint64_t broken_invariants_ = 0;
  policy::Time complained_at_{};
};

// For `explain`: names of policy/action.h's enums in snake case.
v1::Decision ToProto(const Decision& decision);
std::string NameOf(policy::ReasonCode code);
std::string NameOf(policy::Input input);
const policy::Reason* ReasonOf(const policy::Action& action);  // nullptr: SetSampling

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_CORE_H_
