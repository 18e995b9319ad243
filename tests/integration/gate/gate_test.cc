// The gate's everyday: admission, what the worker finds, ends, evictions, freezes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
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

TEST_CASE("what isn't a listed tool, or is told to pass, never asks") {
  Lane lane;
  FakeGate gate(lane.path());
  ProgramOptions options = lane.ProbeOptions({"say", "x"});
  SECTION("not listed") {
    options.env["HEADROOM_TOOLS"] = std::nullopt;
  }
  SECTION("taken from the list") {
    options.env["HEADROOM_TOOLS"] = "+probe:-probe";
  }
  SECTION("HEADROOM_GATE=0") {
    options.env["HEADROOM_GATE"] = "0";
  }
  SECTION("no lane") {
    options.env["HEADROOM_LANE"] = std::nullopt;
  }
  SECTION("a lane that is gone") {
    options.env["HEADROOM_LANE"] = (lane / "gone").string();
  }
  SECTION("a relative lane") {
    options.env["HEADROOM_LANE"] = "lane";
  }
  const ProgramResult result = Run(options);
  CHECK(result.out == "x\n");
  CHECK(result.wall_seconds < 1.4);
  CHECK(gate.Events().empty());
}

TEST_CASE("a tool that the daemon passes goes on without a keeper") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetAutoAdmit(false);
  Program program(lane.ProbeOptions({"ids", "sleep", "0.3"}));
  const auto request = gate.WaitFor(MessageType::kRequest);
  REQUIRE(request);
  gate.Pass(request->peer);
  REQUIRE(WaitUntil([&] { return program.Out().find("name probe") != std::string::npos; }));
  CHECK(Descendants(program.pid()).empty());
  CHECK(program.Wait().exit_code == 0);
  CHECK(gate.Count(MessageType::kStarted) == 0);
}

TEST_CASE("exit codes and signals come out as they went in, and a crash is nobody's fault") {
  Lane lane;
  FakeGate gate(lane.path());
  for (const int code : {0, 1, 3, 127, 255}) {
    const ProgramOptions options = lane.ProbeOptions({"exit", std::to_string(code)});
    CHECK(Run(options).exit_code == code);
  }
  // K19: a compiler's own crash is neither retried nor asked about.
  for (const int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGINT, SIGHUP, SIGPIPE,
                           SIGUSR1, SIGALRM, SIGTRAP, SIGXCPU}) {
    const ProgramOptions options = lane.ProbeOptions({"signal", std::to_string(number)});
    const ProgramResult gated = Run(options);
    CHECK(gated.signal == number);
    CHECK(gated.err.empty());
  }
  CHECK(gate.Count(MessageType::kRequest) == 17);
  CHECK(gate.Count(MessageType::kEnded) == 17);
  for (const GateEvent& event : gate.Events()) {
    if (!event.closed && event.type == MessageType::kEnded) CHECK(event.ended.flags == 0);
  }
  CHECK(gate.problems().empty());
}

TEST_CASE("a worker finds everything as it would have without the gate") {
  Lane lane;
  FakeGate gate(lane.path());
  std::vector<std::string> words;
  SECTION("plain") {
    words = {Probe(), "ids", "fds"};
  }
  // The outer probe sets the scene and is passed through: the shell's children are the tools.
  SECTION("signals blocked and ignored, descriptors inherited") {
    words = {"/bin/sh", "-c",
             "trap '' CHLD TERM USR1; exec 5</etc/passwd 9>>/dev/null; exec " + Probe() +
                 " block 10 block 15 block 17 exec " + Probe() + " ids fds"};
  }
  SECTION("closed standard descriptors") {
    words = {"/bin/sh", "-c", "exec " + Probe() + " ids fds <&- 2>&-"};
  }
  const ProgramResult gated = Run(lane.Options(words));
  const ProgramResult plain = Run(Ungated(lane.Options(words)));
  CHECK(gated.out == plain.out);
  CHECK(gated.exit_code == plain.exit_code);
  CHECK(!gated.out.empty());
  CHECK(gate.Count(MessageType::kStarted) == 1);
}

TEST_CASE("the parent's accounts hold the worker's memory and time") {
  Lane lane;
  FakeGate gate(lane.path());
  const ProgramResult result = Run(lane.ProbeOptions({"alloc", "200", "burn", "0.3"}));
  CHECK(result.usage.ru_maxrss > 200 * 1024);
  CHECK(result.usage.ru_maxrss < 260 * 1024);
  const rusage& usage = result.usage;
  CHECK(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec < 10);
  CHECK(1'000'000 * (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + usage.ru_utime.tv_usec +
            usage.ru_stime.tv_usec >
        250'000);
  const auto ended = gate.WaitFor(MessageType::kEnded);
  REQUIRE(ended);
  CHECK(ended->ended.max_rss_bytes > 200 * kMiB);
  CHECK(ended->ended.user_us + ended->ended.system_us > 250'000);
  CHECK(ended->ended.wall_us >= 250'000);
}

TEST_CASE("an evicted worker goes with its whole subtree and runs again from the start") {
  Lane lane;
  FakeGate gate(lane.path());
  const std::string flag = (lane / "first").string();
  ProgramOptions options = lane.ProbeOptions({"eat", "6", "spawn", "60", "orphan", "60", "alloc",
                                              "50", "once", flag, "sleep", "60", "cat", "ids"});
  options.stdin_text = "first rest\n";
  Program program(options);
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  REQUIRE(WaitUntil([&] { return fs::exists(flag); }));
  const std::vector<pid_t> first = Descendants(program.pid());
  CHECK(first.size() == 3);  // Worker, child, orphan.
  gate.SetAutoAdmit(false);
  gate.Evict(started->peer, 70 * kMiB);
  const auto ended = gate.WaitFor(MessageType::kEnded);
  REQUIRE(ended);
  CHECK(ended->ended.flags == gate::kEndedEvicted);
  CHECK(WTERMSIG(ended->ended.wait_status) == SIGKILL);
  CHECK(ended->ended.max_rss_bytes > 50 * kMiB);
  CHECK(ended->ended.killed == 2);
  for (const pid_t pid : first) CHECK(!ProcessState(pid));
  const auto again = gate.WaitFor(MessageType::kRequest, 2);
  REQUIRE(again);
  CHECK(again->peer == started->peer);
  CHECK(again->request.state == static_cast<std::uint32_t>(gate::KeeperState::kAgain));
  CHECK(again->request.flags == gate::kRequestWasEvicted);
  CHECK(again->request.evictions == 1);
  CHECK(again->request.floor_bytes == 70 * kMiB);
  CHECK(program.Running());
  gate.Admit(again->peer);
  REQUIRE(gate.WaitFor(MessageType::kStarted, 2));
  REQUIRE(WaitUntil([&] { return program.Out().find("name") != std::string::npos; }));
  // It has read its six bytes again and found the rest, and is what it was before.
  CHECK(program.Out().find("rest\n") != std::string::npos);
  CHECK(program.Out().find("blocked\nnot default\nname probe\n") != std::string::npos);
  for (const pid_t pid : Descendants(program.pid())) kill(pid, SIGKILL);
  CHECK(program.Wait().exit_code == 0);
  CHECK(gate.problems().empty());
}

TEST_CASE("evictions can go on") {
  Lane lane;
  FakeGate gate(lane.path());
  const std::string log = (lane / "log").string();
  Program program(lane.ProbeOptions({"append", log, "x", "sleep", "0.3", "say", "done"}));
  for (std::uint32_t attempt = 1; attempt <= 8; ++attempt) {
    const auto started = gate.WaitFor(MessageType::kStarted, attempt);
    REQUIRE(started);
    REQUIRE(WaitUntil([&] { return fs::exists(log) && fs::file_size(log) == 2 * attempt; }));
    gate.Evict(started->peer);
  }
  const ProgramResult result = program.Wait();
  CHECK(result.exit_code == 0);
  CHECK(result.out == "done\n");
  CHECK(gate.Count(MessageType::kStarted) == 9);
}

TEST_CASE("a worker that ended while it was to be evicted has just ended") {
  Lane lane;
  FakeGate gate(lane.path());
  for (int i = 0; i < 20; ++i) {
    const std::size_t before = gate.Events().size();
    Program program(lane.ProbeOptions({"exit", "4"}));
    const auto started =
        gate.WaitFor([](const GateEvent& event) { return event.type == MessageType::kStarted; },
                     seconds(10), before);
    REQUIRE(started);
    gate.Evict(started->peer);
    CHECK(program.Wait().exit_code == 4);
  }
  CHECK(gate.problems().empty());
}

TEST_CASE("what can't be run again unseen is not evicted and not retried") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetVerdict([](const GateEvent&) { return RetryVerdict(true); });
  ProgramOptions options;
  gate::Replay why = gate::Replay::kReplayable;
  SECTION("stdin is a pipe") {
    options = lane.Options(
        {"/bin/sh", "-c",
         "echo x | " + Probe() + " once " + (lane / "flag").string() + " sleep 60 cat"});
    why = gate::Replay::kStdinStream;
  }
  SECTION("it had children before") {
    options = lane.Options(
        {"/bin/sh", "-c",
         "sleep 3 & exec " + Probe() + " once " + (lane / "flag").string() + " sleep 60"});
    why = gate::Replay::kHasChildren;
  }
  Program program(options);
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  const auto request = gate.WaitFor(MessageType::kRequest);
  CHECK(request->request.replay == static_cast<std::uint32_t>(why));
  REQUIRE(WaitUntil([&] { return fs::exists(lane / "flag"); }));
  gate.Evict(started->peer);
  usleep(200'000);
  CHECK(gate.Count(MessageType::kEnded) == 0);
  kill(started->started.worker_pid, SIGKILL);
  const ProgramResult result = program.Wait();
  // The shell of the first says it as 128 + 9.
  CHECK((result.signal == SIGKILL || result.exit_code == 128 + SIGKILL));
  CHECK(gate.Count(MessageType::kRequest) == 1);
}

TEST_CASE("killed by someone: as the daemon decides") {
  Lane lane;
  FakeGate gate(lane.path());
  const std::string flag = (lane / "first").string();
  const int number = GENERATE(SIGKILL, SIGTERM);
  const ProgramOptions options = lane.ProbeOptions({"once", flag, "sleep", "60", "say", "done"});
  bool retry = true;
  SECTION("again") {}
  SECTION("not again, with a line") {
    retry = false;
  }
  gate.SetVerdict([retry](const GateEvent&) {
    return retry ? RetryVerdict(false) : MirrorVerdict("probe x.cc: needs 3 GB, has 2\x1b[m GB");
  });
  Program program(options);
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  REQUIRE(WaitUntil([&] { return fs::exists(flag); }));
  kill(started->started.worker_pid, number);
  const auto ended = gate.WaitFor(MessageType::kEnded);
  REQUIRE(ended);
  CHECK(ended->ended.flags == gate::kEndedWantsVerdict);
  const ProgramResult result = program.Wait();
  if (retry) {
    CHECK(result.exit_code == 0);
    CHECK(result.out == "done\n");
    CHECK(result.err.empty());
    const auto again = gate.WaitFor(MessageType::kRequest, 2);
    REQUIRE(again);
    CHECK(again->request.flags == gate::kRequestWasKilled);
    CHECK(again->request.other_kills == 1);
  } else {
    CHECK(result.signal == number);
    CHECK(result.err == "headroom: probe x.cc: needs 3 GB, has 2?[m GB\n");
  }
  CHECK(gate.problems().empty());
}

TEST_CASE("killed again and again with a daemon that says nothing: twice retried, then passed on") {
  Lane lane;
  FakeGate gate(lane.path());
  const std::string log = (lane / "log").string();
  Program program(lane.ProbeOptions({"append", log, "x", "signal", "9"}));
  const ProgramResult result = program.Wait();
  CHECK(result.signal == SIGKILL);
  CHECK(result.err.empty());  // No OOM kill: memory is not blamed.
  CHECK(ReadFile(log) == "x\nx\nx\n");
  CHECK(result.wall_seconds > 3 * 1.9);
  CHECK(result.wall_seconds < 9);
}

TEST_CASE("a signal to the keeper or to the group ends both, once") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetVerdict([](const GateEvent&) { return RetryVerdict(false); });
  const int number = GENERATE(SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1);
  const bool group = GENERATE(false, true);
  Program program(lane.ProbeOptions({"say", "up", "sleep", "60"}));
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  REQUIRE(WaitUntil([&] { return !program.Out().empty(); }));
  if (group) {
    program.SignalGroup(number);
  } else {
    program.Signal(number);
  }
  const ProgramResult result = program.Wait(seconds(5));
  CHECK(result.signal == number);
  CHECK(Gone(started->started.worker_pid));
  const auto ended = gate.WaitFor(MessageType::kEnded);
  REQUIRE(ended);
  CHECK(ended->ended.flags == gate::kEndedSignalled);
}

TEST_CASE("a signal that the worker handles reaches it and ends nothing") {
  Lane lane;
  FakeGate gate(lane.path());
  Program program(lane.ProbeOptions({"handle", "15", "handle", "10", "say", "up", "sleep", "1"}));
  REQUIRE(WaitUntil([&] { return program.Out() == "up\n"; }));
  program.Signal(SIGTERM);
  REQUIRE(WaitUntil([&] { return program.Out() == "up\nsignal 15\n"; }));
  program.Signal(SIGUSR1);
  const ProgramResult result = program.Wait();
  CHECK(result.out == "up\nsignal 15\nsignal 10\n");
  CHECK(result.exit_code == 0);
}

TEST_CASE("a signal ends a waiter at once") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetAutoAdmit(false);
  const int number = GENERATE(SIGTERM, SIGINT, SIGKILL);
  Program program(lane.ProbeOptions({"say", "up"}));
  REQUIRE(gate.WaitFor(MessageType::kRequest));
  program.Signal(number);
  const ProgramResult result = program.Wait(seconds(5));
  CHECK(result.signal == number);
  CHECK(result.out.empty());
  REQUIRE(gate.WaitFor([](const GateEvent& event) { return event.closed; }));
}

TEST_CASE("a waiter after an eviction is ended by a signal as well") {
  Lane lane;
  FakeGate gate(lane.path());
  Program program(lane.ProbeOptions({"sleep", "60"}));
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  gate.SetAutoAdmit(false);
  gate.Evict(started->peer);
  REQUIRE(gate.WaitFor(MessageType::kRequest, 2));
  program.Signal(SIGTERM);
  CHECK(program.Wait(seconds(5)).signal == SIGTERM);
}

TEST_CASE("a killed keeper takes its worker along") {
  Lane lane;
  FakeGate gate(lane.path());
  Program program(lane.ProbeOptions({"say", "up", "sleep", "60"}));
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  const bool frozen = GENERATE(false, true);
  if (frozen) {
    gate.Freeze(started->peer);
    REQUIRE(gate.WaitFor(MessageType::kFrozen));
  }
  program.Signal(SIGKILL);
  CHECK(program.Wait().signal == SIGKILL);
  CHECK(WaitUntil([&] { return Gone(started->started.worker_pid); }, seconds(2)));
  REQUIRE(gate.WaitFor([](const GateEvent& event) { return event.closed; }));
  CHECK(gate.Count(MessageType::kEnded) == 0);
}

TEST_CASE("stopped and continued at once, again and again, nothing stays behind") {
  // As a shell's ^Z and fg do it to a build: make stands at once, so fg may come before the keeper
  // has seen its worker stand.
  Lane lane;
  FakeGate gate(lane.path());
  Program program(lane.ProbeOptions({"say", "up", "sleep", "2", "say", "done", "exit", "3"}));
  REQUIRE(WaitUntil([&] { return !program.Out().empty(); }));
  const bool frozen = GENERATE(false, true);
  if (frozen) {
    const auto started = gate.WaitFor(MessageType::kStarted);
    REQUIRE(started);
    gate.Freeze(started->peer);
    REQUIRE(gate.WaitFor(MessageType::kFrozen));
  }
  for (int i = 0; i < 2000; ++i) {
    program.SignalGroup(i % 3 == 0 ? SIGTTOU : SIGTSTP);
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(i * 37 % 40'000);
    while (std::chrono::steady_clock::now() < until) {
    }
    program.SignalGroup(SIGCONT);
  }
  const auto began = gate.WaitFor(MessageType::kStarted);
  REQUIRE(began);
  if (frozen) {
    usleep(200'000);
    CHECK(ProcessState(began->started.worker_pid) == 'T');
    gate.Thaw(began->peer);
  }
  const ProgramResult result = program.Wait(seconds(10));
  CHECK(result.exit_code == 3);
  CHECK(!result.timed_out);
}

TEST_CASE("frozen and thawed with all below it, the parent sees nothing") {
  Lane lane;
  FakeGate gate(lane.path());
  Program program(lane.ProbeOptions({"spawn", "60", "say", "up", "sleep", "1", "say", "done"}));
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  REQUIRE(WaitUntil([&] { return program.Out().find("up") != std::string::npos; }));
  const std::vector<pid_t> all = Descendants(program.pid());
  REQUIRE(all.size() == 2);
  gate.Freeze(started->peer);
  gate.Freeze(started->peer);  // Idempotent.
  REQUIRE(gate.WaitFor(MessageType::kFrozen));
  for (const pid_t pid : all) {
    CHECK(WaitUntil([&] { return ProcessState(pid) == 'T'; }, seconds(2)));
  }
  CHECK(ProcessState(program.pid()) != 'T');
  usleep(1'500'000);
  CHECK(program.Out().find("done") == std::string::npos);
  bool connected = true;
  SECTION("thawed") {
    gate.Thaw(started->peer);
  }
  SECTION("the daemon closes") {
    gate.Drop(started->peer);
    connected = false;
  }
  SECTION("the daemon hangs") {
    gate.SetAnswersPing(false);
    connected = false;
  }
  REQUIRE(WaitUntil([&] { return program.Out().find("done") != std::string::npos; }, seconds(8)));
  if (connected) {
    const auto ended = gate.WaitFor(MessageType::kEnded);
    REQUIRE(ended);
    CHECK(ended->ended.frozen_us > 1'400'000);
    CHECK(ended->ended.frozen_us < 7'000'000);
  }
  for (const pid_t pid : all) kill(pid, SIGKILL);
  CHECK(program.Wait().exit_code == 0);
}

TEST_CASE("a frozen worker dies of a signal at once") {
  Lane lane;
  FakeGate gate(lane.path());
  const bool group = GENERATE(false, true);
  Program program(lane.ProbeOptions({"say", "up", "sleep", "60"}));
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  REQUIRE(WaitUntil([&] { return !program.Out().empty(); }));
  gate.Freeze(started->peer);
  REQUIRE(gate.WaitFor(MessageType::kFrozen));
  if (group) {
    program.SignalGroup(SIGTERM);
  } else {
    program.Signal(SIGTERM);
  }
  const ProgramResult result = program.Wait(seconds(2));
  CHECK(result.signal == SIGTERM);
  CHECK(!result.timed_out);
  CHECK(Gone(started->started.worker_pid));
}

TEST_CASE("a frozen worker can be evicted") {
  Lane lane;
  FakeGate gate(lane.path());
  const std::string flag = (lane / "first").string();
  Program program(lane.ProbeOptions({"once", flag, "sleep", "60", "say", "done"}));
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  REQUIRE(WaitUntil([&] { return fs::exists(flag); }));
  gate.Freeze(started->peer);
  REQUIRE(gate.WaitFor(MessageType::kFrozen));
  gate.Evict(started->peer);
  const ProgramResult result = program.Wait(seconds(10));
  CHECK(result.out == "done\n");
  CHECK(result.exit_code == 0);
}

TEST_CASE("a tool below an admitted tool has a keeper of its own, a program it becomes has none") {
  Lane lane;
  FakeGate gate(lane.path());
  SECTION("below") {
    const ProgramResult result = Run(lane.ProbeOptions({"run", "2", "exit", "3", "say", "x"}));
    CHECK(result.out == "exit 3\nx\n");
    CHECK(gate.Count(MessageType::kRequest) == 2);
    const auto inner = gate.WaitFor([](const GateEvent& event) {
      return event.peer == 2 && event.type == MessageType::kRequest;
    });
    REQUIRE(inner);
    const auto outer = gate.WaitFor(MessageType::kStarted);
    REQUIRE(outer);
    CHECK(inner->request.parent_pid == outer->started.worker_pid);
  }
  SECTION("becomes") {
    const ProgramResult result = Run(lane.ProbeOptions({"exec", Probe(), "exit", "3"}));
    CHECK(result.exit_code == 3);
    CHECK(gate.Count(MessageType::kRequest) == 1);
  }
}

TEST_CASE("rubbish and messages about another attempt are dropped") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetAutoAdmit(false);
  Program program(lane.ProbeOptions({"say", "x"}));
  const auto request = gate.WaitFor(MessageType::kRequest);
  REQUIRE(request);
  const auto admit = [](std::uint32_t magic, std::uint16_t version, std::uint32_t size,
                        std::uint32_t attempt) {
    gate::Admit message = {};
    message.header = {magic, version, static_cast<std::uint16_t>(MessageType::kAdmit), size,
                      attempt};
    return message;
  };
  const std::vector<gate::Admit> wrong = {
      admit(7, gate::kGateVersion, sizeof(gate::Admit), 1),
      admit(gate::kGateMagic, 9, sizeof(gate::Admit), 1),
      admit(gate::kGateMagic, gate::kGateVersion, 8, 1),
      admit(gate::kGateMagic, gate::kGateVersion, sizeof(gate::Admit), 2)};
  for (const gate::Admit& message : wrong) gate.SendRaw(request->peer, &message, sizeof(message));
  gate.SendRaw(request->peer, "x", 1);
  const std::string large(3000, 'x');
  gate.SendRaw(request->peer, large.data(), large.size());
  gate.Evict(request->peer);
  gate.Freeze(request->peer);
  gate.Thaw(request->peer);
  const gate::Verdict verdict = MirrorVerdict("no");
  gate.SendRaw(request->peer, &verdict, sizeof(verdict));
  usleep(300'000);
  CHECK(program.Out().empty());
  gate.Admit(request->peer);
  const ProgramResult result = program.Wait();
  CHECK(result.out == "x\n");
  CHECK(result.err.empty());
}

TEST_CASE("a lane whose path is longer than a socket's address may be") {
  TempDir dir;
  const fs::path path = dir / std::string(120, 'l');
  fs::create_directory(path);
  FakeGate gate(path);
  Lane other;
  ProgramOptions options = other.ProbeOptions({"say", "x"});
  options.env["HEADROOM_LANE"] = path.string();
  const ProgramResult result = Run(options);
  CHECK(result.out == "x\n");
  CHECK(gate.Count(MessageType::kEnded) == 1);
}

TEST_CASE("hardly a descriptor is free: still gated, never replayed") {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetAutoAdmit(false);
  const std::string fill =
      "exec 3<&-; ulimit -n 24; i=4; while [ $i -lt 24 ]; do eval \"exec $i</dev/null\"; "
      "i=$((i+1)); done; exec ";
  ProgramOptions options =
      lane.Options({"/bin/bash", "-c", fill + Probe() + " say up fds sleep 0.2 exit 5"});
  const ProgramResult plain = Run(Ungated(options));
  Program program(options);
  const auto request = gate.WaitFor(MessageType::kRequest);
  REQUIRE(request);
  CHECK(request->request.replay == static_cast<std::uint32_t>(gate::Replay::kNoDescriptor));
  usleep(300'000);
  CHECK(program.Out().empty());
  SECTION("admitted") {
    gate.Admit(request->peer);
    const ProgramResult result = program.Wait();
    CHECK(result.exit_code == 5);
    CHECK(result.out == plain.out);
    // Sent before its end, and read when the peer comes to it.
    CHECK(WaitUntil([&] { return gate.Count(MessageType::kEnded) == 1; }));
  }
  SECTION("ended by a signal while it waits") {
    program.Signal(SIGTERM);
    const ProgramResult result = program.Wait(seconds(5));
    CHECK(result.signal == SIGTERM);
    CHECK(result.out.empty());
  }
}

TEST_CASE("no more processes allowed: it goes on by itself") {
  if (getuid() != 0) {
    WARN("SKIPPED: needs root to become a user without processes");
    return;
  }
  Lane lane;
  fs::permissions(lane.path(), fs::perms::all);
  FakeGate gate(lane.path());
  fs::permissions(lane / gate::kGateSocketName, fs::perms::all);
  ProgramOptions options =
      lane.Options({"/bin/bash", "-c", "ulimit -u 1; exec " + Probe() + " ids exit 6"});
  options.uid = 54321;
  const ProgramResult result = Run(options);
  CHECK(result.exit_code == 6);
  CHECK(result.out == Run(Ungated(options)).out);
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  CHECK(started->started.flags == gate::kStartedNoKeeper);
}

TEST_CASE("the worker is the kernel's first choice, its parent isn't") {
  Lane lane;
  FakeGate gate(lane.path());
  Program program(lane.ProbeOptions({"say", "up", "sleep", "60"}));
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  REQUIRE(WaitUntil([&] { return !program.Out().empty(); }));
  const auto score = [](pid_t pid) {
    return ReadFile("/proc/" + std::to_string(pid) + "/oom_score_adj");
  };
  CHECK(score(started->started.worker_pid) == "800\n");
  CHECK(score(program.pid()) == score(getpid()));
  CHECK(ProcessName(program.pid()) == "headroom-keeper");
  CHECK(ProcessName(started->started.worker_pid) == "probe");
}

}  // namespace
}  // namespace headroom::testing
