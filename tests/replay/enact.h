// A scenario of the simulator, acted out: real ninja, real headroomd with the real gate, a real
// memory cgroup and the real OOM killer; only the compilers are stand-ins (actor.c) that take
// memory along the recorded curves, so many times smaller, and sleep meanwhile. For comparing the
// simulator with.
//
// What is not acted: cores. Stand-ins sleep, so they run at full speed however many there are; the
// daemon is told the scenario's cores and holds to them, and a scenario in which more processes run
// than that (a fixed -j) can only be compared where the simulator is given enough.
// What comes in addition: the stand-ins' own memory and the kernel's for them, as many times as
// large as the scale says.
#ifndef HEADROOM_TESTS_REPLAY_ENACT_H_
#define HEADROOM_TESTS_REPLAY_ENACT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/sim/scenario.h"
#include "tests/support/testing.h"

namespace headroom::replay {

// How a run went, acted or simulated.
struct Outcome {
  bool killed = false;  // the build lost a process to the OOM killer and failed
  bool failed = false;  // it failed, for whatever reason
  double seconds = 0;   // until its end; of a killed one, until the first kill
  int oom_kills = 0;
  int evictions = 0;
  int freezes = 0;
  double peak_bytes = 0;  // of the whole machine, at full scale
  std::string output;     // acted only: what the build said last, for people
};

// All times of the curves, and of the drivers between them, by so much.
void StretchTime(std::vector<sim::Command>& commands, double factor);

// At most so many points of a curve, none further from the others' line than 1 % of the peak, and
// the peak among them.
constexpr size_t kMostKnots = 40;
std::vector<sim::Knot> Simplified(const std::vector<sim::Knot>& knots, double peak);

class Enactment {
 public:
  // Why nothing can be acted here, in words for "SKIPPED: ..."; nothing if it can.
  static std::optional<std::string> WhyUnavailable();

  // Throws std::runtime_error where the scenario is one that can't be acted (several builds, tokens
  // only, other load).
  Enactment(sim::Scenario scenario, int memory_scale);
  ~Enactment();

  // The build under Headroom. Each further one knows what those before have taught.
  Outcome UnderHeadroom(std::chrono::seconds timeout);
  // The build alone, with -jN; ended at the first OOM kill.
  Outcome Fixed(int jobs, std::chrono::seconds timeout);

  // The same in the simulator; cores enough for all with a fixed -j.
  Outcome SimulatedUnderHeadroom(bool history) const;
  Outcome SimulatedFixed(int jobs) const;

 private:
  void Write() const;
  void Clean() const;
  std::string ObjectOf(size_t command) const;
  testing::ProgramOptions Plain(const std::vector<std::string>& argv,
                                const testing::MemoryCgroup& cgroup) const;
  Outcome Act(const testing::ProgramOptions& options, const testing::MemoryCgroup& cgroup,
              bool until_first_kill, std::chrono::seconds timeout) const;

  sim::Scenario scenario_;
  int scale_;
  testing::TempDir dir_;
  std::unique_ptr<testing::Program> daemon_;
};

// Whether both came to the same: killed or not, with or without a process lost to the OOM killer,
// and the time within `share` of the simulator's.
bool Agree(const Outcome& acted, const Outcome& simulated, double share);

// "killed after 20.3 s", "201.4 s, 3 evictions, peak 412.1 GB".
std::string InWords(const Outcome& outcome);

}  // namespace headroom::replay

#endif  // HEADROOM_TESTS_REPLAY_ENACT_H_
