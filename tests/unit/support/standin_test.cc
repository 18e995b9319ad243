// The stand-in compiler and the test library: other tests measure a daemon with them, so what they
// claim to do is checked here.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <iostream>
#include <thread>

#include "tests/support/testing.h"

namespace headroom::testing {
namespace {

double MiB(std::uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(kMiB);
}

double CpuSeconds(const rusage& usage) {
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

TEST_CASE("anonymous memory follows the curve up, flat and down") {
  TempDir dir;
  const StandinTools tools(dir / "bin");
  ProgramOptions options;
  options.argv = {tools.Path("cicc"), "--curve", "0:0,1:200M,2:200M,2:50M,3:50M", "x.cu"};
  const auto start = std::chrono::steady_clock::now();
  Program program(options);
  REQUIRE(WaitUntil([&] { return ProcessName(program.pid()) == "cicc"; }));

  double most = 0;
  double last = 0;
  int on_ramp = 0;
  int off_ramp = 0;
  while (program.Running()) {
    const auto memory = AnonymousMemory(program.pid());
    const double age =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (memory) {
      most = std::max(most, MiB(*memory));
      if (*memory > 0) last = MiB(*memory);
      // A busy machine makes it late, never early.
      if (age < 1) {
        ++(MiB(*memory) <= 200 * age + 10 ? on_ramp : off_ramp);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const ProgramResult result = program.Wait();
  CHECK(result.exit_code == 0);
  CHECK(most == Approx(200).margin(4));
  CHECK(last == Approx(50).margin(4));
  CHECK(on_ramp > 3);
  CHECK(off_ramp == 0);
  CHECK(result.wall_seconds >= 3);
  CHECK(CpuSeconds(result.usage) < 1);
  CHECK(result.err.empty());
}

TEST_CASE("memory can grow at 2 GB/s and is touched to the last page") {
  TempDir dir;
  const StandinTools tools(dir / "bin");
  const ProgramResult result = Run({tools.Path("ptxas"), "--curve", "0:0,0.25:500M", "x.ptx"});
  CHECK(result.exit_code == 0);
  CHECK(static_cast<double>(result.usage.ru_maxrss) / 1024 == Approx(502).margin(5));
  // 0.25 s where a core is free; a busy machine stretches it.
  CHECK(result.wall_seconds < 2);
}

TEST_CASE("a stopped stand-in makes no progress") {
  TempDir dir;
  const StandinTools tools(dir / "bin");
  ProgramOptions options;
  options.argv = {tools.Path("cc1plus"), "--curve", "0:0,2:200M", "x.cc"};
  Program program(options);
  REQUIRE(WaitUntil([&] { return AnonymousMemory(program.pid()).value_or(0) > 20 * kMiB; }));
  program.Signal(SIGSTOP);
  REQUIRE(WaitUntil([&] { return ProcessState(program.pid()) == 'T'; }));
  const double stopped = MiB(AnonymousMemory(program.pid()).value_or(0));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto resumed = std::chrono::steady_clock::now();
  program.Signal(SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double now = MiB(AnonymousMemory(program.pid()).value_or(0));
  const double age =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - resumed).count();
  CHECK(now <= stopped + 100 * age + 10);
  const ProgramResult result = program.Wait();
  CHECK(result.exit_code == 0);
  CHECK(result.wall_seconds > 2.8);
}

TEST_CASE("a CPU share burns CPU instead of sleeping") {
  TempDir dir;
  const StandinTools tools(dir / "bin");
  const ProgramResult result =
      Run({tools.Path("cicc"), "--cpu", "0.5", "--curve", "0:1M,1:1M", "x"});
  CHECK(result.exit_code == 0);
  CHECK(CpuSeconds(result.usage) == Approx(0.5).margin(0.1));
  CHECK(result.wall_seconds >= 0.9);
}

TEST_CASE("output depends on the input alone") {
  TempDir dir;
  const StandinTools tools(dir / "bin");
  WriteFile(dir / "a.cc", "int a;\n// curve cc1plus: 0:1M,0.05:2M\n");
  WriteFile(dir / "b.cc", "int b;\n");
  const auto compile = [&](const std::string& in, const std::string& out) {
    const ProgramResult result = Run({tools.Path("cc1plus"), "-quiet", "-O2", "-I", "inc", "-c",
                                      (dir / in).string(), "-o", (dir / out).string()});
    REQUIRE(result.exit_code == 0);
    return ReadFile(dir / out);
  };
  const std::string first = compile("a.cc", "a.o");
  CHECK(first.size() == 4096);
  CHECK(compile("a.cc", "again.o") == first);
  CHECK(compile("b.cc", "b.o") != first);

  ProgramOptions options;
  options.argv = {tools.Path("cc1plus"), "-o", "-", "-"};
  options.stdin_text = "int c;\n";
  const ProgramResult piped = Run(options);
  CHECK(piped.exit_code == 0);
  CHECK(piped.out.size() == 4096);
  options.stdin_text = "int d;\n";
  CHECK(Run(options).out != piped.out);
}

TEST_CASE("exit codes, signals and --once") {
  TempDir dir;
  const StandinTools tools(dir / "bin");
  const std::string once = (dir / "once").string();
  CHECK(Run({tools.Path("cicc"), "--exit", "3", "x"}).exit_code == 3);
  CHECK(Run({tools.Path("cicc"), "--signal", "SEGV", "x"}).signal == SIGSEGV);
  CHECK(Run({tools.Path("cicc"), "--signal", "SIGKILL", "--once", once, "x"}).signal == SIGKILL);
  CHECK(Run({tools.Path("cicc"), "--signal", "KILL", "--once", once, "x"}).exit_code == 0);
  const ProgramResult unknown = Run({tools.Path("cicc"), "--curves", "0:0", "x"});
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err.find("--curves") != std::string::npos);
  CHECK(Run({tools.Path("cicc"), "--curve", "2:0,1:0", "x"}).exit_code == 2);
}

TEST_CASE("a temporary file goes at the end and stays after kill -9") {
  TempDir dir;
  const StandinTools tools(dir / "bin");
  fs::create_directories(dir / "tmp");
  const auto files = [&] {
    return std::distance(fs::directory_iterator(dir / "tmp"), fs::directory_iterator());
  };
  ProgramOptions options;
  options.argv = {tools.Path("cicc"),     "--temp-bytes", "1M",        "--temp-dir",
                  (dir / "tmp").string(), "--curve",      "0:0,0.2:0", "x"};
  CHECK(Run(options).exit_code == 0);
  CHECK(files() == 0);
  options.argv[6] = "0:0,30:0";
  Program killed(options);
  REQUIRE(WaitUntil([&] { return files() == 1; }));
  killed.Signal(SIGKILL);
  CHECK(killed.Wait().signal == SIGKILL);
  CHECK(files() == 1);
}

TEST_CASE("a driver runs its chains, --threads at once, and reports a killed tool") {
  TempDir dir;
  const StandinTools tools(dir / "bin");
  ProgramOptions options;
  options.argv = {tools.Path("nvcc"), "--log", (dir / "log").string(), "--threads", "2"};
  for (int i = 0; i < 4; ++i) {
    options.argv.insert(options.argv.end(), {"--fork-tool", "cicc:0:0,0.4:10M+ptxas:0:0,0.2:5M"});
  }
  options.argv.insert(options.argv.end(), {"-c", "x.cu", "-o", (dir / "x.o").string()});
  const ProgramResult result = Run(options);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  auto runs = ReadStandinLog(dir / "log");
  CHECK(runs.size() == 9);
  runs.erase(
      std::remove_if(runs.begin(), runs.end(), [](const auto& r) { return r.tool == "nvcc"; }),
      runs.end());
  CHECK(MaxParallel(runs) == 2);
  CHECK(MeanParallel(runs) > 1.2);
  // Intermediate files are gone, the object is there.
  CHECK(fs::exists(dir / "x.o"));
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 3);

  options.argv = {tools.Path("nvcc"), "--fork-tool", "cicc:0:0,20:1M", "x.cu"};
  Program driver(options);
  std::vector<pid_t> children;
  REQUIRE(WaitUntil([&] {
    children = Descendants(driver.pid());
    return children.size() == 1 && ProcessName(children[0]) == "cicc";
  }));
  kill(children[0], SIGKILL);
  const ProgramResult killed = driver.Wait();
  CHECK(killed.exit_code == 128 + SIGKILL);
  CHECK(killed.err.find("'cicc' died due to signal 9") != std::string::npos);
}

TEST_CASE("a static stand-in works the same") {
  TempDir dir;
  const StandinTools tools(dir / "bin", {"cicc"}, true);
  const ProgramResult result = Run({tools.Path("cicc"), "--curve", "0:0,0.1:20M", "x"});
  CHECK(result.exit_code == 0);
  CHECK(result.usage.ru_maxrss / 1024 >= 20);
}

TEST_CASE("ninja and make build the same objects from stand-in sources") {
  TempDir dir;
  const StandinTools tools(dir / "bin");
  StandinBuild build = UnevenBuild(6, kMiB, 20 * kMiB, 0.1, 0.3);
  CHECK(build.edges[0].curve == UnevenBuild(6, kMiB, 20 * kMiB, 0.1, 0.3).edges[0].curve);
  std::map<std::string, std::string> by_ninja;
  if (const auto ninja = FindProgram("ninja")) {
    fs::create_directories(dir / "n");
    WriteNinjaBuild(dir / "n", tools, build);
    ProgramOptions options;
    options.argv = {ninja->string(), "-j3"};
    options.cwd = dir / "n";
    const ProgramResult result = Run(options);
    INFO(result.out << result.err);
    CHECK(result.exit_code == 0);
    CHECK(MaxParallel(ReadStandinLog(dir / "n" / "standin.log")) == 3);
    by_ninja = ReadOutputs(dir / "n", build);
    CHECK(by_ninja.size() == 6);
  }
  if (const auto make = FindProgram("make")) {
    WriteMakeBuild(dir / "m", tools, build);
    ProgramOptions options;
    options.argv = {make->string(), "-j3", "-C", (dir / "m").string()};
    options.env["MAKEFLAGS"] = std::nullopt;
    const ProgramResult result = Run(options);
    INFO(result.out << result.err);
    CHECK(result.exit_code == 0);
    CHECK(ReadOutputs(dir / "m", build).size() == 6);
    if (!by_ninja.empty()) {
      CHECK(ReadOutputs(dir / "m", build) == by_ninja);
    }
  }
}

TEST_CASE("a program that doesn't end is killed with its group after the timeout") {
  const ProgramResult result =
      Run({"/bin/sh", "-c", "sleep 100 & echo $!; sleep 100"}, std::chrono::milliseconds(500));
  CHECK(result.timed_out);
  CHECK(result.signal == SIGKILL);
  const pid_t child = std::stoi(result.out);
  CHECK(WaitUntil([&] { return ProcessState(child).value_or('Z') == 'Z'; }));
}

TEST_CASE("environment, folder and standard input of a program") {
  TempDir dir;
  ProgramOptions options;
  options.argv = {"/bin/sh", "-c", "pwd; echo $A$HOME; cat"};
  options.env = {{"A", "a"}, {"HOME", std::nullopt}};
  options.cwd = dir.path();
  options.stdin_text = "text\n";
  CHECK(Run(options).out == fs::canonical(dir.path()).string() + "\na\ntext\n");
  options.argv = {"/usr/bin/env"};
  options.clear_env = true;
  CHECK(Run(options).out == "A=a\n");
}

TEST_CASE("a memory cgroup kills what exceeds it, counts that, and goes away") {
  if (const auto why = MemoryCgroup::WhyUnavailable()) {
    std::cout << "SKIPPED: " << *why << "\n";
    return;
  }
  TempDir dir;
  const StandinTools tools(dir / "bin");
  fs::path path;
  pid_t left_over = 0;
  {
    const MemoryCgroup grandparent(100 * kMiB);
    const MemoryCgroup cgroup(grandparent, "child");
    path = grandparent.path();
    ProgramOptions options;
    options.argv = {tools.Path("cicc"), "--curve", "0:0,0.5:60M", "x"};
    options.cgroup = &cgroup;
    CHECK(Run(options).exit_code == 0);
    CHECK(grandparent.OomKills() == 0);
    options.argv[2] = "0:0,0.5:200M";
    CHECK(Run(options).signal == SIGKILL);
    CHECK(grandparent.OomKills() == 1);
    if (const auto peak = grandparent.MaxUsage()) CHECK(MiB(*peak) == Approx(100).margin(5));

    options.argv = {"/bin/sh", "-c",
                    "exec </dev/null; " + tools.Path("cicc") + " --curve 0:5M,100:5M x & echo $!"};
    const ProgramResult parent = Run(options);
    left_over = std::stoi(parent.out);
    REQUIRE(WaitUntil([&] { return cgroup.Usage() > 5 * kMiB; }));
    CHECK(grandparent.Pids() == std::vector<pid_t>{left_over});
    kill(left_over, SIGSTOP);
  }
  CHECK_FALSE(fs::exists(path));
  CHECK(ProcessState(left_over).value_or('Z') == 'Z');
}

}  // namespace
}  // namespace headroom::testing
