// The gate with its daemon where something is scarce: cores, descriptors, room for files.
#include <catch2/catch.hpp>
#include <cstdio>

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

std::vector<StandinRun> Of(const std::vector<StandinRun>& log, const std::string& tool) {
  std::vector<StandinRun> runs;
  for (const StandinRun& run : log) {
    if (run.tool == tool) runs.push_back(run);
  }
  return runs;
}

TEST_CASE("Tools below a tool that waits for them: bounded by the cores, never a deadlock") {
  // As links with -flto=8 are: each linker, admitted, runs eight lto1 and takes no memory
  // meanwhile.
  StandinBuild links;
  for (int i = 0; i < 3; ++i) {
    StandinEdge edge;
    edge.name = "link" + std::to_string(i);
    edge.tool = "ld";
    for (int part = 0; part < 8; ++part) edge.chains.push_back("lto1:0:1M,0.15:3M");
    edge.options = {"--threads", "8"};
    links.edges.push_back(edge);
  }
  const GateBuild build(links);
  const std::string jobs = GENERATE(std::string("1"), std::string("2"));
  const auto make = FindProgram("make");
  REQUIRE(make);
  const ProgramResult result =
      Run(build.Run({"--jobs", jobs}, {make->string(), "-j3"}), seconds(60));
  INFO(result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(!result.timed_out);
  const auto runs = Of(build.Log(), "lto1");
  CHECK(runs.size() == 24);
  CHECK(MaxParallel(runs) <= std::stoi(jobs) + 1);
  std::printf("--jobs %s: at most %d lto1 at once, %.1f s\n", jobs.c_str(), MaxParallel(runs),
              result.wall_seconds);
}

TEST_CASE("A daemon without descriptors turns tools away, and they go one by one") {
  const GateBuild build(Plain(60, "0.1"));
  const std::string daemon = "ulimit -n 40; exec " HEADROOM_BIN_DIR "/headroomd --private";
  Program scarce(build.Plain({"sh", "-c", daemon}));
  REQUIRE(WaitUntil([&] { return fs::exists(build.runtime() / "control.sock"); }));
  const auto make = FindProgram("make");
  REQUIRE(make);
  const ProgramResult result =
      Run(build.Run({"--jobs", "4"}, {make->string(), "-j60"}), seconds(60));
  INFO(result.err << result.out << scarce.Err());
  CHECK(result.exit_code == 0);
  CHECK(!result.timed_out);
  CHECK(build.Outputs().size() == 60);
  // The daemon's own four and the lane's four.
  CHECK(MaxParallel(build.Log()) <= 9);
  CHECK(scarce.Running());
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
