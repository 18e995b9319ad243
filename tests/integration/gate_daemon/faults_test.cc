// Builds below `headroom run` where something around them is missing: room on the disk, the right
// to write, the daemon's socket, system calls, the environment. All of them pass.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

#include "tests/integration/gate_daemon/gate_build.h"

namespace headroom::testing {
namespace {

using std::chrono::seconds;

StandinBuild Small(int count) {
  StandinBuild build;
  for (int i = 0; i < count; ++i) {
    StandinEdge edge;
    edge.name = "unit" + std::to_string(i);
    edge.curve = "0:1M,0.1:6M";
    build.edges.push_back(edge);
  }
  return build;
}

bool Succeeds(const Words& argv) {
  ProgramOptions options;
  options.argv = argv;
  return testing::Run(options).exit_code == 0;
}

// Whether mounts can be made that nobody else sees; prints why not.
bool CanMount() {
  if (geteuid() == 0 && FindProgram("unshare") &&
      Succeeds({"unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"})) {
    return true;
  }
  std::printf("SKIPPED: file systems can't be mounted here\n");
  return false;
}

// Runs the shell lines in a mount namespace of their own. $RUN is the runtime folder.
ProgramResult Script(const GateBuild& build, const std::string& lines) {
  ProgramOptions options = build.Plain({"unshare", "-m", "sh", "-c", lines});
  options.env["RUN"] = build.runtime().string();
  options.env["HEADROOM"] = build.Run({}, {}).argv[0];
  return testing::Run(options, seconds(60));
}

void CheckPassed(const GateBuild& build, const ProgramResult& result) {
  INFO(result.err << result.out);
  CHECK(result.exit_code == 0);
  CHECK_FALSE(result.timed_out);
  CHECK(build.Outputs().size() == build.build().edges.size());
}

TEST_CASE("A runtime folder that is full or read-only: the build goes on") {
  if (!CanMount()) return;
  const GateBuild build(Small(6));
  const std::string mount = "mkdir -p $RUN && mount -t tmpfs -o size=64k,mode=700 none $RUN && ";
  const std::string fill = "{ dd if=/dev/zero of=$RUN/fill bs=4k 2>/dev/null; true; } && ";
  const std::string run = "$HEADROOM run --jobs 2 -- make -j6";
  SECTION("full") {
    CheckPassed(build, Script(build, mount + fill + run));
  }
  SECTION("read-only") {
    CheckPassed(build, Script(build, mount + "mount -o remount,ro $RUN && " + run));
  }
  SECTION("full as soon as the lane is there, so that neither tokens nor traces can be noted") {
    CheckPassed(build, Script(build,
                              "mkdir -p $RUN && mount -t tmpfs -o size=300k,mode=700 none $RUN && "
                              "$HEADROOM run --jobs 2 -- sh -c '" +
                                  fill + "make -j6'"));
  }
  SECTION("full, and then the daemon dies") {
    CheckPassed(build, Script(build,
                              "mkdir -p $RUN && mount -t tmpfs -o size=300k,mode=700 none $RUN && "
                              "$HEADROOM run --jobs 2 -- sh -c '" +
                                  fill + "kill -9 $(cat $RUN/lock); make -j6'"));
  }
}

TEST_CASE("A build in a chroot without the daemon's socket goes on without it") {
  if (!CanMount()) return;
  const GateBuild build(Small(6));
  // All of this file system, but for the runtime folder.
  const ProgramResult result =
      Script(build,
             "mkdir -p $RUN root && $HEADROOM run --jobs 2 -- sh -c 'mount --rbind / root && "
             "mount -t tmpfs none root$RUN && exec chroot root sh -c \"cd $PWD && make -j6\"'");
  CheckPassed(build, result);
  CHECK(result.wall_seconds < 20);
}

TEST_CASE("Where a filter forbids what a keeper lives by, the tool runs without one") {
  const std::string call = GENERATE(std::string("wait4"), std::string("sigmask"),
                                    std::string("sigaction"), std::string("signalfd"));
  const GateBuild build(Small(1));
  const std::string forbid = HEADROOM_FORBID;
  if (!Succeeds({forbid, call, "true"})) {
    std::printf("SKIPPED: no seccomp filters here\n");
    return;
  }
  const ProgramResult result = testing::Run(
      build.Run({"--jobs", "2"}, {forbid, call, build.tools().Path("cc1plus"), "--curve",
                                  "0:1M,0.2:9M", "--exit", "7", "-o", "x.o", "x.cc"}),
      seconds(20));
  INFO(call << ": " << result.err << result.out);
  CHECK_FALSE(result.timed_out);
  CHECK(result.exit_code == 7);
  CHECK(result.wall_seconds < 10);
}

TEST_CASE("Tools started without our environment are counted, and the build goes on") {
  const GateBuild build(Small(6));
  const auto make = FindProgram("make");
  REQUIRE(make);
  const ProgramResult result = testing::Run(
      build.Run({"--jobs", "2"}, {"env", "-i", "PATH=/usr/bin:/bin", make->string(), "-j3"}),
      seconds(60));
  CheckPassed(build, result);
  CHECK(Contains(result.err, "out of the gate's reach"));
}

}  // namespace
}  // namespace headroom::testing
