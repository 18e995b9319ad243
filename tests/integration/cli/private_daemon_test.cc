// `headroom run` with the real headroomd, on a machine where none runs: started, shared, lost,
// ended.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "server/sys/lock_file.h"
#include "server/trace/reader.h"
#include "tests/integration/cli/terminal.h"
#include "tests/support/testing.h"

namespace headroom::testing {
namespace {

const std::string kHeadroom = HEADROOM_BIN_DIR "/headroom";
using Words = std::vector<std::string>;

ProgramOptions Headroom(const fs::path& runtime, const Words& words,
                        const std::string& program = kHeadroom) {
  ProgramOptions options;
  options.argv = {program};
  options.argv.insert(options.argv.end(), words.begin(), words.end());
  options.env = {{"HEADROOM_RUNTIME_DIR", runtime.string()},
                 {"MAKEFLAGS", std::nullopt},
                 {"HEADROOM_LANE", std::nullopt},
                 {"LD_PRELOAD", std::nullopt}};
  return options;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The pid of the daemon that serves there.
std::optional<pid_t> Daemon(const fs::path& runtime) {
  return sys::LockFile::Holder((runtime / "lock").string());
}

// A private daemon ends a moment after its last lane.
bool DaemonEnds(const fs::path& runtime) {
  return WaitUntil([&] { return !Daemon(runtime); }, std::chrono::seconds(20));
}

int CountLog(const fs::path& runtime, const std::string& part) {
  std::ifstream log(runtime / "headroomd.log");
  int count = 0;
  for (std::string line; std::getline(log, line);) count += Contains(line, part);
  return count;
}

nlohmann::json Status(const fs::path& runtime) {
  return nlohmann::json::parse(Run(Headroom(runtime, {"status", "--json"})).out, nullptr, false);
}

TEST_CASE("run needs no daemon: it starts one, which ends with it") {
  const TempDir dir;
  const fs::path runtime = dir / "run";
  Program program(Headroom(runtime, {"run", "sh", "-c", "echo up; sleep 1; exit 5"}));
  REQUIRE(WaitUntil([&] { return Contains(program.Out(), "up"); }));
  REQUIRE(Daemon(runtime));
  const pid_t daemon = *Daemon(runtime);
  CHECK(getsid(daemon) != getsid(program.pid()));
  const auto status = Status(runtime);
  REQUIRE(!status.is_discarded());
  CHECK(status["private"] == true);
  const ProgramResult result = program.Wait();
  INFO(result.err);
  CHECK(result.exit_code == 5);
  CHECK(Contains(result.err, "headroom: wall 1."));
  CHECK(Contains(result.err, "OOM kills"));
  CHECK(!Contains(result.err, "going on without"));
  CHECK(DaemonEnds(runtime));
  struct stat folder {};
  REQUIRE(stat(runtime.c_str(), &folder) == 0);
  CHECK((folder.st_mode & 0777) == 0700);
}

TEST_CASE("A daemon that lives on holds nothing of the build's open") {
  const TempDir dir;
  const fs::path runtime = dir / "run";
  // Another run keeps the daemon alive that the first one started.
  ProgramOptions options = Headroom(runtime, {});
  options.argv = {"bash", "-c",
                  "x=$(" + kHeadroom + " run sh -c '(setsid " + kHeadroom +
                      " run sleep 8 >/dev/null 2>&1 </dev/null &); sleep 1; echo done' 2>&1); "
                      "echo \"got $x\""};
  const ProgramResult result = Run(options, std::chrono::seconds(30));
  CHECK(Contains(result.out, "got done"));
  CHECK(result.wall_seconds < 7);
  CHECK(Daemon(runtime).has_value());
  CHECK(DaemonEnds(runtime));
}

TEST_CASE("Runs that start at once share one daemon") {
  const TempDir dir;
  const fs::path runtime = dir / "run";
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < 5; ++i)
    programs.push_back(std::make_unique<Program>(Headroom(
        runtime,
        {"run", "sh", "-c",
         "echo up; until [ -e " + (dir / "go").string() + " ]; do sleep 0.1; done; exit 3"})));
  for (const auto& program : programs)
    REQUIRE(WaitUntil([&] { return Contains(program->Out(), "up"); }, std::chrono::seconds(30)));
  const auto status = Status(runtime);
  REQUIRE(!status.is_discarded());
  CHECK(status["lanes"].size() == 5);
  WriteFile(dir / "go", "");
  for (const auto& program : programs) {
    const ProgramResult result = program->Wait();
    INFO(result.err);
    CHECK(result.exit_code == 3);
    CHECK(!Contains(result.err, "without"));
  }
  CHECK(CountLog(runtime, ", private)") == 1);
  CHECK(DaemonEnds(runtime));
}

TEST_CASE("Runs one right after the other never miss the daemon that is just ending") {
  const TempDir dir;
  const fs::path runtime = dir / "run";
  for (int i = 0; i < 12; ++i) {
    // Around the time for which a private daemon lingers.
    usleep(static_cast<useconds_t>(i) * 60'000);
    const ProgramResult result = Run(Headroom(runtime, {"run", "true"}));
    INFO(i << ": " << result.err);
    CHECK(result.exit_code == 0);
    CHECK(!Contains(result.err, "without"));
  }
  CHECK(DaemonEnds(runtime));
}

TEST_CASE("The daemon killed with -9: the build goes on, and gets a new one") {
  const TempDir dir;
  const fs::path runtime = dir / "run";
  Program program(Headroom(runtime, {"run", "sh", "-c",
                                     "echo up; until [ -e " + (dir / "go").string() +
                                         " ]; do sleep 0.1; done; ls $HEADROOM_LANE; exit 6"}));
  REQUIRE(WaitUntil([&] { return Contains(program.Out(), "up"); }));
  const auto first = Daemon(runtime);
  REQUIRE(first);
  kill(*first, SIGKILL);
  REQUIRE(WaitUntil([&] { return Contains(program.Err(), "headroomd is back"); },
                    std::chrono::seconds(20)));
  const auto second = Daemon(runtime);
  REQUIRE(second);
  CHECK(*second != *first);
  WriteFile(dir / "go", "");
  const ProgramResult result = program.Wait();
  INFO(result.err);
  CHECK(result.exit_code == 6);
  CHECK(Contains(result.out, "fifo"));
  CHECK(Contains(result.err, "started again"));
  CHECK(DaemonEnds(runtime));
}

TEST_CASE("run killed with -9: the build goes on, the daemon ends when it has ended") {
  const TempDir dir;
  const fs::path runtime = dir / "run";
  Program program(
      Headroom(runtime, {"run", "sh", "-c",
                         "echo up; until [ -e " + (dir / "go").string() +
                             " ]; do sleep 0.1; done; echo end >" + (dir / "end").string()}));
  REQUIRE(WaitUntil([&] { return Contains(program.Out(), "up"); }));
  program.Signal(SIGKILL);
  usleep(1'500'000);
  CHECK(Daemon(runtime).has_value());
  WriteFile(dir / "go", "");
  CHECK(WaitUntil([&] { return fs::exists(dir / "end"); }));
  CHECK(DaemonEnds(runtime));
}

TEST_CASE("An interrupt ends the build, and lets the daemon end in order") {
  const TempDir dir;
  const fs::path runtime = dir / "run";
  Terminal terminal;
  terminal.Type("export HEADROOM_RUNTIME_DIR=" + runtime.string() + "\n");
  REQUIRE(terminal.Expect("prompt> "));
  terminal.Type(kHeadroom + " run sh -c 'echo u''p; exec sleep 60'\n");
  REQUIRE(terminal.Expect("up"));
  terminal.Type("\x03");
  const bool ended = terminal.Expect("headroom: wall ");
  INFO(terminal.screen());
  REQUIRE(ended);
  REQUIRE(terminal.Expect("prompt> "));
  CHECK(DaemonEnds(runtime));
  CHECK(CountLog(runtime, "no lane is left") == 1);
}

// headroom with a headroomd of the test's own beside it.
fs::path WithDaemon(const fs::path& dir, const std::string& script) {
  fs::create_directories(dir / "bin");
  std::error_code error;
  fs::create_hard_link(kHeadroom, dir / "bin" / "headroom", error);
  if (error) fs::copy_file(kHeadroom, dir / "bin" / "headroom");
  WriteFile(dir / "bin" / "headroomd", script);
  chmod((dir / "bin" / "headroomd").c_str(), 0755);
  return dir / "bin" / "headroom";
}

TEST_CASE("A headroomd that can't start: its own words, and the build goes on") {
  const TempDir dir;
  const fs::path program =
      WithDaemon(dir.path(), "#!/bin/sh\necho headroomd: the moon is wrong >&2\nexit 1\n");
  const ProgramResult result =
      Run(Headroom(dir / "run", {"run", "sh", "-c", "exit 9"}, program.string()));
  INFO(result.err);
  CHECK(result.exit_code == 9);
  CHECK(Contains(result.err, "the moon is wrong"));
  CHECK(Contains(result.err, "headroomd.log"));
  CHECK(Contains(result.err, "going on without it"));
}

TEST_CASE("A headroomd that is no program: named, and the build goes on") {
  const TempDir dir;
  const fs::path program = WithDaemon(dir.path(), "#!/no/such/interpreter\n");
  const ProgramResult result =
      Run(Headroom(dir / "run", {"run", "sh", "-c", "exit 9"}, program.string()));
  INFO(result.err);
  CHECK(result.exit_code == 9);
  CHECK(Contains(result.err, (dir / "bin" / "headroomd").string()));
  CHECK(Contains(result.err, "going on without it"));
}

TEST_CASE("A headroomd that never listens is given up, and ended") {
  const TempDir dir;
  const fs::path program = WithDaemon(
      dir.path(), "#!/bin/sh\necho $$ >" + (dir / "pid").string() + "\nexec sleep 300\n");
  const ProgramResult result =
      Run(Headroom(dir / "run", {"run", "sh", "-c", "exit 9"}, program.string()),
          std::chrono::seconds(50));
  INFO(result.err);
  CHECK(result.exit_code == 9);
  CHECK(Contains(result.err, "did not come up"));
  const pid_t daemon = std::stoi(ReadFile(dir / "pid"));
  CHECK(WaitUntil([&] {
    const auto state = ProcessState(daemon);
    return !state || *state == 'Z';
  }));
}

TEST_CASE(
    "Without XDG_RUNTIME_DIR, or with one that can't be written to, /tmp/headroom-UID serves") {
  constexpr uid_t kUser = 47'122;
  if (geteuid() != 0) {
    std::puts("SKIPPED: needs root to be another user");
    return;
  }
  if (sys::LockFile::Holder("/run/headroom/lock")) {
    std::puts("SKIPPED: a system daemon serves here");
    return;
  }
  const fs::path runtime = "/tmp/headroom-" + std::to_string(kUser);
  fs::remove_all(runtime);
  const TempDir dir;
  chmod(dir.path().c_str(), 0755);
  const Words words = {"run", "sh", "-c", "echo $HEADROOM_LANE"};
  const std::vector<std::optional<std::string>> cases = {std::nullopt, dir.path().string(),
                                                         "/no/such/folder"};
  for (const std::optional<std::string>& xdg : cases) {
    ProgramOptions options = Headroom("", words);
    options.env["HEADROOM_RUNTIME_DIR"] = std::nullopt;
    options.env["XDG_RUNTIME_DIR"] = xdg;
    options.env["HOME"] = "/nonexistent";
    options.uid = kUser;
    const ProgramResult result = Run(options);
    INFO(result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.out.substr(0, runtime.string().size()) == runtime.string());
    CHECK(!Contains(result.err, "without"));
    CHECK(DaemonEnds(runtime));
  }
  fs::remove_all(runtime);
}

TEST_CASE("A runtime folder that is not ours alone is refused, and the build goes on") {
  const TempDir dir;
  fs::create_directory(dir / "run");
  chmod((dir / "run").c_str(), 0777);
  const ProgramResult result = Run(Headroom(dir / "run", {"run", "sh", "-c", "exit 9"}));
  INFO(result.err);
  CHECK(result.exit_code == 9);
  CHECK(Contains(result.err, "chmod 700"));
}

TEST_CASE("The option --trace saves a trace that can be read") {
  const TempDir dir;
  const fs::path trace = dir / "trace";
  const ProgramResult result =
      Run(Headroom(dir / "run", {"run", "--trace", trace.string(), "sh", "-c", "sleep 0.5"}));
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(!Contains(result.err, "not saved"));
  struct stat status {};
  REQUIRE(stat(trace.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  auto reader = trace::Reader::Open(trace.string());
  REQUIRE(reader.ok());
  int records = 0;
  while (reader->Next()) ++records;
  CHECK(records > 2);
  CHECK(!reader->torn());
  CHECK(DaemonEnds(dir / "run"));
}

TEST_CASE("The option --curves saves what the compilers took, and plan reads it") {
  const TempDir tools_dir;
  const StandinTools tools(tools_dir.path());
  const TempDir dir;
  StandinBuild build;
  for (int i = 0; i < 3; ++i) {
    StandinEdge edge;
    edge.name = "edge" + std::to_string(i);
    edge.curve = "0:1M,0.4:40M,1.0:40M";
    edge.options = {"--cpu", "0.3"};
    build.edges.push_back(edge);
  }
  WriteMakeBuild(dir.path(), tools, build);
  const fs::path curves = dir / "curves.jsonl";
  ProgramOptions options =
      Headroom(dir / "run", {"run", "--curves", curves.string(), "--", "make", "-s"});
  options.cwd = dir.path();
  const ProgramResult result = Run(options);
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(Contains(result.err, "--curves: 3 commands, 3 processes"));
  CHECK_FALSE(Contains(result.err, "missing"));
  struct stat status {};
  REQUIRE(stat(curves.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);

  const ProgramResult plan =
      Run(Headroom(dir / "run", {"plan", "--cores", "4", "--mem", "1", "--json", curves.string()}));
  INFO(plan.out << plan.err);
  REQUIRE(plan.exit_code == 0);
  const auto json = nlohmann::json::parse(plan.out);
  CHECK(json["commands"] == 3);
  CHECK(json["processes"] == 3);
  // 40 MiB, and what the program itself has.
  CHECK(json["largest_process_bytes"] > 38e6);
  CHECK(json["largest_process_bytes"] < 60e6);
  CHECK(json["headroom_first"]["passes"] == true);
  CHECK(json["best_fixed"]["n"] > 0);

  const ProgramResult wrong = Run(Headroom(dir / "run", {"plan", (dir / "no").string()}));
  CHECK(wrong.exit_code == 1);
  CHECK(Contains(wrong.err, "--curves"));
  CHECK(DaemonEnds(dir / "run"));
}

TEST_CASE("Real clients under a private daemon: they pass, within --jobs") {
  const TempDir tools_dir;
  const StandinTools tools(tools_dir.path());
  StandinBuild build;
  for (int i = 0; i < 16; ++i) {
    StandinEdge edge;
    edge.name = "edge" + std::to_string(i);
    edge.curve = "0:1M,0.5:3M";
    build.edges.push_back(edge);
  }
  std::vector<std::pair<std::string, Words>> clients = {{"make of this system", {"make", "-s"}}};
  if (const auto make = VenvTool("make")) clients.push_back({"make 4.4.1", {make->string(), "-s"}});
  if (const auto ninja = VenvTool("ninja")) clients.push_back({"ninja 1.13.2", {ninja->string()}});
  for (const auto& [name, command] : clients) {
    const TempDir dir;
    if (Contains(name, "make")) {
      WriteMakeBuild(dir.path(), tools, build);
    } else {
      WriteNinjaBuild(dir.path(), tools, build);
    }
    Words words = {"run", "--no-gate", "--jobs", "4", "--"};
    words.insert(words.end(), command.begin(), command.end());
    ProgramOptions options = Headroom(dir / "run", words);
    options.cwd = dir.path();
    const ProgramResult result = Run(options);
    INFO(name << "\n" << result.out << result.err);
    CHECK(result.exit_code == 0);
    CHECK(ReadOutputs(dir.path(), build).size() == build.edges.size());
    const int width = MaxParallel(ReadStandinLog(dir / "standin.log"));
    CHECK(width <= 4);
    CHECK(width >= 2);
    CHECK(DaemonEnds(dir / "run"));
  }
}

}  // namespace
}  // namespace headroom::testing
