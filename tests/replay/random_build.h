// A machine with random builds on it, as the policy sees it: answers the policy's actions with the
// events that a daemon would feed, and makes up the rest (jobs that come, grow and go, clients that
// are killed, limits that vanish, events that come too late). Same seed, same events, given the
// same actions.
//
// It is no model of any real build and makes no claim about memory: it exists to reach many states,
// for tests that compare two runs of the policy.
#ifndef HEADROOM_TESTS_REPLAY_RANDOM_BUILD_H_
#define HEADROOM_TESTS_REPLAY_RANDOM_BUILD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <span>
#include <vector>

#include "server/policy/action.h"
#include "server/policy/event.h"
#include "server/policy/types.h"

namespace headroom::testing {

class RandomBuild {
 public:
  explicit RandomBuild(uint64_t seed);

  // What happens next, and when.
  policy::Event Next();
  policy::Time now() const { return now_; }

  // What the policy answered to it.
  void Answer(std::span<const policy::Action> actions);

 private:
  struct Proc {
    policy::LaneId lane = policy::LaneId::kNone;
    policy::ProcId job;
    policy::GateId gate = policy::GateId::kNone;
    int64_t bytes = 0;
    int64_t rate = 0;  // bytes a second
    policy::Duration cpu{0};
    bool frozen = false;
  };
  struct Job {
    policy::LaneId lane = policy::LaneId::kNone;
    bool token = false;
  };
  struct Lane {
    int minted = 0;
    int idle = 0;
    int debt = 0;
    bool gated = false;
    policy::DomainId domain = policy::DomainId::kNone;
    std::vector<policy::ProcId> clients;
  };
  struct Gate {
    policy::GateRequest request;
    policy::ProcId worker;
  };

  uint64_t Draw(uint64_t below) { return rng_() % below; }
  bool Chance(uint64_t percent) { return Draw(100) < percent; }
  policy::ProcId NewProc();
  template <typename Map>
  auto Pick(Map& map);

  policy::Event OpenLane();
  policy::Event CloseLane(policy::LaneId id);
  policy::Event LookAround();
  policy::Event StartJob(policy::LaneId id);
  policy::Event EndJob(policy::ProcId id);
  policy::Event StartProc(policy::ProcId job);
  policy::Event AskGate(policy::ProcId job);
  policy::Event TooLate();
  policy::Event RandomEvent();

  std::mt19937_64 rng_;
  policy::Time now_{};
  std::deque<policy::Event> pending_;
  std::map<policy::DomainId, policy::DomainSeen> domains_;
  std::map<policy::LaneId, Lane> lanes_;
  std::map<policy::ProcId, Job> jobs_;
  std::map<policy::ProcId, Proc> procs_;
  std::map<policy::GateId, Gate> gates_;
  uint64_t oom_kills_ = 0;
  int32_t last_pid_ = 100;
  uint32_t last_lane_ = 0;
  uint32_t last_domain_ = 0;
  uint64_t last_gate_ = 0;
};

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_REPLAY_RANDOM_BUILD_H_
