// Headroom in the simulator: feeds the policy's Step the events that headroomd would send, and
// carries its actions out as the daemon would, with the delays that were measured or are usual.
//
// Both modes of a lane: tokens only (tool processes run as their job wants; tokens carry the plan)
// and the gate (tool processes wait before main(), the worker can be evicted and run again).
#ifndef HEADROOM_SERVER_SIM_HEADROOM_H_
#define HEADROOM_SERVER_SIM_HEADROOM_H_

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "server/policy/step.h"
#include "server/sim/engine.h"

namespace headroom::sim {

struct HeadroomOptions {
  bool gated = true;
  // Whether the daemon can read what the client is about to run (build.ninja in its folder).
  bool hint = true;
  policy::Profile profile;  // what earlier builds have taught
  std::optional<policy::Bytes> spoiled_peak;
  bool prediction = true;
  // The policy may ask for a look every 10 ms; a look in the simulator is as dear as in the daemon.
  double fastest_look_s = 0.05;
  std::optional<int> jobs;  // `headroom run --jobs`: the most at once, also above the cores
  std::ostream* timeline = nullptr;  // a line a second, for people
  bool actions = false;              // and one for each action but Mint, Collect, SetSampling
};

// How well peaks were foretold: what a process was admitted with against what it took.
struct Coverage {
  int processes = 0;
  int covered = 0;       // peak <= the P95 it was admitted with
  double ratio_sum = 0;  // of P95 / peak
  friend bool operator==(const Coverage&, const Coverage&) = default;
};

class Headroom : public Scheduler {
 public:
  explicit Headroom(HeadroomOptions options);

  void Begin(Engine& engine) override;
  void OnBuildStarted(Engine& engine, int build) override;
  void OnBuildEnded(Engine& engine, int build) override;
  void OnJobStarted(Engine& engine, int job) override;
  void OnJobEnded(Engine& engine, int job) override;
  void OnReady(Engine& engine, int proc) override;
  void OnEnd(Engine& engine, int proc, ProcEnd end) override;
  bool Retries(Engine& engine, int proc) override;
  void OnCollected(Engine& engine, int build, int count) override;
  void Decide(Engine& engine) override;

  // Invariants that did not hold after some step, each once, at most 20.
  const std::vector<std::string>& broken() const { return broken_; }
  int64_t steps() const { return steps_; }
  const policy::Profile& profile() const { return state_.profile; }
  // By tool and source of the prediction.
  const std::map<std::pair<std::string, int>, Coverage>& coverage() const { return coverage_; }

 private:
  struct Known {
    bool gated = false;  // this process has a gate (its tool is one that is gated)
    bool seen = false;   // ProcSeen was sent for the present attempt
    bool verdict_given = false;
    bool verdict_again = false;
    policy::Bytes floor;
    int evictions = 0;
    int oom_kills = 0;
    double predicted = 0;
    int source = 0;
  };

  policy::Time Now(const Engine& engine) const;
  void Feed(Engine& engine, const policy::Event& event);
  void Carry(Engine& engine, const policy::Action& action);
  void Ask(Engine& engine, int proc, policy::Bytes floor);
  void TellProc(Engine& engine, int proc);
  void Started(Engine& engine, int proc, policy::ProcId worker);
  void Look(Engine& engine, bool all);
  void LookLater(Engine& engine);
  void TellLane(Engine& engine, int build);
  void Timeline(Engine& engine);
  void Tell(const Engine& engine, const policy::Action& action);
  void Broke(const std::string& what);
  policy::ToolInfo InfoOf(const Engine& engine, int proc) const;
  policy::DomainSample HostSample(const Engine& engine) const;
  policy::LaneSample LaneSampleOf(const Engine& engine, int build) const;
  Known& known(int proc);

  HeadroomOptions options_;
  policy::State state_;
  std::vector<Known> known_;
  std::vector<int> alive_;          // processes that were told of and have not ended
  std::vector<int> told_idle_;      // by build: the fifo's idle tokens as last told
  std::vector<bool> lane_pending_;  // a look at the fifo is on its way
  std::vector<bool> lane_open_;
  double fast_s_ = 1;
  double glance_s_ = 0;
  double look_at_ = 0;       // when the next look is due
  double slow_look_at_ = 0;  // when the next look at everything is due
  double glance_at_ = 0;     // the last one
  uint64_t look_round_ = 0;  // a timer of an earlier round does nothing
  int64_t steps_ = 0;
  std::vector<std::string> broken_;
  std::map<std::pair<std::string, int>, Coverage> coverage_;
};

}  // namespace headroom::sim

#endif  // HEADROOM_SERVER_SIM_HEADROOM_H_
