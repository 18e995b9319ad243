// Kinds of trouble from the field, in virtual time.
#include <catch2/catch.hpp>
#include <string>

#include "server/sim/scenario.h"

namespace headroom::sim {
namespace {

Command Simple(const std::string& source, const std::string& driver, const std::string& tool,
               double bytes, double seconds) {
  Command command;
  command.source = source;
  command.driver = driver;
  Shape shape;
  shape.tool = tool;
  shape.cpu_s = seconds;
  shape.peak = bytes;
  shape.knots = {{0, 0}, {seconds / 2, bytes}, {seconds, bytes}};
  command.shapes.push_back(shape);
  command.front.push_back({0, 0});
  return command;
}

// 200 light commands of 0.2 GB and 0.2 s, and 6 heavy ones of 4 GB and 5 s, which a cap that is
// safe for the heavy ones would hold up all together. 12 GB, 8 cores. `scale`: of all memory.
Scenario FewGiants(double scale) {
  Scenario scenario;
  for (int i = 0; i < 206; ++i) {
    const std::string number = std::to_string(i);
    scenario.commands.push_back(
        i % 33 == 0 && i < 33 * 6
            ? Simple("giant" + number + ".cu", "nvcc", "cicc", 4e9 * scale, 5)
            : Simple("light" + number + ".cc", "c++", "cc1plus", 0.2e9 * scale, 0.2));
  }
  scenario.cores = 8;
  scenario.mem_bytes = 12e9 * scale;
  return scenario;
}

// The best ninja file that a hand could write for it: a pool of two for the giants (three are 12
// GB), the light ones beside them.
constexpr double kTwoPools = 6 / 2 * 5;

TEST_CASE("A few giants do not hold up many light ones (K4)") {
  const Scenario scenario = FewGiants(1);
  const Outcome outcome = Simulate(scenario, ParsePolicy("headroom").value());
  CHECK_FALSE(outcome.run.failed);
  CHECK(outcome.run.oom_kills == 0);
  CHECK(outcome.broken.empty());
  CHECK(outcome.run.seconds <= 1.05 * kTwoPools);
  // What people do instead: the fixed -j that passes.
  const double fixed = Simulate(scenario, ParsePolicy("best-fixed").value()).run.seconds;
  INFO("fixed " << fixed << " s, Headroom " << outcome.run.seconds << " s");
  CHECK(outcome.run.seconds < fixed);
}

// A machine of 1.2 GB: what is taken of an unknown cicc and cc1plus together is more than it has,
// so that one after the other runs until the first of each has ended. Known ones do as above.
TEST_CASE("A few giants do not hold up many light ones on a small machine (K4)") {
  Scenario scenario = FewGiants(0.1);
  const Outcome first = Simulate(scenario, ParsePolicy("headroom").value());
  CHECK_FALSE(first.run.failed);
  CHECK(first.run.oom_kills == 0);
  CHECK(first.run.seconds <= 1.4 * kTwoPools);
  scenario.history = true;
  const Outcome second = Simulate(scenario, ParsePolicy("headroom").value());
  CHECK_FALSE(second.run.failed);
  CHECK(second.run.oom_kills == 0);
  CHECK(second.run.seconds <= 1.05 * kTwoPools);
}

}  // namespace
}  // namespace headroom::sim
