// More jobs than cores in a small domain: examples/cuda with `--jobs 16` on two cores, in the
// demo's memory. Its processes live for a second or three of CPU time, eight share a core's time,
// and the peaks of those that start together come together.
#include <catch2/catch.hpp>

#include "server/sim/baselines.h"
#include "server/sim/scenario.h"
#include "tests/support/sanitizers.h"

namespace headroom::sim {
namespace {

TEST_CASE("Many more jobs than cores: little is thrown away, nothing is killed") {
  Scenario scenario;
  scenario.commands = ReadCurves(HEADROOM_SOURCE_DIR "/tests/data/examples_cuda_nvcc13.jsonl");
  scenario.cores = 2;
  scenario.mem_bytes = 1232.0 * 1024 * 1024;
  scenario.jobs = 16;
  double cpu = 0;
  for (const Command& command : scenario.commands) cpu += CommandWork(command, 1, 1);
  // A sanitizer is after faults of memory, which one shows as well.
  constexpr uint64_t kSeeds = testing::FewerUnderSanitizers(3, 1);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    scenario.seed = seed;
    const Outcome outcome = Simulate(scenario, ParsePolicy("headroom").value());
    INFO("seed " << seed << ": " << outcome.run.seconds << " s, " << outcome.run.evictions
                 << " evictions, " << outcome.run.wasted_cpu_s << " of " << cpu << " CPU s wasted");
    CHECK_FALSE(outcome.run.failed);
    CHECK(outcome.run.oom_kills == 0);
    CHECK(outcome.broken.empty());
    // Before short lives, shared cores and memory on its way back were planned with: 0.63 of it,
    // and 1.65 times the time.
    CHECK(outcome.run.wasted_cpu_s < 0.08 * cpu);
    CHECK(outcome.run.seconds < 1.15 * cpu / scenario.cores);
  }
}

}  // namespace
}  // namespace headroom::sim
