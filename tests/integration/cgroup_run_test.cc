// scripts/cgroup-run: the demo and the benches judge Headroom by its numbers.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>
#include <regex>
#include <thread>

#include "tests/support/testing.h"

namespace headroom::testing {
namespace {

const std::string kProgram = HEADROOM_SOURCE_DIR "/scripts/cgroup-run";

bool Unavailable() {
  const auto why = MemoryCgroup::WhyUnavailable();
  if (why) std::cout << "SKIPPED: " << *why << "\n";
  return why.has_value();
}

double Number(const std::string& json, const std::string& key) {
  std::smatch match;
  const std::regex pattern("\"" + key + "\": ([-0-9.e]+)");
  if (!std::regex_search(json, match, pattern))
    throw std::runtime_error("no " + key + " in " + json);
  return std::stod(match[1]);
}

// `count` edges that take `mib` MiB each for `seconds`.
StandinBuild EvenBuild(int count, int mib, double seconds) {
  StandinBuild build;
  for (int i = 0; i < count; ++i) {
    StandinEdge edge;
    edge.name = "unit" + std::to_string(i);
    edge.curve = "0:0,0.2:" + std::to_string(mib) + "M," + std::to_string(seconds) + ":" +
                 std::to_string(mib) + "M";
    build.edges.push_back(edge);
  }
  return build;
}

TEST_CASE("jobs, memory and wall time of a build that fits") {
  if (Unavailable()) return;
  const auto ninja = FindProgram("ninja");
  if (!ninja) {
    std::cout << "SKIPPED: no ninja on PATH\n";
    return;
  }
  TempDir dir;
  const StandinTools tools(dir / "bin");
  WriteNinjaBuild(dir.path(), tools, EvenBuild(9, 30, 1.5));
  const ProgramResult result = Run({kProgram, "--limit", std::to_string(400 * kMiB), "--report",
                                    (dir / "report").string(), "--log", (dir / "log").string(),
                                    "--chdir", dir.path().string(), "--", ninja->string(), "-j3"});
  INFO(result.err);
  CHECK(result.exit_code == 0);
  const std::string report = ReadFile(dir / "report");
  CHECK(Number(report, "exit_code") == 0);
  CHECK(Number(report, "oom_kills") == 0);
  CHECK(Number(report, "max_jobs") == 3);
  CHECK(Number(report, "max_tools") == 3);
  CHECK(Number(report, "mean_jobs") > 2.2);
  CHECK(Number(report, "mean_jobs") <= 3);
  CHECK(Number(report, "wall_s") >= 4.5);
  CHECK(Number(report, "peak_bytes") / static_cast<double>(kMiB) == Approx(92).margin(10));
  CHECK(ReadFile(dir / "log").find("unit8.o") != std::string::npos);
}

TEST_CASE("a build that is long enough is interrupted, and said to be") {
  if (Unavailable()) return;
  const auto ninja = FindProgram("ninja");
  if (!ninja) {
    std::cout << "SKIPPED: no ninja on PATH\n";
    return;
  }
  TempDir dir;
  const StandinTools tools(dir / "bin");
  fs::create_directories(dir / "tree" / "build");
  WriteNinjaBuild(dir / "tree" / "build", tools, EvenBuild(40, 20, 1));
  const ProgramResult result =
      Run({kProgram, "--limit", std::to_string(400 * kMiB), "--report", (dir / "report").string(),
           "--log", (dir / "log").string(), "--samples", (dir / "samples").string(), "--stop-after",
           "4", "--below", (dir / "tree").string(), "--chdir", (dir / "tree" / "build").string(),
           "--", ninja->string(), "-j2"});
  INFO(result.err);
  const std::string report = ReadFile(dir / "report");
  INFO(report);
  CHECK(report.find("\"stopped\": true") != std::string::npos);
  CHECK(Number(report, "objects") >= 4);
  CHECK(Number(report, "objects") < 40);
  CHECK(Number(report, "mean_tools") > 1.2);
  const std::string samples = ReadFile(dir / "samples");
  INFO(samples);
  CHECK(samples.find("second\tjobs\ttools\tanonymous_bytes\toom_kills\n") == 0);
  CHECK(std::count(samples.begin(), samples.end(), '\n') >= 2);
}

TEST_CASE("stopped jobs are not counted") {
  if (Unavailable()) return;
  const auto ninja = FindProgram("ninja");
  if (!ninja) {
    std::cout << "SKIPPED: no ninja on PATH\n";
    return;
  }
  TempDir dir;
  const StandinTools tools(dir / "bin");
  WriteNinjaBuild(dir.path(), tools, EvenBuild(2, 10, 2));
  ProgramOptions options;
  options.argv = {kProgram,
                  "--limit",
                  std::to_string(400 * kMiB),
                  "--report",
                  (dir / "report").string(),
                  "--chdir",
                  dir.path().string(),
                  "--",
                  ninja->string(),
                  "-j2"};
  Program program(options);
  std::vector<pid_t> compilers;
  REQUIRE(WaitUntil([&] {
    compilers.clear();
    for (const pid_t pid : Descendants(program.pid())) {
      if (ProcessName(pid) == "cc1plus" && AnonymousMemory(pid).value_or(0) > 8 * kMiB)
        compilers.push_back(pid);
    }
    return compilers.size() == 2;
  }));
  for (const pid_t pid : compilers) kill(pid, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  for (const pid_t pid : compilers) kill(pid, SIGCONT);
  const ProgramResult result = program.Wait();
  INFO(result.err);
  CHECK(result.exit_code == 0);
  const std::string report = ReadFile(dir / "report");
  CHECK(Number(report, "wall_s") >= 5.5);
  CHECK(Number(report, "max_jobs") == 2);
  // Two jobs for two of six seconds.
  CHECK(Number(report, "mean_jobs") < 1.2);
  CHECK(Number(report, "mean_jobs") > 0.3);
}

TEST_CASE("OOM kills are counted and the exit code is the command's") {
  if (Unavailable()) return;
  TempDir dir;
  const StandinTools tools(dir / "bin");
  const ProgramResult result =
      Run({kProgram, "--limit", std::to_string(100 * kMiB), "--report", (dir / "report").string(),
           "--", tools.Path("cicc"), "--curve", "0:0,0.5:300M", "x"});
  CHECK(result.exit_code == 128 + SIGKILL);
  CHECK(Number(ReadFile(dir / "report"), "oom_kills") == 1);
  CHECK(Run({kProgram, "--limit", std::to_string(100 * kMiB), "--", tools.Path("cicc"), "--exit",
             "7", "x"})
            .exit_code == 7);
  CHECK(Run({kProgram, "--limit", std::to_string(100 * kMiB), "--", "/nonexistent"}).exit_code ==
        127);
}

TEST_CASE("without the right to make a cgroup the remedy is named") {
  if (Unavailable()) return;
  if (getuid() != 0) {
    std::cout << "SKIPPED: only root can become another user\n";
    return;
  }
  TempDir dir;
  fs::permissions(dir.path(), fs::perms(0755));
  fs::copy_file(kProgram, dir / "cgroup-run");
  ProgramOptions options;
  options.argv = {(dir / "cgroup-run").string(), "--check"};
  options.env["PATH"] = "/usr/bin:/bin";  // root's own python3 may be out of nobody's reach
  options.uid = 65534;
  options.cwd = "/";
  const ProgramResult result = Run(options);
  CHECK(result.exit_code == 1);
  CHECK(result.err.find("as root") != std::string::npos);
}

TEST_CASE("the demo refuses wrong words and a machine that is too small") {
  if (Unavailable()) return;
  const std::string demo = HEADROOM_SOURCE_DIR "/scripts/demo";
  const ProgramResult wrong = Run({demo, "--no-such-option"});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find("usage:") != std::string::npos);
  const ProgramResult small = Run({demo, "--limit", std::to_string(1u << 20) + "000000"});
  CHECK(small.exit_code == 3);
  CHECK(small.err.find("leaves 3 GiB to everything else") != std::string::npos);
}

TEST_CASE("an interrupted run leaves neither processes nor its cgroup") {
  if (Unavailable()) return;
  TempDir dir;
  const StandinTools tools(dir / "bin");
  ProgramOptions options;
  options.argv = {kProgram,
                  "--limit",
                  std::to_string(100 * kMiB),
                  "--",
                  "/bin/sh",
                  "-c",
                  "trap '' INT TERM; " + tools.Path("cicc") + " --curve 0:5M,100:5M x; sleep 100"};
  Program program(options);
  std::vector<pid_t> inside;
  REQUIRE(WaitUntil([&] {
    inside = Descendants(program.pid());
    return inside.size() == 2 && AnonymousMemory(inside[1]).value_or(0) > 4 * kMiB;
  }));
  const std::string cgroup = "/headroom-run-" + std::to_string(program.pid());
  CHECK(ReadFile("/proc/" + std::to_string(inside[1]) + "/cgroup").find(cgroup) !=
        std::string::npos);
  SECTION("^C") {
    program.SignalGroup(SIGINT);
    CHECK(program.Wait().exit_code == 128 + SIGINT);
  }
  SECTION("SIGTERM to it alone") {
    program.Signal(SIGTERM);
    CHECK(program.Wait().exit_code == 128 + SIGTERM);
  }
  for (const pid_t pid : inside) CHECK(ProcessState(pid).value_or('Z') == 'Z');
  const std::string root =
      fs::exists("/sys/fs/cgroup/memory") ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
  CHECK_FALSE(fs::exists(root + cgroup));
}

}  // namespace
}  // namespace headroom::testing
