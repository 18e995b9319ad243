// The gate without a daemon that answers: dead, hung, of another version, back again.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <sstream>
#include <string>

#include "tests/integration/gate/gate_fixture.h"

namespace headroom::testing {
namespace {

using gate::MessageType;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<std::unique_ptr<Program>> Start(const ProgramOptions& options, int count) {
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < count; ++i) programs.push_back(std::make_unique<Program>(options));
  return programs;
}

TEST_CASE("nobody listens: the first goes within 2 s, later ones need not wait again") {
  Lane lane;
  SECTION("no socket") {}
  SECTION("a socket that nobody has open") {
    FakeGate gate(lane.path());
  }
  ProgramResult result = Run(lane.ProbeOptions({"exit", "4"}));
  CHECK(result.exit_code == 4);
  CHECK(result.wall_seconds > 1.0);
  CHECK(result.wall_seconds < 2.0);
  result = Run(lane.ProbeOptions({"exit", "4"}));
  CHECK(result.wall_seconds < 0.5);
}

TEST_CASE("a daemon that hangs: the first goes within 5 s, later ones sooner") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.Hang();
  ProgramResult result = Run(lane.ProbeOptions({"exit", "4"}));
  CHECK(result.exit_code == 4);
  CHECK(result.wall_seconds > 3.0);
  CHECK(result.wall_seconds < 5.0);
  result = Run(lane.ProbeOptions({"exit", "4"}));
  CHECK(result.wall_seconds < 1.0);
}

TEST_CASE("a daemon that lives but is slow is waited for") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetAutoAdmit(false);
  Program program(lane.ProbeOptions({"say", "x"}));
  const auto request = gate.WaitFor(MessageType::kRequest);
  REQUIRE(request);
  usleep(6'000'000);
  CHECK(program.Out().empty());
  CHECK(gate.Count(MessageType::kPing) >= 3);
  CHECK(gate.Count(MessageType::kPing) <= 5);
  gate.Admit(request->peer);
  CHECK(program.Wait().out == "x\n");
}

TEST_CASE("a stopped waiter that is continued much later doesn't take the daemon for hung") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetAutoAdmit(false);
  Program program(lane.ProbeOptions({"say", "x"}));
  const auto request = gate.WaitFor(MessageType::kRequest);
  REQUIRE(request);
  usleep(1'400'000);
  program.Signal(SIGSTOP);
  usleep(4'500'000);
  program.Signal(SIGCONT);
  usleep(500'000);
  CHECK(program.Out().empty());
  CHECK(program.Running());
  gate.Admit(request->peer);
  CHECK(program.Wait().out == "x\n");
}

TEST_CASE("a daemon of another version: by the lane's rule, at once") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetVersion(gate::kGateVersion + 1);
  const ProgramResult result = Run(lane.ProbeOptions({"exit", "4"}));
  CHECK(result.exit_code == 4);
  CHECK(result.wall_seconds < 1.0);
}

TEST_CASE("a socket that can't be reached") {
  if (getuid() != 0) {
    WARN("SKIPPED: needs root to become another user");
    return;
  }
  Lane lane;
  FakeGate gate(lane.path());
  fs::permissions(lane.path(), fs::perms::owner_all | fs::perms::others_exec);
  fs::permissions(lane / gate::kGateSocketName, fs::perms::owner_all);
  ProgramOptions options = lane.ProbeOptions({"exit", "4"});
  options.uid = 54321;
  const ProgramResult result = Run(options);
  CHECK(result.exit_code == 4);
  CHECK(result.wall_seconds < 2.0);
}

TEST_CASE("without a daemon they go one by one, no more than there are cores") {
  Lane lane;
  const std::string log = (lane / "log").string();
  const int count = 8;
  ProgramOptions options =
      lane.ProbeOptions({"append", log, "+", "sleep", "0.4", "append", log, "-"});
  const auto programs = Start(options, count);
  for (const auto& program : programs) CHECK(program->Wait(seconds(30)).exit_code == 0);
  std::istringstream lines(ReadFile(log));
  std::string line;
  int running = 0;
  int most = 0;
  int seen = 0;
  while (std::getline(lines, line)) {
    running += line == "+" ? 1 : -1;
    most = std::max(most, running);
    ++seen;
  }
  CHECK(seen == 2 * count);
  CHECK(most <= 2);
  CHECK(most == 2);  // HEADROOM_CORES: they do overlap.
}

TEST_CASE("no stampede: what doesn't fit beside the others waits for them") {
  if (const auto why = MemoryCgroup::WhyUnavailable()) {
    WARN("SKIPPED: " + *why);
    return;
  }
  Lane lane;
  const MemoryCgroup cgroup(700 * kMiB);
  // Each takes 300 MiB, the prior for an unknown tool says 500 MB: one at a time fits.
  const std::string log = (lane / "log").string();
  ProgramOptions options =
      lane.ProbeOptions({"append", log, "+", "alloc", "300", "sleep", "0.3", "append", log, "-"});
  options.env["HEADROOM_CORES"] = "16";
  options.cgroup = &cgroup;
  const auto programs = Start(options, 6);
  for (const auto& program : programs) CHECK(program->Wait(seconds(30)).exit_code == 0);
  CHECK(cgroup.OomKills() == 0);
  CHECK(ReadFile(log) == "+\n-\n+\n-\n+\n-\n+\n-\n+\n-\n+\n-\n");
}

TEST_CASE("nested tools don't wait for the slots of those that wait for them") {
  Lane lane;
  ProgramOptions options = lane.ProbeOptions({"run", "4", "run", "2", "exit", "3", "exit", "5"});
  options.env["HEADROOM_CORES"] = "1";
  const ProgramResult result = Run(options, seconds(20));
  CHECK(result.out == "exit 3\nexit 0\n");
  CHECK(result.exit_code == 5);
  CHECK(result.wall_seconds < 6);
}

TEST_CASE("killed by the kernel without a daemon: run again") {
  if (const auto why = MemoryCgroup::WhyUnavailable()) {
    WARN("SKIPPED: " + *why);
    return;
  }
  Lane lane;
  const MemoryCgroup cgroup(200 * kMiB);
  const std::string log = (lane / "log").string();
  ProgramOptions options;
  SECTION("it fits the second time") {
    options = lane.ProbeOptions({"append", log, "x", "once", (lane / "flag").string(), "alloc",
                                 "600", "alloc", "50", "say", "done"});
    options.cgroup = &cgroup;
    const ProgramResult result = Run(options);
    CHECK(result.exit_code == 0);
    CHECK(result.out == "done\n");
    CHECK(result.err.empty());
    CHECK(ReadFile(log) == "x\nx\n");
    CHECK(cgroup.OomKills() == 1);
  }
  SECTION("it never fits: its signal and one line after five times") {
    WriteFile(lane / "big.cu", "x");
    options = lane.ProbeOptions({"append", log, "x", "alloc", "600", "say", "big.cu"});
    options.cwd = lane.path();
    options.cgroup = &cgroup;
    const ProgramResult result = Run(options);
    CHECK(result.signal == SIGKILL);
    CHECK(ReadFile(log) == "x\nx\nx\nx\nx\n");
    CHECK(result.err.find("headroom: probe big.cu: killed by the kernel for lack of memory, 5 "
                          "times; it had ") == 0);
    CHECK(result.err.find("the limit is 209 MB\n") != std::string::npos);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  }
  SECTION("it can't be run again: its signal and the line, once") {
    options = lane.Options(
        {"/bin/sh", "-c", "echo | " + Probe() + " append " + log + " x alloc 600 cat"});
    options.cgroup = &cgroup;
    const ProgramResult result = Run(options);
    CHECK(result.exit_code == 128 + SIGKILL);
    CHECK(ReadFile(log) == "x\n");
    CHECK(result.err.find("headroom: probe: killed by the kernel for lack of memory; it had ") !=
          std::string::npos);
  }
}

TEST_CASE("killed by hand without a daemon: run again twice, memory is not blamed") {
  Lane lane;
  const std::string log = (lane / "log").string();
  const ProgramResult result = Run(lane.ProbeOptions({"append", log, "x", "signal", "9"}));
  CHECK(result.signal == SIGKILL);
  CHECK(result.err.empty());
  CHECK(ReadFile(log) == "x\nx\nx\n");
}

TEST_CASE("the daemon dies and comes back while a worker runs") {
  Lane lane;
  auto gate = std::make_unique<FakeGate>(lane.path());
  const std::string flag = (lane / "first").string();
  Program program(lane.ProbeOptions({"once", flag, "sleep", "60", "say", "done"}));
  const auto started = gate->WaitFor(MessageType::kStarted);
  REQUIRE(started);
  gate.reset();
  fs::remove(lane / gate::kGateSocketName);
  usleep(300'000);
  CHECK(program.Running());
  // It shows others that it runs.
  REQUIRE(WaitUntil([&] {
    return fs::exists(lane / "slots/0") &&
           ReadFile(lane / "slots/0").find(std::to_string(started->started.worker_pid)) !=
               std::string::npos;
  }));
  gate = std::make_unique<FakeGate>(lane.path());
  const auto back = gate->WaitFor(MessageType::kReregister);
  REQUIRE(back);
  CHECK(back->keeper == program.pid());
  CHECK(back->request.state == static_cast<std::uint32_t>(gate::KeeperState::kRunning));
  CHECK(back->request.worker_pid == started->started.worker_pid);
  CHECK(back->request.worker_start == started->started.worker_start);
  CHECK(back->request.ran_us > 200'000);
  CHECK(std::string(back->request.tool) == "probe");
  // All is as before: for one, it can be evicted.
  gate->Evict(back->peer);
  REQUIRE(gate->WaitFor(MessageType::kRequest, 2));
  const ProgramResult result = program.Wait();
  CHECK(result.out == "done\n");
  CHECK(result.exit_code == 0);
  CHECK(gate->problems().empty());
}

TEST_CASE("the daemon dies and comes back while tools wait") {
  Lane lane;
  auto gate = std::make_unique<FakeGate>(lane.path());
  gate->SetAutoAdmit(false);
  const auto programs = Start(lane.ProbeOptions({"say", "done"}), 20);
  REQUIRE(WaitUntil([&] { return gate->Count(MessageType::kRequest) == 20; }));
  gate.reset();
  fs::remove(lane / gate::kGateSocketName);
  usleep(700'000);
  gate = std::make_unique<FakeGate>(lane.path());
  gate->SetAutoAdmit(false);
  REQUIRE(WaitUntil([&] { return gate->Count(MessageType::kRequest) == 20; }));
  for (const auto& program : programs) CHECK(program->Out().empty());
  for (const GateEvent& event : gate->Events()) {
    if (event.type == MessageType::kRequest) gate->Admit(event.peer);
  }
  for (const auto& program : programs) CHECK(program->Wait().out == "done\n");
}

TEST_CASE("a hung daemon that wakes up serves those who still wait") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.Hang();
  ProgramOptions options = lane.ProbeOptions({"sleep", "3", "say", "done"});
  options.env["HEADROOM_CORES"] = "1";
  const auto programs = Start(options, 3);
  REQUIRE(WaitUntil([&] { return fs::exists(lane / "slots/0"); }));
  gate.Resume();
  for (const auto& program : programs) {
    const ProgramResult result = program->Wait();
    CHECK(result.out == "done\n");
    CHECK(result.wall_seconds < 12);  // Two ran at once: three in a row take 13 s.
  }
  CHECK(gate.Count(MessageType::kStarted) == 2);
  CHECK(gate.problems().empty());
}

TEST_CASE("a worker that goes by the lane's rule is registered when a daemon comes") {
  Lane lane;
  Program program(lane.ProbeOptions({"sleep", "4", "say", "done"}));
  REQUIRE(WaitUntil([&] { return fs::exists(lane / "slots/0"); }));
  FakeGate gate(lane.path());
  const auto back = gate.WaitFor(MessageType::kReregister);
  REQUIRE(back);
  CHECK((back->request.flags & gate::kRequestFallback) != 0);
  CHECK(program.Wait().out == "done\n");
  CHECK(gate.WaitFor(MessageType::kEnded));
}

TEST_CASE("the lane's folder goes while tools wait: the build is over for it, they go on") {
  auto lane = std::make_unique<Lane>();
  auto gate = std::make_unique<FakeGate>(lane->path());
  gate->SetAutoAdmit(false);
  Program program(lane->ProbeOptions({"say", "done"}));
  REQUIRE(gate->WaitFor(MessageType::kRequest));
  lane.reset();
  gate.reset();
  const ProgramResult result = program.Wait();
  CHECK(result.out == "done\n");
  CHECK(result.wall_seconds < 1.4);
}

TEST_CASE("many at once without a daemon: none hangs") {
  Lane lane;
  ProgramOptions options = lane.ProbeOptions({"exit", "0"});
  options.env["HEADROOM_CORES"] = "4";
  const auto programs = Start(options, 100);
  for (const auto& program : programs) {
    const ProgramResult result = program->Wait(seconds(40));
    CHECK(result.exit_code == 0);
    CHECK(!result.timed_out);
  }
}

}  // namespace
}  // namespace headroom::testing
