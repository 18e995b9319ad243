// Builds under which workers, keepers, `headroom run` and the daemon are killed.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <random>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "tests/integration/cli/terminal.h"
#include "tests/integration/gate_daemon/gate_build.h"

namespace headroom::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

StandinBuild Small(int count, const std::string& length) {
  StandinBuild build;
  for (int i = 0; i < count; ++i) {
    StandinEdge edge;
    edge.name = "unit" + std::to_string(i);
    edge.tool = i % 3 == 0 ? "cicc" : "cc1plus";
    edge.curve = "0:1M," + length + ":4M";
    build.edges.push_back(edge);
  }
  return build;
}

// Workers that run: stand-ins below `top` whose parent is a keeper.
std::vector<pid_t> Workers(pid_t top) {
  std::vector<pid_t> workers;
  for (const pid_t pid : Descendants(top)) {
    const auto name = ProcessName(pid);
    if (name && (*name == "cicc" || *name == "cc1plus")) workers.push_back(pid);
  }
  return workers;
}

std::vector<pid_t> Keepers(pid_t top) {
  std::vector<pid_t> keepers;
  for (const pid_t pid : Descendants(top)) {
    if (ProcessName(pid) == "headroom-keeper") keepers.push_back(pid);
  }
  return keepers;
}

// One that runs, of a keeper that is not in `spared`: nobody is run again more than twice.
std::optional<pid_t> RunningWorker(pid_t top, std::set<pid_t>& spared, std::mt19937& random) {
  std::vector<std::pair<pid_t, pid_t>> running;
  for (const pid_t keeper : Keepers(top)) {
    if (spared.contains(keeper)) continue;
    for (const pid_t pid : Workers(keeper)) running.emplace_back(keeper, pid);
  }
  if (running.empty()) return std::nullopt;
  const auto [keeper, worker] = running[random() % running.size()];
  spared.insert(keeper);
  return worker;
}

bool NothingLeft(const GateBuild& build, milliseconds within) {
  return WaitUntil([&] { return LeftOver(build.runtime()).empty(); }, within);
}

// The same build, driven by cmake: its commands are those of the Makefile.
void WriteCmakeBuild(const GateBuild& build) {
  std::istringstream makefile(ReadFile(build.dir() / "Makefile"));
  std::string text = "cmake_minimum_required(VERSION 3.10)\nproject(units NONE)\n";
  std::string outputs;
  std::string line;
  std::string output;
  while (std::getline(makefile, line)) {
    if (line.starts_with("\t") && !output.empty()) {
      text += "add_custom_command(OUTPUT " + output + " COMMAND " + line.substr(1) +
              " WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})\n";
      outputs += " " + output;
      output.clear();
    } else if (line.starts_with("unit")) {
      output = "${CMAKE_SOURCE_DIR}/" + line.substr(0, line.find(':'));
    }
  }
  WriteFile(build.dir() / "CMakeLists.txt",
            text + "add_custom_target(units ALL DEPENDS" + outputs + ")\n");
}

TEST_CASE("Killed workers are run again, and memory isn't blamed") {
  const GateBuild build(Small(14, "0.5"));
  const auto expected = build.Expected();
  std::mt19937 random(7);
  const std::string make = FindProgram("make").value_or("").string();
  const std::string ninja = OldNinja().value_or("");
  std::vector<Words> commands;
  if (!ninja.empty()) commands.push_back({ninja, "-j", "4"});
  if (!make.empty()) commands.push_back({make, "-j4"});
  if (const auto cmake = FindProgram("cmake"); cmake && !make.empty()) {
    WriteCmakeBuild(build);
    const ProgramResult configured =
        Run(build.Plain({cmake->string(), "-S", ".", "-B", "cmade", "-G", "Unix Makefiles"}));
    INFO(configured.out << configured.err);
    REQUIRE(configured.exit_code == 0);
    commands.push_back({cmake->string(), "--build", "cmade", "--parallel", "4"});
  }
  REQUIRE(!commands.empty());
  for (const Words& command : commands) {
    build.Clean();
    Program program(build.Run({"--jobs", "4"}, command));
    int kills = 0;
    std::set<pid_t> spared;
    while (program.Running() && kills < 5) {
      std::this_thread::sleep_for(milliseconds(250));
      if (const auto worker = RunningWorker(program.pid(), spared, random)) {
        kills += kill(*worker, SIGKILL) == 0 ? 1 : 0;
      }
    }
    const ProgramResult result = program.Wait();
    INFO(command[0] << " after " << kills << " kills: " << result.err << result.out);
    CHECK(kills > 0);
    CHECK(result.exit_code == 0);
    CHECK(build.Outputs() == expected);
    CHECK(Contains(result.err, "run again: "));
    CHECK(Contains(result.err, ", 0 OOM kills"));
    CHECK(!Contains(result.err, "OOM kill:"));
    CHECK(!Contains(result.out + result.err, "lack of memory"));
    CHECK(NothingLeft(build, seconds(5)));
    CHECK(build.DaemonEnds());
  }
}

TEST_CASE("A compiler's own crash is passed on, never blamed on memory, never retried: K19") {
  StandinBuild one = Small(1, "0.1");
  one.edges[0].options = {"--signal", "11"};
  const GateBuild build(one);
  const ProgramResult result =
      Run(build.Run({}, {"sh", "-c",
                         build.tools().Path("cicc") + " --log standin.log --curve "
                                                      "0:1M,0.1:2M --signal 11 "
                                                      "-c x.cu -o x.o; echo got $?"}));
  INFO(result.err << result.out);
  CHECK(Contains(result.out, "got 139"));
  CHECK(build.Log().size() == 1);
  CHECK(!Contains(result.err, "run again"));
  CHECK(!Contains(result.err, "lack of memory"));
}

TEST_CASE("A detached compiler finds its lane by the environment: K16") {
  const GateBuild build(Small(1, "0.1"));
  // As sccache does it: a server that left the tree compiles for its clients.
  const std::string compile = build.tools().Path("cc1plus") +
                              " --log standin.log --curve 0:1M,0.6:3M -c x.cc -o detached.o";
  const ProgramResult result = Run(build.Run(
      {},
      {"sh", "-c",
       "(setsid sh -c '" + compile +
           "; echo $? > detached.rc' >/dev/null 2>&1 </dev/null &);"
           " sleep 0.3; for p in /proc/[0-9]*; do read -r n < $p/comm; [ $n = headroom-keeper ] && "
           "echo kept; done 2>/dev/null; while ! [ -s detached.rc ]; do sleep 0.05; done"}));
  INFO(result.err << result.out);
  CHECK(result.exit_code == 0);
  CHECK(Contains(result.out, "kept"));
  CHECK(ReadFile(build.dir() / "detached.rc") == "0\n");
}

TEST_CASE("^C ends all of it: nothing gated is left or frozen after two seconds") {
  const GateBuild build(Small(24, "5"));
  const auto make = FindProgram("make");
  REQUIRE(make);
  Program program(build.Run({"--jobs", "4"}, {make->string(), "-j24"}));
  REQUIRE(WaitUntil([&] { return Keepers(program.pid()).size() >= 3; }));
  program.SignalGroup(SIGINT);
  const ProgramResult result = program.Wait(seconds(20));
  INFO(result.err);
  CHECK((result.signal == SIGINT || result.exit_code != 0));
  CHECK(NothingLeft(build, seconds(2)));
}

// `pids` by what they are: keepers with their workers, and those that wait.
std::vector<pid_t> WaitersOf(const std::vector<pid_t>& pids) {
  std::set<pid_t> running;
  for (const pid_t pid : pids) {
    if (ProcessName(pid) != "headroom-keeper") continue;
    const std::vector<pid_t> below = Descendants(pid);
    running.insert(below.begin(), below.end());
  }
  std::vector<pid_t> waiters;
  for (const pid_t pid : pids) {
    const auto name = ProcessName(pid);
    if (name && (*name == "cicc" || *name == "cc1plus") && !running.contains(pid)) {
      waiters.push_back(pid);
    }
  }
  return waiters;
}

TEST_CASE("The build tool is killed: who waits at the gate ends, who runs goes on to its end") {
  // As without the gate, but nobody starts any more for a build that is gone.
  StandinBuild many = Small(12, "2.5");
  bool with_driver = false;
  bool is_static = false;
  int number = SIGKILL;
  SECTION("kill -9 of make") {}
  SECTION("kill -9 of make, with compilers out of the gate's reach") {
    is_static = true;
  }
  SECTION("SIGTERM to make, which hands it to its drivers alone") {
    with_driver = true;
    number = SIGTERM;
  }
  if (with_driver) {
    for (StandinEdge& edge : many.edges) {
      edge.chains = {"cicc:0:1M,2.5:4M"};
      edge.tool = "nvcc";
    }
  }
  const GateBuild build(many, is_static);
  const auto make = FindProgram("make");
  REQUIRE(make);
  // In a session that goes on: the lane stays.
  Program program(build.Run(
      {"--jobs", "2"},
      {"sh", "-c",
       make->string() + " -j12 & echo $! > make.pid; while ! [ -e stop ]; do sleep 0.1; done"}));
  const auto waiters = [&] { return WaitersOf(LeftOver(build.runtime())); };
  REQUIRE(WaitUntil([&] { return waiters().size() >= (is_static ? 12u : 10u); }, seconds(20)));
  if (!is_static) REQUIRE(WaitUntil([&] { return Keepers(program.pid()).size() == 2; }));
  std::this_thread::sleep_for(milliseconds(300));
  const std::vector<pid_t> keepers = Keepers(program.pid());
  REQUIRE(kill(std::stoi(ReadFile(build.dir() / "make.pid")), number) == 0);
  if (is_static) {
    // Two of them run.
    CHECK(WaitUntil([&] { return waiters().size() <= 2; }, seconds(3)));
    CHECK(WaitUntil(
        [&] {
          const std::vector<pid_t> left = waiters();
          return std::none_of(left.begin(), left.end(),
                              [](pid_t pid) { return ProcessState(pid) == 'T'; });
        },
        seconds(3)));
  } else {
    CHECK(WaitUntil([&] { return waiters().empty(); }, seconds(3)));
    // Not for want of their keepers.
    for (const pid_t keeper : keepers) CHECK(ProcessName(keeper) == "headroom-keeper");
  }
  CHECK(program.Running());
  WriteFile(build.dir() / "stop", "");
  const ProgramResult result = program.Wait(seconds(20));
  INFO(result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(!Contains(result.err, "run again"));
  CHECK(!Contains(result.err, "lack of memory"));
  CHECK(NothingLeft(build, seconds(8)));
}

TEST_CASE("What was put in the background waits on when those who started it have ended") {
  const GateBuild build(Small(1, "0.1"));
  const std::string tool = build.tools().Path("cc1plus") + " --log standin.log --curve 0:1M,1:3M ";
  WriteFile(build.dir() / "background.mk",
            "all:\n\t@" + tool + "-c a.cc -o a.o & \\\n\t" + tool + "-c b.cc -o b.o & sleep 0.3\n");
  const ProgramResult result =
      Run(build.Run({"--jobs", "1"},
                    {"sh", "-c",
                     "make -f background.mk && while ! [ -e a.o -a -e b.o ]; do sleep 0.1; done"}),
          seconds(20));
  INFO(result.err << result.out);
  CHECK(result.exit_code == 0);
  CHECK(!result.timed_out);
}

TEST_CASE("SIGTERM to the build tool ends all of it, and memory isn't blamed") {
  const GateBuild build(Small(12, "6"));
  const bool by_make = GENERATE(true, false);
  const std::string tool =
      by_make ? FindProgram("make").value_or("").string() : OldNinja().value_or("");
  if (tool.empty()) return;
  Program program(build.Run({"--jobs", "3"}, {tool, "-j12"}));
  REQUIRE(WaitUntil([&] { return Keepers(program.pid()).size() >= 3; }));
  const std::string name = by_make ? "make" : "ninja";
  pid_t top = 0;
  for (const pid_t pid : Descendants(program.pid())) {
    if (ProcessName(pid) == name) top = pid;
  }
  REQUIRE(top > 0);
  REQUIRE(kill(top, SIGTERM) == 0);
  const ProgramResult result = program.Wait(seconds(20));
  INFO(result.err << result.out << build.DaemonLog());
  CHECK((result.signal == SIGTERM || result.exit_code != 0));
  CHECK(result.wall_seconds < 5);
  CHECK(!Contains(result.err, "run again"));
  CHECK(!Contains(result.out + result.err, "lack of memory"));
  CHECK(NothingLeft(build, seconds(2)));
}

TEST_CASE("^Z stops the whole build, however long, and fg goes on with it") {
  const GateBuild build(Small(6, "2"));
  const auto make = FindProgram("make");
  REQUIRE(make);
  Terminal terminal;
  std::string command;
  const ProgramOptions options = build.Run({"--jobs", "2"}, {make->string(), "-j6"});
  for (const std::string& word : options.argv) command += " " + word;
  terminal.Type("cd " + build.dir().string() + "; stty noflsh; unset LD_PRELOAD HEADROOM_LANE; " +
                "export HEADROOM_RUNTIME_DIR=" + build.runtime().string() + "; echo re''ady\n");
  REQUIRE(terminal.Expect("ready"));
  terminal.Type("clear; " + command + "; echo co''de $?\n");
  REQUIRE(WaitUntil([&] { return Keepers(terminal.shell()).size() >= 2; }));
  std::this_thread::sleep_for(milliseconds(200));
  terminal.Type("\x1a");
  INFO(terminal.screen());
  REQUIRE(terminal.Expect("Stopped"));
  const auto standing = [&] {
    const std::vector<pid_t> all = LeftOver(build.runtime());
    return static_cast<size_t>(
        std::count_if(all.begin(), all.end(), [](pid_t pid) { return ProcessState(pid) == 'T'; }));
  };
  // make, two keepers and their workers, those that wait.
  CHECK(WaitUntil(
      [&] {
        const size_t all = LeftOver(build.runtime()).size();
        return all >= 5 && standing() == all;
      },
      seconds(2)));
  const size_t done = build.Outputs().size();
  // Longer than a keeper would wait for a daemon that hangs.
  std::this_thread::sleep_for(milliseconds(4500));
  CHECK(standing() == LeftOver(build.runtime()).size());
  CHECK(build.Outputs().size() == done);
  terminal.Type("fg\n");
  CHECK(WaitUntil([&] { return standing() == 0; }, seconds(2)));
  CHECK(terminal.Expect("0 OOM kills", seconds(20)));
  terminal.Type("\n");
  CHECK(build.Outputs().size() == 6);
  CHECK(NothingLeft(build, seconds(2)));
  CHECK(MaxParallel(build.Log()) == 2);
}

TEST_CASE("The end of a keeper ends its command alone, of run, the build goes on") {
  const GateBuild build(Small(6, "0.8"));
  const auto ninja = OldNinja();
  if (!ninja) {
    std::puts("SKIPPED: no ninja below 1.13 in PATH");
    return;
  }
  {
    Program program(build.Run({"--jobs", "2"}, {*ninja, "-k", "0"}));
    REQUIRE(WaitUntil([&] { return !Keepers(program.pid()).empty(); }));
    const pid_t keeper = Keepers(program.pid()).front();
    const std::vector<pid_t> workers = Workers(keeper);
    REQUIRE(kill(keeper, SIGKILL) == 0);
    for (const pid_t worker : workers) {
      CHECK(WaitUntil([&] { return ProcessState(worker).value_or('Z') == 'Z'; }, seconds(2)));
    }
    const ProgramResult result = program.Wait();
    INFO(result.err << result.out);
    CHECK(result.exit_code != 0);
    CHECK(build.Outputs().size() == 5);
  }
  build.Clean();
  {
    Program program(build.Run({"--jobs", "2"}, {*ninja}));
    REQUIRE(WaitUntil([&] { return !Keepers(program.pid()).empty(); }));
    program.Signal(SIGKILL);
    program.Wait();
    CHECK(WaitUntil([&] { return build.Outputs().size() == 6; }, seconds(20)));
    CHECK(NothingLeft(build, seconds(5)));
  }
  CHECK(build.DaemonEnds());
}

TEST_CASE("Ten builds pass while the daemon is killed at random moments") {
  const GateBuild build(Small(10, "0.3"));
  const auto expected = build.Expected();
  std::mt19937 random(11);
  const auto make = FindProgram("make");
  REQUIRE(make);
  for (int i = 0; i < 10; ++i) {
    build.Clean();
    Program program(build.Run({"--jobs", "3"}, {make->string(), "-j10"}));
    std::this_thread::sleep_for(milliseconds(100 + random() % 900));
    int kills = 0;
    for (int n = 0; n < 2 && program.Running(); ++n) {
      if (const auto daemon = build.Daemon()) kills += kill(*daemon, SIGKILL) == 0 ? 1 : 0;
      std::this_thread::sleep_for(milliseconds(200 + random() % 600));
    }
    const ProgramResult result = program.Wait(seconds(60));
    INFO("build " << i << " after " << kills << " kills: " << result.err << result.out);
    CHECK(!result.timed_out);
    CHECK(result.exit_code == 0);
    CHECK(build.Outputs() == expected);
    CHECK(NothingLeft(build, seconds(5)));
    CHECK(build.DaemonEnds());
  }
}

}  // namespace
}  // namespace headroom::testing
