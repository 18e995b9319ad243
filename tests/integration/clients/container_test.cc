// Containers, as far as namespaces and cgroups make one, and a small disk for temporary files.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <string>

#include "tests/integration/gate_daemon/gate_build.h"

namespace headroom::testing {
namespace {

using std::chrono::seconds;

bool Skip() {
  std::string why;
  if (geteuid() != 0) {
    why = "namespaces and mounts need root";
  } else if (const auto cgroup = MemoryCgroup::WhyUnavailable()) {
    why = *cgroup;
  } else if (!FindProgram("ninja")) {
    why = "no ninja";
  } else if (Run({"unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"}).exit_code !=
             0) {
    why = "no namespaces can be made here";
  }
  if (!why.empty()) std::printf("SKIPPED: %s\n", why.c_str());
  return !why.empty();
}

// Four times as wide as 600 MiB are: killed without Headroom.
StandinBuild WideBuild() {
  StandinBuild build;
  for (int i = 0; i < 10; ++i) {
    StandinEdge edge;
    edge.name = "edge" + std::to_string(i);
    edge.tool = "cicc";
    edge.curve = "0:0,0.8:220M,1.2:220M";
    build.edges.push_back(edge);
  }
  return build;
}

const Words kContainer = {"unshare", "--mount", "--pid", "--fork", "--mount-proc"};

Words In(const Words& container, Words command) {
  command.insert(command.begin(), container.begin(), container.end());
  return command;
}

TEST_CASE(
    "In a container of its own `run` starts a daemon inside, which keeps to the container's "
    "limit") {
  if (Skip()) return;
  const GateBuild build(WideBuild());
  const MemoryCgroup cgroup(600 * kMiB);
  ProgramOptions options = build.Run({"--jobs", "8"}, {"ninja", "-j8"}, &cgroup);
  options.argv = In(kContainer, options.argv);
  const ProgramResult result = Run(options, seconds(120));
  INFO(result.out << result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(cgroup.OomKills() == 0);
  CHECK(build.Outputs().size() == 10);
}

TEST_CASE("The host's daemon holds what runs in a container, by an exported environment") {
  if (Skip()) return;
  const GateBuild build(WideBuild());
  const MemoryCgroup cgroup(600 * kMiB);
  fs::create_directories(build.runtime());
  fs::permissions(build.runtime(), fs::perms::owner_all);
  ProgramOptions serve =
      build.Plain({HEADROOM_BIN_DIR "/headroomd", "--runtime-dir", build.runtime().string(),
                   "--state-dir", (build.dir() / "state").string()});
  Program daemon(serve);
  REQUIRE(WaitUntil([&] { return fs::exists(build.runtime() / "control.sock"); }));
  std::string script = "eval \"$(" HEADROOM_BIN_DIR "/headroom env)\" && exec";
  for (const std::string& word : kContainer) script += " " + word;
  const ProgramResult result =
      Run(build.Plain({"sh", "-c", script + " ninja -j8"}, &cgroup), seconds(120));
  INFO(result.out << result.err << daemon.Err() << daemon.Out());
  CHECK(result.exit_code == 0);
  CHECK(cgroup.OomKills() == 0);
  CHECK(build.Outputs().size() == 10);
  daemon.Signal(SIGTERM);
}

TEST_CASE("A small TMPDIR is not filled, whatever -j says (K9)") {
  if (Skip()) return;
  StandinBuild jobs;
  for (int i = 0; i < 8; ++i) {
    StandinEdge edge;
    edge.name = "edge" + std::to_string(i);
    edge.curve = "0:1M,1.2:1M";
    edge.options = {"--temp-bytes", "20M", "--temp-dir", "tmp"};
    jobs.edges.push_back(edge);
  }
  const GateBuild build(jobs);
  fs::create_directories(build.dir() / "tmp");
  // A mount of its own for the build and its daemon.
  const auto on_small_disk = [&](ProgramOptions options) {
    options.env["TMPDIR"] = (build.dir() / "tmp").string();
    std::string script = "mount -t tmpfs -o size=64m none tmp && exec \"$@\"";
    Words words = {"unshare", "--mount", "sh", "-c", script, "sh"};
    words.insert(words.end(), options.argv.begin(), options.argv.end());
    options.argv = words;
    return options;
  };
  const ProgramResult plain = Run(on_small_disk(build.Plain({"ninja", "-j8"})), seconds(60));
  CHECK(plain.exit_code != 0);  // the test can fail
  build.Clean();
  const ProgramResult result =
      Run(on_small_disk(build.Run({"--jobs", "8"}, {"ninja", "-j8"})), seconds(120));
  INFO(result.out << result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(build.Outputs().size() == 8);
  CHECK(MaxParallel(build.Log()) <= 3);
}

}  // namespace
}  // namespace headroom::testing
