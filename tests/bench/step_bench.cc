// What a Step costs. The bar (issue 3): 10,000 processes in at most 1 ms, in a release build.
#include <benchmark/benchmark.h>

#include <string>

#include "server/policy/step.h"

namespace headroom::policy {
namespace {

constexpr DomainId kHost{1};
constexpr LaneId kLane{1};

// A host with `count` tool processes in jobs of four, all growing.
struct Load {
  explicit Load(int count, bool gated) {
    DomainSeen host;
    host.id = kHost;
    host.name = "host";
    host.limit = GiB(4096);
    Feed(host);
    LaneOpened lane;
    lane.id = kLane;
    lane.uid = 1000;
    lane.domain = kHost;
    lane.cores = 256;
    lane.gated = gated;
    Feed(lane);
    for (int i = 0; i < count; ++i) {
      if (!gated && i % 4 == 0) {
        JobSeen job;
        job.job = {1'000'000 + i, 1};
        job.lane = kLane;
        job.driver = "nvcc";
        job.source = "kernel_" + std::to_string(i % 40) + "_a.cu";
        job.fan_out = 4;
        Feed(job);
      }
      ProcSeen seen;
      seen.proc = {10 + i, 1};
      seen.lane = kLane;
      seen.domain = kHost;
      if (!gated) seen.job = {1'000'000 + i / 4 * 4, 1};
      seen.info.tool = "cicc";
      seen.info.source = "kernel_" + std::to_string(i % 40) + "_a.cu";
      seen.uid = 1000;
      Feed(seen);
    }
    sample.domains.push_back(DomainSample{kHost, GiB(4000), 0, {}, 0});
    sample.lanes.push_back(LaneSample{kLane, 0, 1, {}, {}});
    for (int i = 0; i < count; ++i)
      sample.procs.push_back({ProcId{10 + i, 1}, MiB(100), Duration{0}});
  }
  void Feed(const Event& event) { benchmark::DoNotOptimize(Step(state, event, now)); }
  void Look() {
    now += std::chrono::milliseconds(50);
    for (ProcSample& proc : sample.procs) {
      proc.anon += MiB(1);
      proc.cpu += std::chrono::milliseconds(10);
    }
    Feed(sample);
  }

  State state;
  Time now{std::chrono::seconds(1000)};
  Sample sample;
};

// A look at all processes and the decision after it.
void FullLook(benchmark::State& bench) {
  Load load(static_cast<int>(bench.range(0)), bench.range(1) != 0);
  for (int i = 0; i < 20; ++i) load.Look();
  for (auto _ : bench) load.Look();
}
BENCHMARK(FullLook)
    ->ArgNames({"processes", "alone"})
    ->Args({100, 0})
    ->Args({300, 0})
    ->Args({1000, 0})
    ->Args({10000, 0})
    ->Args({10000, 1})
    ->Unit(benchmark::kMicrosecond);

// A decision without a new look: what an event at the gate costs beside so many processes.
void TickOnly(benchmark::State& bench) {
  Load load(static_cast<int>(bench.range(0)), bench.range(1) != 0);
  for (int i = 0; i < 20; ++i) load.Look();
  for (auto _ : bench) {
    load.now += std::chrono::milliseconds(1);
    load.Feed(Tick{});
  }
}
BENCHMARK(TickOnly)
    ->ArgNames({"processes", "alone"})
    ->Args({300, 0})
    ->Args({10000, 0})
    ->Args({10000, 1})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace headroom::policy

BENCHMARK_MAIN();
