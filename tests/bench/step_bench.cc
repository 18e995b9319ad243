// What a Step costs. The bar (issue 3): 10,000 processes in at most 1 ms, in a release build.
#include <benchmark/benchmark.h>

#include <string>

#include "server/policy/step.h"

namespace headroom::policy {
namespace {

constexpr DomainId kHost{1};

enum Kind : int64_t {
  kInJobs,  // an ungated lane: jobs of four tool processes
  kGated,   // let go by the gate: each planned with by itself
  kShort,   // as kInJobs, with less memory than they will want: most stand still
};

struct Size {
  int processes = 0;
  Kind kind = kInJobs;
  int lanes = 1;  // each in a cgroup of its own where there are several
  int waiting = 0;
};

// A host with tool processes that all grow.
struct Load {
  explicit Load(const Size& size) {
    DomainSeen host;
    host.id = kHost;
    host.name = "host";
    host.limit = size.kind == kShort ? GiB(2048) : GiB(65536);
    Feed(host);
    sample.domains.push_back(DomainSample{kHost, host.limit, 0, {}, 0});
    for (int i = 0; i < size.lanes; ++i) {
      LaneOpened lane;
      lane.id = Lane(i);
      lane.name = std::to_string(i);
      lane.uid = 1000 + static_cast<uint32_t>(i % 10);
      lane.domain = kHost;
      lane.cores = 256;
      lane.gated = size.kind == kGated;
      if (size.lanes > 1) {
        DomainSeen cgroup;
        cgroup.id = Cgroup(i);
        cgroup.parent = kHost;
        cgroup.name = "lane";
        cgroup.limit = host.limit;
        Feed(cgroup);
        sample.domains.push_back(DomainSample{cgroup.id, host.limit, 0, {}, 0});
        lane.domain = cgroup.id;
      }
      Feed(lane);
      sample.lanes.push_back(LaneSample{lane.id, 0, 1, {}, {}});
    }
    for (int i = 0; i < size.processes; ++i) {
      const int lane = i / 4 % size.lanes;
      if (size.kind != kGated && i % 4 == 0) {
        JobSeen job;
        job.job = {1'000'000 + i, 1};
        job.lane = Lane(lane);
        job.driver = "nvcc";
        job.source = Source(i);
        job.fan_out = 4;
        Feed(job);
      }
      ProcSeen seen;
      seen.proc = {10 + i, 1};
      seen.lane = Lane(lane);
      seen.domain = size.lanes > 1 ? Cgroup(lane) : kHost;
      if (size.kind != kGated) seen.job = {1'000'000 + i / 4 * 4, 1};
      seen.info.tool = "cicc";
      seen.info.source = Source(i);
      seen.uid = 1000 + static_cast<uint32_t>(lane % 10);
      Feed(seen);
      sample.procs.push_back({seen.proc, MiB(100), Duration{0}});
    }
    for (int i = 0; i < size.waiting; ++i) {
      GateRequest request;
      request.gate = GateId{1 + static_cast<uint64_t>(i)};
      request.lane = Lane(i % size.lanes);
      request.domain = size.lanes > 1 ? Cgroup(i % size.lanes) : kHost;
      request.keeper = {2'000'000 + i, 1};
      request.info.tool = "cicc";
      request.info.source = Source(i);
      request.replayable = true;
      Feed(request);
    }
    for (int i = 0; i < 20; ++i) Look();
  }
  static LaneId Lane(int i) { return LaneId{1 + static_cast<uint32_t>(i)}; }
  static DomainId Cgroup(int i) { return DomainId{2 + static_cast<uint32_t>(i)}; }
  static std::string Source(int i) { return "kernel_" + std::to_string(i % 40) + "_a.cu"; }

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

Size SizeOf(const benchmark::State& bench) {
  return {static_cast<int>(bench.range(0)), Kind{bench.range(1)}, static_cast<int>(bench.range(2)),
          static_cast<int>(bench.range(3))};
}

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"processes", "kind", "lanes", "waiting"})->Unit(benchmark::kMicrosecond);
  bench->Args({300, kInJobs, 1, 0})->Args({1000, kInJobs, 1, 0});
  bench->Args({10000, kInJobs, 1, 0})->Args({10000, kGated, 1, 0})->Args({10000, kShort, 1, 0});
  bench->Args({10000, kInJobs, 200, 0})->Args({10000, kGated, 200, 500});
  bench->Args({10000, kShort, 200, 0});
}

// A look at all processes and the decision after it.
void FullLook(benchmark::State& bench) {
  Load load(SizeOf(bench));
  for (auto _ : bench) load.Look();
}
BENCHMARK(FullLook)->Apply(Sizes);

// A decision without a new look: what an event at the gate costs beside so many processes.
void TickOnly(benchmark::State& bench) {
  Load load(SizeOf(bench));
  for (auto _ : bench) {
    load.now += std::chrono::milliseconds(1);
    load.Feed(Tick{});
  }
}
BENCHMARK(TickOnly)->Apply(Sizes);

}  // namespace
}  // namespace headroom::policy

BENCHMARK_MAIN();
