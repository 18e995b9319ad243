// One run of the simulator from start to end: a machine, builds and a policy in, numbers out. Used
// by the program (main.cc) and by the tests.
#ifndef HEADROOM_SERVER_SIM_SCENARIO_H_
#define HEADROOM_SERVER_SIM_SCENARIO_H_

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "server/sim/curves.h"
#include "server/sim/engine.h"
#include "server/sim/headroom.h"

namespace headroom::sim {

enum class PolicyKind : uint8_t {
  kHeadroom,
  kFixed,
  kBestFixed,
  kFlashAttn,
  kThreshold,
  kOracle,
  kOracleArrival,
};

struct Policy {
  PolicyKind kind = PolicyKind::kHeadroom;
  int n = 0;             // kFixed: -jN
  double threshold = 0;  // kThreshold: share of the machine, 0 to 1
};

// "fixed:20", "best-fixed", "threshold:10", ...; empty when it is none.
std::optional<Policy> ParsePolicy(const std::string& text);

struct Scenario {
  std::vector<Command> commands;
  double cores = 1;
  double mem_bytes = 0;
  int archs = 1;  // 0: those that were recorded
  int threads = 1;
  int builds = 1;
  ClientKind ninja = ClientKind::kNinjaHead;
  std::vector<LoadStep> load;
  uint64_t seed = 0;  // 0: no noise
  bool history = false;
  bool tokens_only = false;
  // Headroom only:
  bool hint = true;                    // the daemon can read the client's build.ninja
  std::optional<double> spoiled_peak;  // every predicted peak, in bytes
  bool prediction = true;
  double fastest_look_s = 0.05;
  std::optional<int> jobs;  // `headroom run --jobs`
  std::ostream* timeline = nullptr;
  bool actions = false;  // in the timeline
};

// Noise of the seeds: a reliable -j passes with all of them.
constexpr double kNoise = 0.05;
constexpr int kNoiseSeeds = 20;

// The run's numbers; for best-fixed `n` is the -j found, 0 when not even -j1 is reliable.
struct Outcome {
  RunResult run;
  std::optional<int> n;
  // Headroom only:
  std::vector<std::string> broken;  // invariants that did not hold
  int64_t steps = 0;
  std::map<std::pair<std::string, int>, Coverage> coverage;  // by tool and source
};

Outcome Simulate(const Scenario& scenario, const Policy& policy);

// Passes with every noise seed.
bool Reliable(const Scenario& scenario, int jobs);
// The fastest -j that is reliable; 0: none is.
int BestFixed(const Scenario& scenario);

}  // namespace headroom::sim

#endif  // HEADROOM_SERVER_SIM_SCENARIO_H_
