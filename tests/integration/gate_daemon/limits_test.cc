// The gate with its daemon where something is scarce: cores, descriptors, room for files.
#include <signal.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <iterator>

#include "tests/integration/gate_daemon/gate_build.h"

namespace headroom::testing {
namespace {

using std::chrono::seconds;

StandinBuild Plain(int count, const std::string& length) {
  StandinBuild build;
  for (int i = 0; i < count; ++i) {
    StandinEdge edge;
    edge.name = "unit" + std::to_string(i);
    edge.tool = "cc1plus";
    edge.curve = "0:1M," + length + ":4M";
    build.edges.push_back(edge);
  }
  return build;
}

std::vector<StandinRun> RunsOf(const std::vector<StandinRun>& log, const std::string& tool) {
  std::vector<StandinRun> runs;
  for (const StandinRun& run : log) {
    if (run.tool == tool) runs.push_back(run);
  }
  return runs;
}

// As links with -flto=8 are: each linker, admitted, runs eight lto1 and takes no memory meanwhile.
StandinBuild Links() {
  StandinBuild links;
  for (int i = 0; i < 3; ++i) {
    StandinEdge edge;
    edge.name = "link" + std::to_string(i);
    edge.tool = "ld";
    for (int part = 0; part < 8; ++part) edge.chains.push_back("lto1:0:1M,0.15:3M");
    edge.options = {"--threads", "8"};
    links.edges.push_back(edge);
  }
  return links;
}

TEST_CASE("Tools below a tool that waits for them: bounded by the cores, never a deadlock") {
  const GateBuild build(Links());
  const std::string jobs = GENERATE(std::string("1"), std::string("2"));
  const auto make = FindProgram("make");
  REQUIRE(make);
  const ProgramResult result =
      Run(build.Run({"--jobs", jobs}, {make->string(), "-j3"}), seconds(60));
  INFO(result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(!result.timed_out);
  const auto runs = RunsOf(build.Log(), "lto1");
  CHECK(runs.size() == 24);
  CHECK(MaxParallel(runs) <= std::stoi(jobs) + 1);
  std::printf("--jobs %s: at most %d lto1 at once, %.1f s\n", jobs.c_str(), MaxParallel(runs),
              result.wall_seconds);
}

TEST_CASE("A new daemon knows who waits for whom, in whatever order they come back") {
  const GateBuild build(Links());
  const auto make = FindProgram("make");
  REQUIRE(make);
  Program program(build.Run({"--jobs", "1"}, {make->string(), "-j3"}));
  for (int i = 0; i < 3; ++i) {
    const size_t done = RunsOf(build.Log(), "lto1").size();
    REQUIRE(WaitUntil([&] { return RunsOf(build.Log(), "lto1").size() >= done + 2; }, seconds(20)));
    if (const auto daemon = build.Daemon()) kill(*daemon, SIGKILL);
  }
  const ProgramResult result = program.Wait(seconds(40));
  INFO(result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(!result.timed_out);
  CHECK(RunsOf(build.Log(), "lto1").size() == 24);
  CHECK(!Contains(build.DaemonLog(), "broken invariant"));
}

TEST_CASE("A daemon without descriptors turns tools away, and they go one by one") {
  const GateBuild build(Plain(60, "0.1"));
  Program program(
      build.Run({"--jobs", "4"},
                {"sh", "-c", "touch up; while ! [ -e go ]; do sleep 0.05; done; exec make -j60"}));
  REQUIRE(WaitUntil([&] { return fs::exists(build.dir() / "up"); }, seconds(20)));
  const auto daemon = build.Daemon();
  REQUIRE(daemon);
  // Room for a third of those that will ask. (It keeps a descriptor for each compiler of the host.)
  const fs::path open = "/proc/" + std::to_string(*daemon) + "/fd";
  const auto used = std::distance(fs::directory_iterator(open), fs::directory_iterator());
  const rlimit limit = {static_cast<rlim_t>(used) + 20, static_cast<rlim_t>(used) + 20};
  REQUIRE(prlimit(*daemon, RLIMIT_NOFILE, &limit, nullptr) == 0);
  WriteFile(build.dir() / "go", "");
  const ProgramResult result = program.Wait(seconds(60));
  INFO(result.err << result.out << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(!result.timed_out);
  CHECK(build.Outputs().size() == 60);
  // The daemon's own four and the lane's four.
  CHECK(MaxParallel(build.Log()) <= 9);
  CHECK(Contains(result.err, ", 0 freezes, "));  // It is still there to tell.
}

TEST_CASE("A tool without a free descriptor is served all the same") {
  const GateBuild build(Plain(1, "0.1"));
  const ProgramResult result = Run(build.Run(
      {}, {"bash", "-c",
           "exec 3<&-; ulimit -n 24; i=4; while [ $i -lt 24 ]; do eval \"exec $i</dev/null\"; "
           "i=$((i+1)); done; exec " +
               build.tools().Path("cc1plus") + " --curve 0:1M,0.2:3M -c x.cc -o full.o"}));
  INFO(result.err << result.out);
  CHECK(result.exit_code == 0);
  CHECK(fs::exists(build.dir() / "full.o"));
}

}  // namespace
}  // namespace headroom::testing
