// The daemon in memory cgroups that are too small for their builds: stand-in compilers, real ninja
// and make, real limits, `headroom run` as people use it. The kernel's own counters are the judge.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/headroom/v1/gate_wire.h"
#include "server/sys/process.h"
#include "tests/integration/daemon/daemon_fixture.h"
#include "tests/support/testing.h"

namespace headroom::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What every test here needs; prints why it is skipped.
struct Needs {
  std::string ninja;
  std::string make;
};
std::optional<Needs> Ready() {
  if (const std::optional<std::string> why = MemoryCgroup::WhyUnavailable()) {
    printf("SKIPPED: %s\n", why->c_str());
    return std::nullopt;
  }
  const std::optional<fs::path> ninja = VenvTool("ninja");
  const std::optional<fs::path> make = VenvTool("make");
  if (!ninja || !make) {
    printf("SKIPPED: ninja and make of PyPI aren't in build/venv/bin; run scripts/setup\n");
    return std::nullopt;
  }
  return Needs{ninja->string(), make->string()};
}

ProgramOptions HeadroomRun(const TestDaemon& daemon, const MemoryCgroup& cgroup,
                           const fs::path& cwd, std::vector<std::string> options,
                           const std::vector<std::string>& client) {
  ProgramOptions run;
  run.argv = {HEADROOM_BIN_DIR "/headroom", "run"};
  run.argv.insert(run.argv.end(), options.begin(), options.end());
  run.argv.push_back("--");
  run.argv.insert(run.argv.end(), client.begin(), client.end());
  run.env["HEADROOM_RUNTIME_DIR"] = daemon.runtime_dir().string();
  run.env["MAKEFLAGS"] = std::nullopt;
  run.env["HEADROOM_LANE"] = std::nullopt;
  run.cwd = cwd;
  run.cgroup = &cgroup;
  return run;
}

// Like compilers, they grow with the CPU time that they get: the policy predicts along that.
StandinBuild CpuBound(StandinBuild build) {
  build.common_options = "--cpu 1";
  return build;
}

struct HeavyBuild {
  TempDir dir;
  StandinTools tools;
  StandinBuild build;
  fs::path work;

  explicit HeavyBuild(StandinBuild edges, bool for_make = false)
      : tools(dir / "bin"), build(std::move(edges)), work(dir / "work") {
    fs::create_directories(work);
    if (for_make) {
      WriteMakeBuild(work, tools, build);
    } else {
      WriteNinjaBuild(work, tools, build);
    }
  }
  std::vector<StandinRun> Runs() const { return ReadStandinLog(work / "standin.log"); }
};

// Host PSI "full avg10", in percent; negative where there is none.
double PsiFull() {
  std::ifstream file("/proc/pressure/memory");
  for (std::string line; std::getline(file, line);) {
    double value = 0;
    if (sscanf(line.c_str(), "full avg10=%lf", &value) == 1) return value;
  }
  return -1;
}

void CheckPassed(const ProgramResult& result, const HeavyBuild& build, const MemoryCgroup& cgroup) {
  INFO(result.err << result.out);
  CHECK(result.exit_code == 0);
  CHECK(cgroup.OomKills() == 0);
  CHECK(build.Runs().size() == build.build.edges.size());
  printf("%s", result.err
                   .substr(result.err.rfind("headroom: wall") == std::string::npos
                               ? result.err.size()
                               : result.err.rfind("headroom: wall"))
                   .c_str());
}

TEST_CASE("a limit on the grandparent cgroup alone is kept to (K6)") {
  const std::optional<Needs> needs = Ready();
  if (!needs) return;
  const MemoryCgroup grandparent(450 * kMiB);
  const MemoryCgroup parent(grandparent, "parent");
  const MemoryCgroup leaf(parent, "leaf");
  TestDaemon daemon;
  // Eight at once would take twice the limit.
  const HeavyBuild build(CpuBound(UnevenBuild(12, 60 * kMiB, 200 * kMiB, 1, 2)));
  const ProgramResult result =
      Run(HeadroomRun(daemon, leaf, build.work, {"--no-gate", "--jobs", "8"}, {needs->ninja}),
          seconds(200));
  CheckPassed(result, build, grandparent);
  CHECK(MeanParallel(build.Runs()) > 1.0);
  CHECK(MaxParallel(build.Runs()) <= 8);
}

TEST_CASE("two builds in one lane stay in one budget together (K7)") {
  const std::optional<Needs> needs = Ready();
  if (!needs) return;
  const MemoryCgroup cgroup(450 * kMiB);
  TestDaemon daemon;
  ControlClient control(daemon.socket());
  v1::Request set;
  set.mutable_set()->set_jobs(8);
  control.Call(set);
  const std::string lane = control.SharedLane();
  const HeavyBuild first(CpuBound(UnevenBuild(6, 60 * kMiB, 200 * kMiB, 1, 2, 1)));
  const HeavyBuild second(CpuBound(UnevenBuild(6, 60 * kMiB, 200 * kMiB, 1, 2, 2)));
  std::vector<std::unique_ptr<Program>> builds;
  for (const HeavyBuild* build : {&first, &second}) {
    ProgramOptions options = InLane(lane, {needs->ninja}, 8, build->work);
    options.cgroup = &cgroup;
    builds.push_back(std::make_unique<Program>(options));
  }
  for (const std::unique_ptr<Program>& build : builds) {
    const ProgramResult result = build->Wait(seconds(100));
    INFO(result.out << result.err);
    CHECK(result.exit_code == 0);
  }
  CHECK(cgroup.OomKills() == 0);
  CHECK(first.Runs().size() == 6);
  CHECK(second.Runs().size() == 6);
  // Both go on all the time: none waits for the other's end.
  CHECK(first.Runs().back().start_seconds > second.Runs().front().start_seconds);
  CHECK(second.Runs().back().start_seconds > first.Runs().front().start_seconds);
  // Everything is back.
  CHECK(WaitUntil([&] {
    const v1::Lane now = *daemon.Lane(lane);
    return now.pool().out() == 0 && now.clients() == 0;
  }));
}

TEST_CASE("a limit far below what the build wants: no kill, and the host doesn't stall (K10)") {
  const std::optional<Needs> needs = Ready();
  if (!needs) return;
  if (PsiFull() > 5) {
    printf("SKIPPED: the host stalls already (memory PSI full avg10 is above 5 %%)\n");
    return;
  }
  const MemoryCgroup cgroup(800 * kMiB);
  TestDaemon daemon;
  // All at once would take 2.5 GB.
  const HeavyBuild build(CpuBound(UnevenBuild(10, 150 * kMiB, 350 * kMiB, 1, 2)));
  Program run(
      HeadroomRun(daemon, cgroup, build.work, {"--no-gate", "--jobs", "10"}, {needs->ninja}));
  double worst = 0;
  while (run.Running()) {
    worst = std::max(worst, PsiFull());
    std::this_thread::sleep_for(milliseconds(250));
  }
  CheckPassed(run.Wait(seconds(200)), build, cgroup);
  printf("worst memory PSI full avg10: %.2f %%\n", worst);
  CHECK(worst < 10);
}

TEST_CASE("a cgroup that vanishes in mid-build leaves the rest of the chain") {
  const std::optional<Needs> needs = Ready();
  if (!needs) return;
  const MemoryCgroup outer(600 * kMiB);
  TestDaemon daemon;
  const HeavyBuild build(CpuBound(UnevenBuild(6, 60 * kMiB, 150 * kMiB, 0.5, 1)));
  const HeavyBuild later(CpuBound(UnevenBuild(6, 60 * kMiB, 150 * kMiB, 0.5, 1, 3)));
  ControlClient control(daemon.socket());
  const std::string lane = control.SharedLane();
  {
    const MemoryCgroup inner(outer, "inner", 400 * kMiB);
    ProgramOptions options = InLane(lane, {needs->ninja}, 2, build.work);
    options.cgroup = &inner;
    CHECK(Run(options).exit_code == 0);
    CHECK(inner.OomKills() == 0);
  }
  ProgramOptions options = InLane(lane, {needs->ninja}, 2, later.work);
  options.cgroup = &outer;
  CHECK(Run(options).exit_code == 0);
  CHECK(outer.OomKills() == 0);
  CHECK(control.Status().broken_invariants() == 0);
}

// Stand-in compilers of a build in `cgroup` that run now; those that stand still do not, nor, where
// the build is `gated`, those that have no keeper yet: they wait.
int RunningNow(const MemoryCgroup& cgroup, bool gated) {
  int running = 0;
  for (const pid_t pid : cgroup.Pids()) {
    const std::optional<sys::ProcStat> stat = sys::ReadProcStat(sys::Roots{}, pid);
    if (!stat || stat->comm != "cc1plus" || stat->state == 'T' || stat->dead()) continue;
    if (gated && ProcessName(stat->ppid) != gate::kGateKeeperName) continue;
    ++running;
  }
  return running;
}

// Looks each 50 ms for `length`; gives the mean, and the least, of running jobs.
struct Looks {
  double mean = 0;
  int least = 1000;
};
Looks Watch(const MemoryCgroup& cgroup, bool gated, std::chrono::milliseconds length) {
  Looks looks;
  int count = 0;
  for (const auto end = std::chrono::steady_clock::now() + length;
       std::chrono::steady_clock::now() < end; ++count) {
    const int running = RunningNow(cgroup, gated);
    looks.mean += running;
    looks.least = std::min(looks.least, running);
    std::this_thread::sleep_for(milliseconds(50));
  }
  looks.mean /= std::max(1, count);
  return looks;
}

// Issue 3's bar, for a build by make with `options` of `headroom run`. Short jobs, so that tokens
// come back; make takes a token as soon as there is one.
void HogBesideBuild(const std::vector<std::string>& options) {
  const std::optional<Needs> needs = Ready();
  if (!needs) return;
  constexpr std::uint64_t kLimit = 1200 * kMiB;
  const MemoryCgroup cgroup(kLimit);
  TestDaemon daemon;
  // Two seconds and a tenth of a core each, so that the machine's other load hardly slows them. All
  // 16 at once would take 1440 MiB: the pool is as full as memory lets it be.
  StandinBuild edges;
  edges.common_options = "--cpu 0.1";
  for (int i = 0; i < 600; ++i) {
    StandinEdge edge;
    edge.name = "unit" + std::to_string(i);
    // With a source of a family of its own: compilers of other builds on this machine have the same
    // name, and take ten times as much.
    edge.options = {"--curve", "0:0,0.3:40M,1.2:85M,1.8:90M,2:50M",
                    "hogged_unit_" + std::to_string(i) + ".cc"};
    edges.edges.push_back(edge);
  }
  const HeavyBuild build(edges, true);
  const StandinTools hogs(build.dir / "hogs", {"hog"});
  Program run(HeadroomRun(daemon, cgroup, build.work, options, {needs->make}));
  const bool gated = options.front() != "--no-gate";
  Watch(cgroup, gated, seconds(14));
  const Looks before = Watch(cgroup, gated, seconds(4));
  // Growth is expected of every compiler on the machine: beside those of another build the cgroup
  // is not what binds.
  const v1::Status status = ControlClient(daemon.socket()).Status();
  for (const v1::Domain& domain : status.domains()) {
    if (domain.name() != "host" || before.mean > 6) continue;
    if (domain.memory().headroom() > static_cast<int64_t>(kLimit)) continue;
    printf("SKIPPED: other compilers on this machine are expected to need its memory\n");
    return;
  }

  constexpr std::uint64_t kHog = kLimit * 3 / 10;
  const std::string full = std::to_string(static_cast<double>(kHog) / (200 * kMiB));
  ProgramOptions beside;
  beside.argv = {hogs.Path("hog"), "--curve",
                 "0:0," + full + ":" + std::to_string(kHog) + ",20:" + std::to_string(kHog), "x"};
  beside.cgroup = &cgroup;
  Program hog(beside);
  const Looks during = Watch(cgroup, gated, seconds(18));
  CHECK(hog.Wait(seconds(30)).exit_code == 0);
  // Back within 10 s.
  double back = 0;
  Looks after;
  while (back < 10 && after.mean < 0.75 * before.mean) {
    after = Watch(cgroup, gated, seconds(2));
    back += 2;
  }
  CHECK(run.Running());
  run.Signal(SIGTERM);
  const ProgramResult result = run.Wait(seconds(30));
  INFO(result.err);
  printf(
      "running jobs: %.1f before, %.1f (least %d) beside the hog, %.1f within %.0f s of its end\n",
      before.mean, during.mean, during.least, after.mean, back);
  CHECK(before.mean > 6);
  CHECK(during.least <= before.mean / 2);
  CHECK(after.mean >= 0.75 * before.mean);
  CHECK(cgroup.OomKills() == 0);
}

TEST_CASE("a hog that is no part of the build: its jobs halve, nobody is killed, they come back") {
  HogBesideBuild({"--no-gate", "--jobs", "16"});
}

TEST_CASE("a hog beside a build at the gate: its tools halve, nobody is killed, they come back") {
  HogBesideBuild({"--jobs", "16"});
}

}  // namespace
}  // namespace headroom::testing
