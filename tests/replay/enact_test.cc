// The simulator held against real processes, in short: a small part of examples/cuda, with a fixed
// -j that fits, one that doesn't, and Headroom. scripts/bench/replay has the long form.
#include "tests/replay/enact.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <iostream>
#include <optional>
#include <string>

#include "tests/support/sanitizers.h"

using namespace headroom;
using namespace headroom::replay;

namespace {

constexpr std::chrono::seconds kTimeout{60};

// Memory at a quarter: 322 MB, stand-ins of up to 70 MB. Under Headroom times are as recorded, so
// that the daemon's reaction times are what they would be.
constexpr int kScale = 4;

sim::Scenario Small(size_t commands) {
  sim::Scenario scenario;
  scenario.commands = sim::ReadCurves(HEADROOM_SOURCE_DIR "/tests/data/examples_cuda_nvcc13.jsonl");
  scenario.commands.resize(commands);
  scenario.cores = 16;
  scenario.mem_bytes = 1.29e9;
  scenario.archs = 0;
  return scenario;
}

bool Skipped() {
  if (headroom::testing::SkipUnderSanitizers(
          "an instrumented daemon reacts later, in too little memory for it")) {
    return true;
  }
  if (const std::optional<std::string> why = Enactment::WhyUnavailable()) {
    std::cout << "SKIPPED: " << *why << '\n';
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("Acted with a fixed -j a build comes to what the simulator says") {
  if (Skipped()) return;
  SECTION("one that fits: its time within 15 %") {
    sim::Scenario scenario = Small(3);
    StretchTime(scenario.commands, 0.5);  // nobody reacts to anything here
    Enactment enactment(scenario, kScale);
    const Outcome simulated = enactment.SimulatedFixed(3);
    const Outcome acted = enactment.Fixed(3, kTimeout);
    INFO("acted " << InWords(acted) << ", simulated " << InWords(simulated) << '\n'
                  << acted.output);
    CHECK_FALSE(simulated.failed);
    CHECK(Agree(acted, simulated, 0.15));
    CHECK(acted.oom_kills == 0);
  }
  SECTION("one that doesn't: killed, as early") {
    Enactment enactment(Small(6), kScale);
    const Outcome simulated = enactment.SimulatedFixed(6);
    const Outcome acted = enactment.Fixed(6, kTimeout);
    INFO("acted " << InWords(acted) << ", simulated " << InWords(simulated) << '\n'
                  << acted.output);
    CHECK(simulated.killed);
    CHECK(acted.killed);
    // Within a second: the first kill comes after one or two, and processes start in 10 to 50 ms
    // each on a busy machine.
    CHECK(std::abs(acted.seconds - simulated.seconds) < 1.0);
  }
}

TEST_CASE("Acted under Headroom a build that a fixed -j loses passes") {
  if (Skipped()) return;
  Enactment enactment(Small(6), kScale);
  const Outcome first = enactment.UnderHeadroom(kTimeout);
  INFO("first acted " << InWords(first) << '\n' << first.output);
  CHECK_FALSE(enactment.SimulatedUnderHeadroom(false).failed);
  CHECK_FALSE(first.failed);
  CHECK(first.oom_kills == 0);
  // The simulator is more careful than the daemon in the first build of so few processes: its time
  // is compared in the second, when both know what comes (docs/results.md has both).
  const Outcome simulated = enactment.SimulatedUnderHeadroom(true);
  const Outcome acted = enactment.UnderHeadroom(kTimeout);
  INFO("acted " << InWords(acted) << ", simulated " << InWords(simulated) << '\n' << acted.output);
  CHECK_FALSE(simulated.failed);
  CHECK(Agree(acted, simulated, 0.15));
  CHECK(acted.oom_kills == 0);
}

TEST_CASE("A simplified curve keeps its ends and its peak, and strays by 1 % of it at most") {
  for (const sim::Command& command : Small(6).commands) {
    for (const sim::Shape& shape : command.shapes) {
      sim::Shape simple = shape;
      simple.knots = Simplified(shape.knots, shape.peak);
      REQUIRE(simple.knots.size() <= kMostKnots);
      CHECK(simple.knots.front().cpu == shape.knots.front().cpu);
      CHECK(simple.knots.back().cpu == shape.knots.back().cpu);
      double top = 0;
      for (const sim::Knot& knot : simple.knots) top = std::max(top, knot.bytes);
      CHECK(top == shape.peak);
      for (const sim::Knot& knot : shape.knots) {
        CHECK(std::abs(sim::BytesAt(simple, knot.cpu) - knot.bytes) <= 0.011 * shape.peak);
      }
    }
  }
}

TEST_CASE("What can't be acted is refused") {
  sim::Scenario scenario = Small(1);
  scenario.builds = 2;
  CHECK_THROWS_WITH(Enactment(scenario, 2), Catch::Contains("only one build"));
}

TEST_CASE("Stretched in time a command takes so much longer, and nothing else changes") {
  const sim::Command before = Small(1).commands.front();
  std::vector<sim::Command> commands = {before};
  StretchTime(commands, 0.5);
  const sim::Command& after = commands.front();
  CHECK(after.end_gap_s == Approx(before.end_gap_s / 2));
  CHECK(after.front.back().gap_s == Approx(before.front.back().gap_s / 2));
  CHECK(after.chains.front().back().gap_s == Approx(before.chains.front().back().gap_s / 2));
  for (size_t i = 0; i < before.shapes.size(); ++i) {
    CHECK(after.shapes[i].cpu_s == Approx(before.shapes[i].cpu_s / 2));
    CHECK(after.shapes[i].knots.back().cpu == Approx(before.shapes[i].knots.back().cpu / 2));
    CHECK(after.shapes[i].peak == before.shapes[i].peak);
  }
}
