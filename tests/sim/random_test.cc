// Random scenarios under the gate: no build fails, nothing outside the builds is killed, little
// work is thrown away, and the builds are faster than with the best fixed -j of each scenario.
#include "tests/sim/random.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "server/sim/scenario.h"
#include "tests/support/sanitizers.h"

namespace headroom::sim {
namespace {

struct Best {
  int n = 0;
  double seconds = 0;
};

std::map<uint64_t, Best> ReadBest() {
  std::ifstream file(HEADROOM_SOURCE_DIR "/tests/data/random_best_fixed.txt");
  std::map<uint64_t, Best> all;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    uint64_t number = 0;
    Best best;
    REQUIRE(words >> number >> best.n >> best.seconds);
    all[number] = best;
  }
  return all;
}

const std::vector<Command>& Recorded() {
  static const std::vector<Command> commands =
      ReadCurves(HEADROOM_SOURCE_DIR "/tests/data/flash_attn_2.8.3_nvcc13_sm100.jsonl");
  return commands;
}

TEST_CASE("The stored best fixed -j is what the simulator finds") {
  const std::map<uint64_t, Best> best = ReadBest();
  REQUIRE(best.size() >= 1000);
  for (const uint64_t number : {2U, 6U, 22U}) {
    INFO("scenario " << number);
    const Outcome found =
        Simulate(RandomScenario(Recorded(), number), ParsePolicy("best-fixed").value());
    CHECK(found.n == best.at(number).n);
    CHECK(found.run.seconds == Approx(best.at(number).seconds).margin(0.1));
  }
}

TEST_CASE("Random scenarios under the gate") {
  const std::map<uint64_t, Best> best = ReadBest();
  int with_kills = 0;
  double log_speed = 0;
  int compared = 0;
  double wasted = 0;
  double cpu = 0;
  // Each is a second or two of work by itself, and ten times that under a sanitizer, which is after
  // faults of memory and needs no statistics: they are shared out among the cores.
  constexpr uint64_t kScenarios = testing::FewerUnderSanitizers(300, 6);
  std::vector<Outcome> outcomes(kScenarios);
  std::atomic<uint64_t> next{0};
  Recorded();
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    workers.emplace_back([&] {
      for (uint64_t at = next++; at < kScenarios; at = next++) {
        outcomes[at] =
            Simulate(RandomScenario(Recorded(), at + 1), ParsePolicy("headroom").value());
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (uint64_t number = 1; number <= kScenarios; ++number) {
    const Outcome& outcome = outcomes[number - 1];
    INFO("scenario " << number);
    CHECK_FALSE(outcome.run.failed);
    CHECK(outcome.run.foreign_kills == 0);
    CHECK(outcome.broken.empty());
    if (outcome.run.oom_kills > 0) {
      ++with_kills;
      std::cout << "scenario " << number << ": " << outcome.run.oom_kills << " OOM kills\n";
    }
    wasted += outcome.run.wasted_cpu_s;
    cpu += outcome.run.cpu_s;
    if (best.at(number).n > 0) {
      log_speed += std::log(best.at(number).seconds / outcome.run.seconds);
      ++compared;
    }
  }
  std::cout << with_kills << " of " << kScenarios << " with a kernel OOM kill, "
            << 100 * wasted / cpu << " % of the CPU time thrown away, "
            << std::exp(log_speed / compared) << " times the best fixed -j\n";
  // The bars are means: of a few they say nothing.
  if (testing::kSanitized) return;
  CHECK(with_kills < 0.01 * kScenarios);
  CHECK(wasted < 0.03 * cpu);
  REQUIRE(compared > 0);
  CHECK(std::exp(log_speed / compared) >= 1.5);
}

}  // namespace
}  // namespace headroom::sim
