// What the daemon says where something of its own runs out, and what it sees in odd command lines.
#include <signal.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>

#include "tests/integration/daemon/daemon_fixture.h"
#include "tests/support/testing.h"

namespace headroom::testing {
namespace {

void AllowFiles(pid_t pid, rlim_t more) {
  const fs::path open = "/proc/" + std::to_string(pid) + "/fd";
  const auto used = std::distance(fs::directory_iterator(open), fs::directory_iterator());
  rlimit limit{};
  REQUIRE(prlimit(pid, RLIMIT_NOFILE, nullptr, &limit) == 0);
  limit.rlim_cur = static_cast<rlim_t>(used) + more;
  REQUIRE(prlimit(pid, RLIMIT_NOFILE, &limit, nullptr) == 0);
}

TEST_CASE("a daemon out of descriptors says so, and what helps, to those who attach") {
  TestDaemon daemon;
  // For the connection alone; then for a lane's folder and little more.
  for (const rlim_t more : {1U, 3U, 5U}) {
    INFO(more << " more");
    std::string said;
    {
      // Numbers that are free below the limit count as well.
      AllowFiles(daemon.pid(), more);
      ControlClient client(daemon.socket());
      try {
        client.Attach(2);
      } catch (const std::runtime_error& error) {
        said = error.what();
      }
    }
    INFO(said);
    // With a few more there may be enough.
    CHECK((said.find("LimitNOFILE") != std::string::npos || (more > 1 && said.empty())));
    CHECK(said.find("namespace") == std::string::npos);
  }
  // Room again: it serves as before.
  AllowFiles(daemon.pid(), 200);
  ControlClient client(daemon.socket());
  CHECK_FALSE(client.Attach(2).empty());
}

TEST_CASE("the source of a job whose compiler was given a response file") {
  const std::optional<fs::path> make = VenvTool("make");
  if (!make) {
    printf("SKIPPED: make of PyPI isn't in build/venv/bin; run scripts/setup\n");
    return;
  }
  TestDaemon daemon;
  ControlClient control(daemon.socket());
  const std::string lane = control.SharedLane();
  const TempDir dir;
  const StandinTools tools(dir / "bin", {"nvcc"});
  WriteFile(dir / "kernel.rsp", "-c 'my kernel.cu'\n");
  WriteFile(dir / "Makefile", ".PHONY: all\nall:\n\t" + tools.Path("nvcc") +
                                  " --curve 0:1M,20:1M -o kernel.o @kernel.rsp\n");
  Program build(InLane(lane, {make->string()}, 2, dir.path()));
  std::string source;
  CHECK(WaitUntil(
      [&] {
        const std::optional<v1::Lane> now = daemon.Lane(lane);
        if (now && now->jobs_size() > 0) source = now->jobs(0).source();
        return !source.empty();
      },
      std::chrono::seconds(10)));
  CHECK(source == "my kernel.cu");
  build.Signal(SIGTERM);
  build.Wait(std::chrono::seconds(10));
}

}  // namespace
}  // namespace headroom::testing
