// Kinds of trouble from the field, in virtual time.
#include <catch2/catch.hpp>
#include <string>

#include "tests/sim/scenario.h"

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

// 200 light commands of 20 MB and 0.2 s, and 6 heavy ones of 400 MB and 5 s, which a cap that is
// safe for the heavy ones would hold up all together. 1.2 GB, 8 cores.
Scenario FewGiants() {
  Scenario scenario;
  for (int i = 0; i < 206; ++i) {
    const std::string number = std::to_string(i);
    scenario.commands.push_back(
        i % 33 == 0 && i < 33 * 6 ? Simple("giant" + number + ".cu", "nvcc", "cicc", 400e6, 5)
                                  : Simple("light" + number + ".cc", "c++", "cc1plus", 20e6, 0.2));
  }
  scenario.cores = 8;
  scenario.mem_bytes = 1.2e9;
  return scenario;
}

// The best ninja file that a hand could write for it: a pool of two for the giants (three are 1.2
// GB), the light ones beside them.
constexpr double kTwoPools = 6 / 2 * 5;

TEST_CASE("A few giants do not hold up many light ones (K4)") {
  const Scenario scenario = FewGiants();
  const Outcome outcome = Simulate(scenario, ParsePolicy("headroom").value());
  CHECK_FALSE(outcome.run.failed);
  CHECK(outcome.run.oom_kills == 0);
  CHECK(outcome.broken.empty());
  CHECK(outcome.run.seconds <= 1.3 * kTwoPools);
  // What people do instead: the fixed -j that passes.
  const double fixed = Simulate(scenario, ParsePolicy("best-fixed").value()).run.seconds;
  INFO("fixed " << fixed << " s, Headroom " << outcome.run.seconds << " s");
  CHECK(outcome.run.seconds < fixed);
}

}  // namespace
}  // namespace headroom::sim
