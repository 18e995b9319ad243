// The gate's everyday: admission, what the worker finds, ends, evictions, freezes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/integration/gate/gate_fixture.h"

namespace headroom::testing {
namespace {

using gate::MessageType;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("a tool waits before its main until it is admitted") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetAutoAdmit(false);
  WriteFile(lane / "a.ii", std::string(1000, 'x'));
  WriteFile(lane / "b.ptx", std::string(300, 'x'));
  ProgramOptions options =
      lane.ProbeOptions({"append", "started", "yes", "say", "a.ii", "say", "b.ptx", "exit", "7"});
  options.cwd = lane.path();
  Program program(options);
  const auto request = gate.WaitFor(MessageType::kRequest);
  REQUIRE(request);
  CHECK(request->keeper == program.pid());
  CHECK(request->uid == getuid());
  CHECK(request->request.keeper_pid == program.pid());
  CHECK(request->request.parent_pid == getpid());
  CHECK(std::string(request->request.tool) == "probe");
  CHECK(std::string(request->request.cwd) == lane.path().string());
  CHECK(std::string(request->request.source) == "a.ii");
  CHECK(request->request.replay == static_cast<std::uint32_t>(gate::Replay::kReplayable));
  CHECK(request->request.arg_count == 10);
  const std::string args(request->request.args, request->request.args_bytes);
  CHECK(args ==
        Probe() + std::string("\0append\0started\0yes\0say\0a.ii\0say\0b.ptx\0exit\0007\0", 46));
  CHECK(std::string(request->request.inputs[0].suffix) == "ii");
  CHECK(request->request.inputs[0].bytes == 1000);
  CHECK(std::string(request->request.inputs[1].suffix) == "ptx");
  CHECK(request->request.inputs[1].bytes == 300);
  CHECK(request->request.input_count == 2);
  usleep(200'000);
  CHECK(!fs::exists(lane / "started"));
  gate.Admit(request->peer, 123);
  const ProgramResult result = program.Wait();
  CHECK(result.exit_code == 7);
  CHECK(fs::exists(lane / "started"));
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  const auto ended = gate.WaitFor(MessageType::kEnded);
  REQUIRE(ended);
  CHECK(ended->ended.worker_pid == started->started.worker_pid);
  CHECK(ended->ended.worker_pid != program.pid());
  CHECK(WIFEXITED(ended->ended.wait_status));
  CHECK(WEXITSTATUS(ended->ended.wait_status) == 7);
  CHECK(ended->ended.flags == 0);
  CHECK(gate.problems().empty());
}

}  // namespace
}  // namespace headroom::testing
