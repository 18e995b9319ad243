// `headroom run` against a daemon that the test plays: what it asks for, what CMD gets, exit codes,
// signals, the terminal, and daemons that misbehave.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "server/policy/types.h"
#include "server/sys/process.h"
#include "tests/integration/cli/fake_daemon.h"
#include "tests/integration/cli/terminal.h"
#include "tests/support/testing.h"

namespace headroom::testing {
namespace {

const std::string kHeadroom = HEADROOM_BIN_DIR "/headroom";
using Words = std::vector<std::string>;

// `headroom run WORDS...` with the daemon in `dir`.
ProgramOptions RunIn(const fs::path& dir, const Words& words) {
  ProgramOptions options;
  options.argv = {kHeadroom, "run"};
  options.argv.insert(options.argv.end(), words.begin(), words.end());
  options.env = {{"HEADROOM_RUNTIME_DIR", dir.string()},
                 {"MAKEFLAGS", std::nullopt},
                 {"MFLAGS", std::nullopt},
                 {"GNUMAKEFLAGS", std::nullopt},
                 {"CARGO_MAKEFLAGS", std::nullopt},
                 {"MAX_JOBS", std::nullopt},
                 {"CMAKE_BUILD_PARALLEL_LEVEL", std::nullopt},
                 {"HEADROOM_LANE", std::nullopt},
                 {"LD_PRELOAD", std::nullopt}};
  return options;
}

std::map<std::string, std::string> Variables(const std::string& env_output) {
  std::map<std::string, std::string> variables;
  std::istringstream lines(env_output);
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find('='); at != std::string::npos)
      variables[line.substr(0, at)] = line.substr(at + 1);
  return variables;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string Logged(const fs::path& log) {
  return fs::exists(log) ? ReadFile(log) : "";
}

int CountLines(const fs::path& log, const std::string& name) {
  std::istringstream lines(Logged(log));
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += line == name;
  return count;
}

TEST_CASE("run attaches with what was asked for, and detaches with CMD's exit code") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  daemon.Answer([](Answers& answers) { answers.summary.set_jobs_max(3); });
  ProgramOptions options = RunIn(
      dir.path(), {"--jobs", "16", "--reserve", "512M", "--no-gate", "--", "sh", "-c", "exit 7"});
  options.cwd = dir.path();
  const ProgramResult result = Run(options);
  CHECK(result.exit_code == 7);
  CHECK(Contains(result.err, "headroom: wall "));
  CHECK(Contains(result.err, "3 max"));
  CHECK(result.out.empty());
  REQUIRE(WaitUntil([&] { return daemon.asked().detached.size() == 1; }));
  const Asked asked = daemon.asked();
  CHECK(asked.detached == std::vector<int>{7});
  REQUIRE(asked.attached.size() == 1);
  const v1::AttachRequest& attach = asked.attached[0];
  CHECK(attach.jobs() == 16);
  CHECK(attach.reserve().bytes() == 512 * kMiB);
  CHECK(!attach.gate());
  CHECK(attach.lane_dir().empty());
  CHECK(attach.root().pid() > 0);
  CHECK(attach.root().start() > 0);
  CHECK(attach.cwd() == fs::canonical(dir.path()).string());
  REQUIRE(attach.argv_size() == 3);
  CHECK(attach.argv(0) == "sh");
  CHECK(!attach.without_prediction());
  CHECK(!attach.has_spoiled_peak());
  CHECK(asked.dropped == 0);
}

TEST_CASE("Where nothing starts for want of memory a line says so, on stderr alone") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  daemon.Answer([&](Answers& answers) {
    v1::Lane* lane = answers.status.add_lanes();
    lane->set_dir(daemon.lane_dir());
    lane->set_cores(8);
    lane->set_tools_running(1);
    lane->set_tools_waiting(2);
    lane->set_stuck_ns(12'000'000'000);
    lane->set_tools_bytes(300 * kMiB);
    lane->mutable_waits_in()->set_total(400 * kMiB);
    lane->mutable_waits_in()->set_available(100 * kMiB);
  });
  const int gate = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = daemon.lane_dir() + "/gate.sock";
  REQUIRE(path.size() < sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  REQUIRE(bind(gate, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  // Two looks or more, one line.
  const ProgramResult result = Run(RunIn(dir.path(), {"--", "sh", "-c", "sleep 5; echo done"}));
  INFO(result.err);
  const std::string line =
      "headroom: 2 tools wait for memory: 1 running takes 300 MiB of 400 MiB\n";
  CHECK(Contains(result.err, line));
  CHECK(!Contains(result.err.substr(result.err.find(line) + line.size()), "for memory"));
  CHECK(result.out == "done\n");
  CHECK(result.wall_seconds < 10);
  close(gate);
}

TEST_CASE("Hidden test options reach the daemon") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  CHECK(Run(RunIn(dir.path(), {"--test-no-prediction", "--test-spoiled-peak", "1M", "--reserve",
                               "2.5%", "true"}))
            .exit_code == 0);
  const Asked asked = daemon.asked();
  REQUIRE(asked.attached.size() == 1);
  CHECK(asked.attached[0].without_prediction());
  CHECK(asked.attached[0].spoiled_peak() == kMiB);
  CHECK(asked.attached[0].reserve().permyriad() == 250);
  CHECK(!asked.attached[0].has_jobs());
  CHECK(asked.attached[0].gate());
}

TEST_CASE("CMD gets the lane's environment") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  // A script named ninja: it is told of a fifo, whatever make there is.
  fs::create_symlink("/usr/bin/env", dir / "ninja");
  ProgramOptions options = RunIn(dir.path(), {"--no-gate", (dir / "ninja").string()});
  options.env["MAKEFLAGS"] = "k -- V=1";
  options.env["KEPT"] = "as it was";
  const ProgramResult result = Run(options);
  REQUIRE(result.exit_code == 0);
  auto variables = Variables(result.out);
  CHECK(variables["MAKEFLAGS"] ==
        "k -j4 --jobserver-auth=fifo:" + daemon.lane_dir() + "/fifo -- V=1");
  CHECK(variables["CARGO_MAKEFLAGS"] == "-j4 --jobserver-auth=fifo:" + daemon.lane_dir() + "/fifo");
  CHECK(variables["HEADROOM_LANE"] == daemon.lane_dir());
  CHECK(variables["HEADROOM_CORES"] == "4");
  CHECK(variables["HEADROOM_GATE"] == "0");
  CHECK(variables["KEPT"] == "as it was");
}

TEST_CASE("A user's -j in MAKEFLAGS is a cap, and said") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  ProgramOptions options = RunIn(dir.path(), {"true"});
  options.env["MAKEFLAGS"] = "-j1";
  const ProgramResult result = Run(options);
  CHECK(Contains(result.err, "MAKEFLAGS says -j1"));
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1) CHECK(daemon.asked().attached[0].jobs() == 1);
  // --jobs is what the user says now.
  options = RunIn(dir.path(), {"--jobs", "9", "true"});
  options.env["MAKEFLAGS"] = "-j1";
  CHECK(Run(options).exit_code == 0);
  CHECK(daemon.asked().attached[1].jobs() == 9);
}

TEST_CASE("MAX_JOBS and its like: ours under the gate, the user's a cap that is said") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  const ProgramResult bare = Run(RunIn(dir.path(), {"--no-gate", "env"}));
  REQUIRE(bare.exit_code == 0);
  CHECK(Variables(bare.out).count("MAX_JOBS") == 0);

  ProgramOptions options = RunIn(dir.path(), {"env"});
  options.env["MAX_JOBS"] = "3";
  options.env["CMAKE_BUILD_PARALLEL_LEVEL"] = "auto";
  const ProgramResult kept = Run(options);
  auto variables = Variables(kept.out);
  CHECK(variables["MAX_JOBS"] == "3");
  CHECK(variables["CMAKE_BUILD_PARALLEL_LEVEL"] == "auto");
  CHECK(Contains(kept.err, "headroom: MAX_JOBS says 3: kept as a cap"));
  CHECK(Contains(kept.err, "headroom: CMAKE_BUILD_PARALLEL_LEVEL says 'auto': kept;"));
}

TEST_CASE("Exit codes are CMD's, our own are env(1)'s") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  const auto code = [&](const Words& words) {
    const ProgramResult result = Run(RunIn(dir.path(), words));
    INFO(result.err);
    CHECK(result.signal == 0);
    return result.exit_code;
  };
  CHECK(code({"true"}) == 0);
  CHECK(code({"sh", "-c", "exit 1"}) == 1);
  CHECK(code({"sh", "-c", "exit 255"}) == 255);
  CHECK(code({"sh", "-c", "exit 125"}) == 125);
  CHECK(code({"no-such-program"}) == 127);
  CHECK(code({(dir / "no-such-file").string()}) == 127);
  CHECK(code({""}) == 127);
  WriteFile(dir / "data", "text");
  CHECK(code({(dir / "data").string()}) == 126);
  CHECK(code({dir.path().string()}) == 126);
  CHECK(code({"--jobs", "no", "true"}) == 125);
  CHECK(code({"--trace", (dir / "no" / "such").string(), "true"}) == 125);
  // Scripts: without "#!" as every shell runs them; with an interpreter that isn't there.
  WriteFile(dir / "plain", "exit $(($1 + 1))\n");
  chmod((dir / "plain").c_str(), 0755);
  CHECK(code({(dir / "plain").string(), "4"}) == 5);
  WriteFile(dir / "lost", "#!/no/such/interpreter\n");
  chmod((dir / "lost").c_str(), 0755);
  CHECK(code({(dir / "lost").string()}) == 127);
  // Nothing of all that was said to stdout, and each failure in one line that names the thing.
  const ProgramResult result = Run(RunIn(dir.path(), {"no-such-program"}));
  CHECK(result.out.empty());
  CHECK(result.err == "headroom: 'no-such-program': not found in PATH\n");
}

TEST_CASE("CMD's signal ends run too, as a shell expects") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  for (const int number : {SIGTERM, SIGKILL, SIGINT, SIGSEGV, SIGHUP}) {
    const ProgramResult result = Run(
        RunIn(dir.path(), {"sh", "-c", "ulimit -c 0; kill -" + std::to_string(number) + " $$"}));
    CHECK(result.signal == number);
    CHECK(Contains(result.err, "headroom: wall "));
  }
  CHECK(daemon.asked().detached == std::vector<int>{143, 137, 130, 139, 129});
  // Below a shell: 128 and the number.
  ProgramOptions below = RunIn(dir.path(), {});
  below.argv = {"bash", "-c", kHeadroom + " run sh -c 'kill -TERM $$'; echo code $?"};
  CHECK(Contains(Run(below).out, "code 143"));
}

TEST_CASE("stdin, stdout, arguments and the name in argv reach CMD untouched") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  ProgramOptions options = RunIn(dir.path(), {"cat"});
  options.stdin_text = "some\0text";
  CHECK(Run(options).out == options.stdin_text);
  const ProgramResult words =
      Run(RunIn(dir.path(), {"printf", "<%s>", "a b", "", "*", "$HOME", "--jobs"}));
  CHECK(words.out == "<a b><><*><$HOME><--jobs>");
  CHECK(Run(RunIn(dir.path(), {"sh", "-c", "tr '\\0' '\\n' </proc/$$/cmdline | head -1"})).out ==
        "sh\n");
}

TEST_CASE("Ignored signals and the signal mask are CMD's as they were ours") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  const auto masks = [&](const std::string& prefix, bool with) {
    ProgramOptions options = RunIn(dir.path(), {});
    options.argv = {"bash", "-c",
                    prefix + (with ? kHeadroom + " run " : "") +
                        "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"};
    return Run(options).out;
  };
  CHECK(masks("", true) == masks("", false));
  CHECK(masks("trap '' HUP PIPE CHLD TERM; ", true) ==
        masks("trap '' HUP PIPE CHLD TERM; ", false));
}

TEST_CASE("No descriptor of ours reaches CMD where it is told of a path") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  fs::create_symlink("/usr/bin/ls", dir / "ninja");
  const Words words = {(dir / "ninja").string(), "/proc/self/fd"};
  ProgramOptions bare = RunIn(dir.path(), {});
  bare.argv = words;
  CHECK(Run(RunIn(dir.path(), words)).out == Run(bare).out);
}

TEST_CASE("Closed standard streams stay closed for CMD, and nothing of ours gets into the fifo") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  ProgramOptions options = RunIn(dir.path(), {});
  options.argv = {"bash", "-c",
                  kHeadroom + " run bash -c 'ls -l /proc/$$/fd >" + (dir / "list").string() +
                      "; exit 4' <&- >&- 2>&-; exit $?"};
  CHECK(Run(options).exit_code == 4);
  const std::string list = ReadFile(dir / "list");
  INFO(list);
  CHECK(!Contains(list, " 0 -> "));
  CHECK(!Contains(list, " 2 -> "));
  CHECK(!Contains(list, "/lane/fifo"));
  CHECK(daemon.Idle() == 3);
}

TEST_CASE("A signal to run alone reaches CMD once") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  Program program(RunIn(dir.path(), {HEADROOM_SIGNAL_LOGGER, (dir / "log").string()}));
  const fs::path log = dir / "log";
  REQUIRE(WaitUntil([&] { return CountLines(log, "ready") == 1; }));
  const std::vector<std::pair<int, std::string>> signals = {
      {SIGTERM, "TERM"}, {SIGINT, "INT"},   {SIGHUP, "HUP"},  {SIGQUIT, "QUIT"},
      {SIGUSR1, "USR1"}, {SIGALRM, "ALRM"}, {SIGCONT, "CONT"}};
  for (const auto& [number, name] : signals) {
    for (int round = 1; round <= 3; ++round) {
      INFO(name << ", round " << round);
      program.Signal(number);
      REQUIRE(WaitUntil([&] { return CountLines(log, name) == round; }));
    }
  }
  usleep(100'000);
  for (const auto& [number, name] : signals) CHECK(CountLines(log, name) == 3);
  program.Signal(SIGUSR2);
  CHECK(program.Wait().exit_code == 42);
}

TEST_CASE("A signal to the process group reaches CMD once") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  Program program(RunIn(dir.path(), {HEADROOM_SIGNAL_LOGGER, (dir / "log").string()}));
  const fs::path log = dir / "log";
  REQUIRE(WaitUntil([&] { return CountLines(log, "ready") == 1; }));
  for (int round = 1; round <= 5; ++round) {
    program.SignalGroup(SIGTERM);
    REQUIRE(WaitUntil([&] { return CountLines(log, "TERM") >= round; }));
    usleep(50'000);  // a second one would follow within a few milliseconds
    CHECK(CountLines(log, "TERM") == round);
  }
  // One to the group and then one to run alone: both count.
  program.SignalGroup(SIGINT);
  REQUIRE(WaitUntil([&] { return CountLines(log, "INT") == 1; }));
  usleep(50'000);
  program.Signal(SIGINT);
  REQUIRE(WaitUntil([&] { return CountLines(log, "INT") == 2; }));
  program.SignalGroup(SIGUSR2);
  CHECK(program.Wait().exit_code == 42);
}

TEST_CASE("A group stopped and continued by hand goes on") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  Program program(RunIn(dir.path(), {HEADROOM_SIGNAL_LOGGER, (dir / "log").string()}));
  const fs::path log = dir / "log";
  REQUIRE(WaitUntil([&] { return CountLines(log, "ready") == 1; }));
  program.SignalGroup(SIGSTOP);
  REQUIRE(WaitUntil([&] { return ProcessState(program.pid()) == 'T'; }));
  // To run alone: CMD, and the witness, must come along.
  program.Signal(SIGCONT);
  REQUIRE(WaitUntil([&] { return CountLines(log, "CONT") >= 1; }));
  program.Signal(SIGTERM);
  REQUIRE(WaitUntil([&] { return CountLines(log, "TERM") == 1; }));
  program.SignalGroup(SIGTERM);
  REQUIRE(WaitUntil([&] { return CountLines(log, "TERM") == 2; }));
  usleep(50'000);
  CHECK(CountLines(log, "TERM") == 2);
  program.Signal(SIGUSR2);
  CHECK(program.Wait().exit_code == 42);
}

TEST_CASE("On a terminal: ^C once, ^Z stops the job, fg and bg go on") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  const fs::path log = dir / "log";
  Terminal terminal;
  terminal.Type("export HEADROOM_RUNTIME_DIR=" + dir.path().string() + "\n");
  REQUIRE(terminal.Expect("prompt> "));
  terminal.Type(kHeadroom + " run " HEADROOM_SIGNAL_LOGGER " " + log.string() +
                "; echo code:$?:\n");
  REQUIRE(WaitUntil([&] { return CountLines(log, "ready") == 1; }));
  terminal.Type("\x03");
  REQUIRE(WaitUntil([&] { return CountLines(log, "INT") == 1; }));
  terminal.Type("\x1c");
  REQUIRE(WaitUntil([&] { return CountLines(log, "QUIT") == 1; }));
  usleep(100'000);
  CHECK(CountLines(log, "INT") == 1);
  CHECK(CountLines(log, "QUIT") == 1);

  terminal.Type("\x1a");
  REQUIRE(terminal.Expect("Stopped"));
  REQUIRE(terminal.Expect("prompt> "));
  const Asked asked = daemon.asked();
  REQUIRE(asked.attached.size() == 1);
  const pid_t run = asked.attached[0].root().pid();
  CHECK(ProcessState(run) == 'T');
  for (const pid_t pid : Descendants(run))
    if (ProcessName(pid) == "signal_logger") CHECK(ProcessState(pid) == 'T');

  terminal.Type("fg\n");
  REQUIRE(WaitUntil([&] { return CountLines(log, "CONT") == 1; }));
  REQUIRE(WaitUntil([&] { return ProcessState(run) == 'S'; }));
  terminal.Type("\x03");
  REQUIRE(WaitUntil([&] { return CountLines(log, "INT") == 2; }));
  // Twice, as the second time shows whether the first left anything behind.
  terminal.Type("\x1a");
  REQUIRE(terminal.Expect("Stopped"));
  REQUIRE(terminal.Expect("prompt> "));
  terminal.Type("bg\n");
  REQUIRE(WaitUntil([&] { return CountLines(log, "CONT") == 2; }));
  REQUIRE(terminal.Expect("prompt> "));
  // The shell's own kill of a job goes to the whole group.
  terminal.Type("kill %1\n");
  REQUIRE(WaitUntil([&] { return CountLines(log, "TERM") == 1; }));
  usleep(100'000);
  CHECK(CountLines(log, "TERM") == 1);
  CHECK(CountLines(log, "CONT") <= 3);
  terminal.Type("kill -USR2 %1; wait %1; echo code:$?:\n");
  CHECK(terminal.Expect("code:42:"));
  INFO(terminal.screen());
  CHECK(CountLines(log, "INT") == 2);
}

TEST_CASE("An interrupt ends a build that doesn't catch it, and the shell sees SIGINT") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  Terminal terminal;
  terminal.Type("export HEADROOM_RUNTIME_DIR=" + dir.path().string() + "\n");
  REQUIRE(terminal.Expect("prompt> "));
  // A loop ends with ^C only if the shell sees that its child died of it.
  terminal.Type("for i in 1 2 3; do " + kHeadroom + " run sleep 60; done; echo afte''r\n");
  REQUIRE(WaitUntil([&] { return daemon.asked().attached.size() == 1; }));
  usleep(300'000);
  terminal.Type("\x03");
  REQUIRE(terminal.Expect("prompt> "));
  CHECK(daemon.asked().attached.size() == 1);
  CHECK(daemon.asked().detached == std::vector<int>{130});
}

TEST_CASE("A CMD that reads the terminal in the background stops as a job, not silently") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  Terminal terminal;
  terminal.Type("export HEADROOM_RUNTIME_DIR=" + dir.path().string() + "\n");
  REQUIRE(terminal.Expect("prompt> "));
  terminal.Type(kHeadroom + " run cat &\n");
  REQUIRE(terminal.Expect("prompt> "));
  REQUIRE(WaitUntil([&] { return daemon.asked().attached.size() == 1; }));
  usleep(300'000);
  terminal.Type("\n");
  REQUIRE(terminal.Expect("Stopped"));
  terminal.Type("fg\n");
  usleep(100'000);
  terminal.Type("hello from here\n\x04");
  // Echoed by the terminal, and written by cat.
  CHECK(terminal.Expect("hello from here"));
  CHECK(terminal.Expect("hello from here"));
  CHECK(terminal.Expect("headroom: wall "));
}

TEST_CASE("run ends with CMD, whatever a daemonised grandchild holds open (K16)") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  // As sccache's server does: a session of its own, the fifo held open.
  Program program(RunIn(
      dir.path(), {"sh", "-c",
                   "setsid sh -c 'exec 9<>\"$HEADROOM_LANE/fifo\"; echo $$ >" +
                       (dir / "pid").string() + "; exec sleep 60' >/dev/null 2>&1 & exit 3"}));
  const ProgramResult result = program.Wait(std::chrono::seconds(20));
  CHECK(result.exit_code == 3);
  CHECK(!result.timed_out);
  CHECK(result.wall_seconds < 10);
  CHECK(!Contains(result.err, "left"));
  REQUIRE(WaitUntil([&] { return !Logged(dir / "pid").empty(); }));
  const pid_t sleeper = std::stoi(ReadFile(dir / "pid"));
  CHECK(ProcessState(sleeper).has_value());
  kill(sleeper, SIGKILL);
}

TEST_CASE("Orphans of the build stay below run, and are reaped") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  const ProgramResult result = Run(RunIn(
      dir.path(), {"sh", "-c",
                   "run=$PPID; (sh -c 'sleep 0.2; ps -o ppid= -p $$' >" + (dir / "ppid").string() +
                       " &) ; sleep 1; echo run $run; ps -o stat= --ppid $run | grep -c Z"}));
  CHECK(std::stoi(ReadFile(dir / "ppid")) == std::stoi(result.out.substr(4)));
  CHECK(Contains(result.out, "\n0\n"));
}

TEST_CASE("A daemon that comes back finds run again, with the same lane") {
  const TempDir dir;
  auto daemon = std::make_unique<FakeDaemon>(dir.path());
  Program program(RunIn(dir.path(), {HEADROOM_SIGNAL_LOGGER, (dir / "log").string()}));
  REQUIRE(WaitUntil([&] { return CountLines(dir / "log", "ready") == 1; }));
  const std::string lane = daemon->lane_dir();
  REQUIRE(daemon->Idle() == 3);
  daemon.reset();
  REQUIRE(WaitUntil([&] { return Contains(program.Err(), "headroomd is gone"); }));
  // The tokens are still there: run holds the fifo.
  daemon = std::make_unique<FakeDaemon>(dir.path(), 0);
  CHECK(daemon->Idle() == 3);
  REQUIRE(WaitUntil([&] { return daemon->asked().attached.size() == 1; }));
  CHECK(daemon->asked().attached[0].lane_dir() == lane);
  REQUIRE(WaitUntil([&] { return Contains(program.Err(), "headroomd is back"); }));
  program.Signal(SIGUSR2);
  const ProgramResult result = program.Wait();
  CHECK(result.exit_code == 42);
  CHECK(daemon->asked().detached == std::vector<int>{42});
}

TEST_CASE("A daemon that is gone at the end costs the summary, nothing else") {
  const TempDir dir;
  auto daemon = std::make_unique<FakeDaemon>(dir.path());
  Program program(RunIn(dir.path(), {HEADROOM_SIGNAL_LOGGER, (dir / "log").string()}));
  REQUIRE(WaitUntil([&] { return CountLines(dir / "log", "ready") == 1; }));
  daemon.reset();
  REQUIRE(WaitUntil([&] { return Contains(program.Err(), "headroomd is gone"); }));
  program.Signal(SIGUSR2);
  const ProgramResult result = program.Wait();
  CHECK(result.exit_code == 42);
  CHECK(Contains(result.err, "no headroomd at the end"));
}

TEST_CASE("run killed with -9: the daemon is told by the closed connection") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  Program program(RunIn(dir.path(), {HEADROOM_SIGNAL_LOGGER, (dir / "log").string()}));
  REQUIRE(WaitUntil([&] { return CountLines(dir / "log", "ready") == 1; }));
  std::vector<pid_t> below = Descendants(program.pid());
  program.Signal(SIGKILL);
  CHECK(WaitUntil([&] { return daemon.asked().dropped == 1; }));
  // CMD goes on, as below any killed wrapper; the witness does not.
  int alive = 0;
  WaitUntil([&] {
    alive = 0;
    for (const pid_t pid : below) {
      const auto state = ProcessState(pid);
      alive += state.has_value() && *state != 'Z';
    }
    return alive == 1;
  });
  CHECK(alive == 1);
  program.SignalGroup(SIGUSR2);
}

// A daemon that can't be had: the build goes on, and no more jobs than a few run at once.
void CheckCareful(const fs::path& dir, const std::string& why, std::chrono::milliseconds timeout) {
  fs::remove(dir / "ninja");
  fs::create_symlink("/bin/sh", dir / "ninja");
  const ProgramResult result =
      Run(RunIn(dir, {"--jobs", "2", (dir / "ninja").string(), "-c",
                      "echo \"$MAKEFLAGS\"; ls \"$HEADROOM_LANE\"; exit 9"}),
          timeout);
  INFO(result.err);
  CHECK(result.exit_code == 9);
  CHECK(Contains(result.err, why));
  CHECK(Contains(result.err, "going on without it"));
  CHECK(Contains(result.out, "--jobserver-auth=fifo:"));
  CHECK(Contains(result.out, "fifo"));
  CHECK(Contains(result.out, "slots"));
}

TEST_CASE("A hung daemon: the build goes on within seconds") {
  const TempDir dir;
  const RudeServer server(dir.path(), "");
  CheckCareful(dir.path(), "hangs", std::chrono::seconds(20));
}

TEST_CASE("Rubbish instead of a daemon: the build goes on") {
  {
    const TempDir dir;
    const RudeServer server(dir.path(), "HTTP/1.1 400 Bad Request\r\n\r\n");
    CheckCareful(dir.path(), "no headroomd", std::chrono::seconds(20));
  }
  const TempDir dir;
  const RudeServer server(dir.path(), std::string(100, '\xff'));
  CheckCareful(dir.path(), "no headroomd", std::chrono::seconds(20));
}

TEST_CASE("A daemon that is too busy, or can't: the build goes on") {
  for (const absl::Status& status :
       {absl::ResourceExhaustedError("too many lanes"), absl::InternalError("disk full")}) {
    const TempDir dir;
    FakeDaemon daemon(dir.path());
    daemon.Answer([&](Answers& answers) {
      answers.on_attach = [&](const v1::AttachRequest&) { return status; };
    });
    CheckCareful(dir.path(), std::string(status.message()), std::chrono::seconds(20));
  }
}

TEST_CASE("A daemon that refuses what was asked for: 125, in its words") {
  for (const absl::Status& status : {absl::InvalidArgumentError("--reserve: more than there is"),
                                     absl::PermissionDeniedError("only for a private daemon")}) {
    const TempDir dir;
    FakeDaemon daemon(dir.path());
    daemon.Answer([&](Answers& answers) {
      answers.on_attach = [&](const v1::AttachRequest&) { return status; };
    });
    const ProgramResult result = Run(RunIn(dir.path(), {"true"}));
    CHECK(result.exit_code == 125);
    CHECK(result.err == "headroom: " + std::string(status.message()) + "\n");
  }
}

TEST_CASE("A daemon whose lane has no fifo: the build goes on") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  daemon.Answer([&](Answers& answers) {
    answers.on_attach = [&](const v1::AttachRequest&) {
      v1::Attached attached;
      attached.set_lane_dir((dir / "nowhere").string());
      attached.set_cores(4);
      return attached;
    };
  });
  CheckCareful(dir.path(), "nowhere", std::chrono::seconds(20));
}

TEST_CASE("Somebody else's daemon is not believed") {
  if (geteuid() != 0) {
    std::puts("SKIPPED: needs root to be two users");
    return;
  }
  const TempDir dir;
  chmod(dir.path().c_str(), 0777);
  // User 4711 listens; user 4712 builds.
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(4711) != 0) _exit(1);
    const RudeServer server(dir.path(), "");
    chmod((dir / "control.sock").c_str(), 0777);
    pause();
    _exit(0);
  }
  REQUIRE(WaitUntil([&] { return fs::exists(dir / "control.sock"); }));
  usleep(100'000);
  ProgramOptions options = RunIn(dir.path(), {"sh", "-c", "exit 9"});
  options.uid = 4712;
  const ProgramResult result = Run(options);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  INFO(result.err);
  CHECK(result.exit_code == 9);
  CHECK(Contains(result.err, "user 4711"));
  CHECK(Contains(result.err, "going on without it"));
}

TEST_CASE("A socket that is closed to us is named") {
  if (geteuid() != 0) {
    std::puts("SKIPPED: needs root to be two users");
    return;
  }
  const TempDir dir;
  chmod(dir.path().c_str(), 0755);
  FakeDaemon daemon(dir.path());
  chmod((dir / "control.sock").c_str(), 0600);
  ProgramOptions options = RunIn(dir.path(), {"sh", "-c", "exit 9"});
  options.uid = 4712;
  const ProgramResult result = Run(options);
  INFO(result.err);
  CHECK(result.exit_code == 9);
  CHECK(Contains(result.err, "permission denied"));
  CHECK(Contains(result.err, (dir / "control.sock").string()));
}

TEST_CASE("The option --trace saves what the daemon has, for the owner's eyes alone") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  // What is there already loses its wider permissions and its content.
  WriteFile(dir / "trace", std::string(100'000, 'x'));
  chmod((dir / "trace").c_str(), 0644);
  const ProgramResult result =
      Run(RunIn(dir.path(), {"--trace", (dir / "trace").string(), "true"}));
  CHECK(result.exit_code == 0);
  struct stat status {};
  REQUIRE(stat((dir / "trace").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  CHECK(status.st_size == 0);
}

TEST_CASE("make: descriptors for an old one, a fifo for a new one, nothing lost") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  WriteFile(dir / "Makefile",
            "all:\n\t@echo '$(MAKEFLAGS)'\n\t@$(MAKE) -s sub\nsub:\n\t@echo sub\n");
  const auto make = FindProgram("make");
  REQUIRE(make);
  const bool old = Contains(Run({make->string(), "--version"}).out, "GNU Make 4.3");
  ProgramOptions options = RunIn(dir.path(), {"make", "-s"});
  options.cwd = dir.path();
  const ProgramResult result = Run(options);
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(Contains(result.out, "sub"));
  CHECK(!Contains(result.err, "jobserver"));
  if (old) CHECK(Contains(result.out, "--jobserver-auth=100,100"));
  CHECK(daemon.Idle() == 3);
  // Below a script, an old make in PATH decides.
  options = RunIn(dir.path(), {"sh", "-c", "make -s"});
  options.cwd = dir.path();
  const ProgramResult below = Run(options);
  INFO(below.out << below.err);
  CHECK(below.exit_code == 0);
  CHECK(daemon.Idle() == 3);
  if (const auto modern = VenvTool("make")) {
    options = RunIn(dir.path(), {modern->string(), "-s"});
    options.cwd = dir.path();
    const ProgramResult fifo = Run(options);
    INFO(fifo.out << fifo.err);
    CHECK(fifo.exit_code == 0);
    CHECK(Contains(fifo.out, "--jobserver-auth=fifo:" + daemon.lane_dir() + "/fifo"));
    CHECK(daemon.Idle() == 3);
  }
}

// The most jobs at once of a build with four tokens' worth of slots.
int Width(const fs::path& dir, const Words& command, const StandinBuild& build,
          FakeDaemon& daemon) {
  ProgramOptions options = RunIn(dir, command);
  options.cwd = dir;
  const ProgramResult result = Run(options);
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(ReadOutputs(dir, build).size() == build.edges.size());
  CHECK(daemon.Idle() == 3);
  return MaxParallel(ReadStandinLog(dir / "standin.log"));
}

TEST_CASE("Real clients take the lane's tokens, and give them all back") {
  const TempDir tools_dir;
  const StandinTools tools(tools_dir.path());
  StandinBuild build;
  for (int i = 0; i < 12; ++i) {
    StandinEdge edge;
    edge.name = "edge" + std::to_string(i);
    edge.curve = "0:1M,0.4:2M";
    build.edges.push_back(edge);
  }
  std::vector<std::pair<std::string, Words>> clients = {{"make of this system", {"make", "-s"}}};
  if (const auto make = VenvTool("make")) clients.push_back({"make 4.4.1", {make->string(), "-s"}});
  if (const auto ninja = VenvTool("ninja")) clients.push_back({"ninja 1.13.2", {ninja->string()}});
  for (const auto& [name, command] : clients) {
    const TempDir dir;
    FakeDaemon daemon(dir.path());
    if (Contains(name, "make")) {
      WriteMakeBuild(dir.path(), tools, build);
    } else {
      WriteNinjaBuild(dir.path(), tools, build);
    }
    INFO(name);
    const int width = Width(dir.path(), command, build, daemon);
    // One implicit slot and three tokens.
    CHECK(width <= 4);
    CHECK(width >= 2);
  }
}

}  // namespace
}  // namespace headroom::testing
