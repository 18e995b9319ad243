// The schedulers that Headroom is measured against.
#ifndef HEADROOM_SERVER_SIM_BASELINES_H_
#define HEADROOM_SERVER_SIM_BASELINES_H_

#include <vector>

#include "server/sim/engine.h"

namespace headroom::sim {

// Nothing between the build tool and the kernel: every process runs at once.
class Ungated : public Scheduler {
 public:
  void OnReady(Engine& engine, int proc) override { engine.Start(proc); }
};

// Starts nothing while less than a share of the machine is free, as steve, memstop and GNU
// parallel's --memfree do. Sleepers look every 0.1 s and whenever something has ended.
class Threshold : public Scheduler {
 public:
  explicit Threshold(double share) : share_(share) {}
  void Begin(Engine& engine) override;
  void OnReady(Engine&, int proc) override { waiting_.push_back(proc); }
  void Decide(Engine& engine) override;

 private:
  void Look(Engine& engine);
  double share_;
  std::vector<int> waiting_;
};

// Knows every curve: starts a process when the sum of all that run, at every later moment, stays
// within memory with it, and a core is free. Keeps the build tool's order of commands, or picks the
// longest remaining work first; in both nobody overtakes the first that waits (so that the heaviest
// are not put off to the end).
class Oracle : public Scheduler {
 public:
  enum class Order : uint8_t { kArrival, kLongestFirst };
  explicit Oracle(Order order) : order_(order) {}
  void Begin(Engine& engine) override;
  void OnReady(Engine& engine, int proc) override;
  void OnEnd(Engine& engine, int proc, ProcEnd end) override;
  void Decide(Engine& engine) override;

 private:
  struct Waiter {
    int proc;
    double rank;  // smaller goes first
  };
  void Look(Engine& engine);
  bool Fits(Engine& engine, int proc);
  double Remaining(Engine& engine, int proc) const;

  Order order_;
  std::vector<Waiter> waiting_;
  // Memory planned for each bin of the service clock.
  std::vector<double> planned_;
  std::vector<double> wanted_;  // of the process that is looked at
  bool changed_ = false;
};

// flash-attn's own setup.py (2.8.3): half the cores, one job for each 9 GiB that is free.
int FlashAttnJobs(double cores, double free_bytes);

// What is left of a command from the given process on: itself, its chain's rest and the back.
double RemainingWork(const Command& command, int shape_index, int copy);
// The command's longest path.
double CommandWork(const Command& command, int archs, int threads);

}  // namespace headroom::sim

#endif  // HEADROOM_SERVER_SIM_BASELINES_H_
