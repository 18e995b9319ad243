// Builds in memory cgroups that are far too small for them: no compiler is lost to the kernel, or
// every one that is comes back.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <regex>

#include "tests/integration/gate_daemon/gate_build.h"
#include "tests/support/sanitizers.h"

namespace headroom::testing {
namespace {

using std::chrono::seconds;

bool Skip() {
  if (const auto why = MemoryCgroup::WhyUnavailable()) {
    std::printf("SKIPPED: %s\n", why->c_str());
    return true;
  }
  if (!OldNinja()) {
    std::puts("SKIPPED: no ninja below 1.13 in PATH");
    return true;
  }
  return false;
}

// Processes that took memory: what the bar on parallelism counts.
double MeanTools(const std::vector<StandinRun>& log) {
  std::vector<StandinRun> tools;
  for (const StandinRun& run : log) {
    if (run.tool != "nvcc") tools.push_back(run);
  }
  return MeanParallel(tools);
}

TEST_CASE("A build far too wide for its memory passes, five times of five") {
  if (Skip()) return;
  // 4 times the mean of the commands' largest processes, as examples/cuda is judged.
  constexpr std::uint64_t kMean = 160 * kMiB;
  // A cicc that grows as fast as real ones do, 0.3 GB a second: what is at its full size within a
  // tenth of a second can be told from nothing, and is evicted. And it works for it, as far as two
  // cores carry several: predictions go by CPU time.
  StandinBuild cuda = CudaBuild(32, kMean, 1.0);
  for (StandinEdge& edge : cuda.edges) edge.options = {"--cpu", "0.4"};
  const GateBuild build(cuda);
  const auto expected = build.Expected();
  REQUIRE(expected.size() == 32);
  for (int i = 0; i < 5; ++i) {
    build.Clean();
    const MemoryCgroup cgroup(4 * kMean);
    const ProgramResult result =
        Run(build.Run({"--jobs", "16"}, {*OldNinja(), "-j", "64"}, &cgroup), seconds(120));
    INFO(result.err << build.DaemonLog());
    CHECK(result.exit_code == 0);
    CHECK(cgroup.OomKills() == 0);
    CHECK(build.Outputs() == expected);
    const double tools = MeanTools(build.Log());
    std::printf("run %d: %.1f s, %.2f tool processes on average\n%s\n", i + 1, result.wall_seconds,
                tools, result.err.substr(0, 200).c_str());
    CHECK(tools >= 3);
    CHECK(build.DaemonEnds());
  }
}

TEST_CASE("Many compilers of which three fit: plain ninja loses some, Headroom none: K1") {
  if (Skip()) return;
  StandinBuild many;
  for (int i = 0; i < 24; ++i) {
    StandinEdge edge;
    edge.name = "kernel" + std::to_string(i);
    edge.tool = "cicc";
    edge.curve = "0:1M,0.4:60M";
    edge.options = {"--cpu", "0.2"};
    many.edges.push_back(edge);
  }
  const GateBuild build(many);
  {
    const MemoryCgroup cgroup(200 * kMiB);
    const ProgramResult plain =
        Run(build.Plain({*OldNinja(), "-j", "16", "-k", "0"}, &cgroup), seconds(120));
    CHECK(plain.exit_code != 0);
    CHECK(cgroup.OomKills() > 0);
  }
  build.Clean();
  const MemoryCgroup cgroup(200 * kMiB);
  const ProgramResult result =
      Run(build.Run({"--jobs", "16"}, {*OldNinja(), "-j", "16"}, &cgroup), seconds(120));
  INFO(result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(cgroup.OomKills() == 0);
  CHECK(build.Outputs().size() == 24);
  // Under a sanitizer headroom and headroomd, which are in this cgroup as well, take a third one's
  // memory.
  if (!headroom::testing::kSanitized) CHECK(MaxParallel(build.Log()) >= 3);
  std::printf("%.1f s, %.2f on average\n", result.wall_seconds, MeanParallel(build.Log()));
}

// `count` compilers that are at their full size at once: nothing sees them come.
StandinBuild Sudden(int count, std::uint64_t bytes, const std::string& length) {
  StandinBuild build;
  for (int i = 0; i < count; ++i) {
    StandinEdge edge;
    edge.name = "unit" + std::to_string(i);
    edge.tool = "cc1plus";
    const std::string size = std::to_string(bytes);
    edge.curve = "0:1M,0.2:1M,0.21:" + size + "," + length + ":" + size;
    build.edges.push_back(edge);
  }
  return build;
}

TEST_CASE("With every prediction spoiled the kernel kills, and all of it is survived") {
  if (Skip()) return;
  const GateBuild build(Sudden(16, 30 * kMiB, "0.6"));
  const auto expected = build.Expected();
  REQUIRE(expected.size() == 16);
  build.Clean();
  const MemoryCgroup cgroup(96 * kMiB);
  // A daemon that looks but rarely: its brake, which needs no prediction, would be in time.
  WriteFile(build.dir() / "headroom.toml", "[sampling]\nfast_min = 1000\nfast_max = 1000\n");
  Program daemon(build.Plain({HEADROOM_BIN_DIR "/headroomd", "--private", "--config",
                              (build.dir() / "headroom.toml").string()}));
  REQUIRE(WaitUntil([&] { return fs::exists(build.runtime() / "control.sock"); }));
  const ProgramResult result = Run(
      build.Run({"--jobs", "16", "--test-spoiled-peak", "1M"}, {*OldNinja(), "-j", "64"}, &cgroup),
      seconds(120));
  INFO(result.err << daemon.Err());
  CHECK(result.exit_code == 0);
  CHECK(cgroup.OomKills() > 0);
  CHECK(build.Outputs() == expected);
  // Each has its name and figures.
  const std::regex kill("OOM kill: cc1plus for unit[0-9]+.cu at [0-9.]+ MiB, limit 96(.0)? MiB");
  CHECK(std::regex_search(result.err, kill));
  CHECK(Contains(result.err, "run again: cc1plus for unit"));
  std::printf("%llu kernel OOM kills survived\n",
              static_cast<unsigned long long>(cgroup.OomKills()));
}

TEST_CASE("Kills in somebody else's cgroup are not the build's") {
  if (Skip()) return;
  StandinBuild small;
  for (int i = 0; i < 4; ++i) {
    StandinEdge edge;
    edge.name = "unit" + std::to_string(i);
    edge.curve = "0:1M,2.5:4M";
    small.edges.push_back(edge);
  }
  const GateBuild build(small);
  const MemoryCgroup theirs(24 * kMiB);
  Program run(build.Run({"--jobs", "4"}, {*OldNinja(), "-j", "4"}));
  REQUIRE(WaitUntil([&] { return !build.Log().empty(); }));
  Run(build.Plain({(build.dir() / "tools" / "cicc").string(), "--curve", "0:0,0.2:60M", "a.ii"},
                  &theirs));
  CHECK(theirs.OomKills() > 0);
  const ProgramResult result = run.Wait();
  INFO(result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(Contains(result.err, " 0 OOM kills"));
  CHECK_FALSE(Contains(result.err, "OOM kill: "));
}

TEST_CASE("A tool that needs more than its domain has fails the build with one clear line") {
  if (Skip()) return;
  StandinBuild one = Sudden(3, 4 * kMiB, "0.3");
  one.edges[1].curve = "0:1M,0.5:400M,1:400M";
  const GateBuild build(one);
  const MemoryCgroup cgroup(150 * kMiB);
  const ProgramResult result = Run(build.Run({}, {*OldNinja(), "-k", "0"}, &cgroup), seconds(120));
  INFO(result.err << result.out << build.DaemonLog());
  CHECK(result.exit_code != 0);
  // K11: tool, source, need and limit; where the build tool shows the command's own output.
  const std::regex line(
      "headroom: cc1plus unit1.cu: killed by the kernel for lack of memory[^\n]*needs more than "
      "[0-9.]+ MiB, the limit is 150 MiB \\([^\n]+\\)");
  const std::string all = result.out + result.err;
  CHECK(std::regex_search(all, line));
  CHECK(CountOf(all, "killed by the kernel for lack of memory") == 1);
  CHECK(Contains(result.err, "given up: cc1plus for unit1.cu"));
  CHECK(build.Outputs().size() == 2);
}

TEST_CASE("Twenty light compilers, then four heavy linkers: K18") {
  if (Skip()) return;
  StandinBuild mixed;
  for (int i = 0; i < 24; ++i) {
    StandinEdge edge;
    edge.name = (i < 20 ? "light" : "link") + std::to_string(i);
    edge.tool = i < 20 ? "cc1plus" : "ld";
    edge.curve = i < 20 ? "0:2M,0.1:6M" : "0:4M,0.4:90M,0.6:90M";
    edge.options = {"--cpu", "0.3"};
    mixed.edges.push_back(edge);
  }
  const GateBuild build(mixed);
  const MemoryCgroup cgroup(200 * kMiB);  // two linkers fit
  const ProgramResult result =
      Run(build.Run({"--jobs", "8"}, {*OldNinja(), "-j", "32"}, &cgroup), seconds(120));
  INFO(result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(cgroup.OomKills() == 0);
  CHECK(build.Outputs().size() == 24);
}

TEST_CASE("One driver that runs four cicc at once, and makes that ignore tokens: K3, K5") {
  if (Skip()) return;
  StandinBuild fan;
  for (int i = 0; i < 3; ++i) {
    StandinEdge edge;
    edge.name = "wide" + std::to_string(i);
    edge.tool = "nvcc";
    for (int arch = 0; arch < 4; ++arch) edge.chains.push_back("cicc:0:3M,0.3:60M,0.4:60M");
    edge.options = {"--threads", "4", "--cpu", "0.3"};
    fan.edges.push_back(edge);
  }
  const GateBuild build(fan);
  const MemoryCgroup cgroup(260 * kMiB);  // twelve at once would need 720
  const auto make = FindProgram("make");
  REQUIRE(make);
  const ProgramResult result =
      Run(build.Run({"--jobs", "16"}, {make->string(), "-j12"}, &cgroup), seconds(120));
  INFO(result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(cgroup.OomKills() == 0);
  CHECK(build.Outputs().size() == 3);
}

// Of `log`, how many tool processes ran on average between two moments (CLOCK_MONOTONIC, seconds).
double MeanToolsBetween(const std::vector<StandinRun>& log, double from, double to) {
  double busy = 0;
  for (const StandinRun& run : log) {
    if (run.tool == "nvcc") continue;
    busy += std::max(
        0.0, std::min(run.end_seconds.value_or(to), to) - std::max(run.start_seconds, from));
  }
  return busy / (to - from);
}

TEST_CASE(
    "Two builds at once, one short of memory and one of cores: none fails, each gets its share") {
  if (Skip()) return;
  constexpr std::uint64_t kMean = 120 * kMiB;
  StandinBuild cuda = CudaBuild(20, kMean, 1.0);
  for (StandinEdge& edge : cuda.edges) edge.options = {"--cpu", "0.3"};
  StandinBuild cxx;
  for (int i = 0; i < 60; ++i) {
    StandinEdge edge;
    edge.name = "unit" + std::to_string(i);
    edge.curve = "0:2M,0.2:10M,0.5:12M";
    edge.options = {"--cpu", "0.6"};
    cxx.edges.push_back(edge);
  }
  const GateBuild hungry(cuda);
  const GateBuild busy(cxx);
  const auto hungry_expected = hungry.Expected();
  const auto busy_expected = busy.Expected();
  REQUIRE(hungry_expected.size() == 20);
  REQUIRE(busy_expected.size() == 60);

  const MemoryCgroup cgroup(4 * kMean);
  Program first(hungry.Run({"--jobs", "8"}, {*OldNinja(), "-j", "32"}, &cgroup));
  REQUIRE(WaitUntil([&] { return hungry.Daemon().has_value(); }));
  // By the first one's daemon.
  ProgramOptions beside = busy.Run({"--jobs", "8"}, {*OldNinja(), "-j", "32"}, &cgroup);
  beside.env["HEADROOM_RUNTIME_DIR"] = hungry.runtime().string();
  Program second(beside);
  const ProgramResult hungry_result = first.Wait(seconds(120));
  const ProgramResult busy_result = second.Wait(seconds(120));
  INFO(hungry_result.err << busy_result.err << hungry.DaemonLog());
  CHECK(hungry_result.exit_code == 0);
  CHECK(busy_result.exit_code == 0);
  CHECK_FALSE(busy.Daemon());
  CHECK(cgroup.OomKills() == 0);
  CHECK(hungry.Outputs() == hungry_expected);
  CHECK(busy.Outputs() == busy_expected);

  // While both had work: from the later one's first process to the earlier one's last.
  double from = 0;
  double to = 0;
  for (const GateBuild* build : {&hungry, &busy}) {
    double start = 0;
    double end = 0;
    for (const StandinRun& run : build->Log()) {
      start = start == 0 ? run.start_seconds : std::min(start, run.start_seconds);
      end = std::max(end, run.end_seconds.value_or(0));
    }
    from = std::max(from, start);
    to = to == 0 ? end : std::min(to, end);
  }
  REQUIRE(to > from);
  const double hungry_mean = MeanToolsBetween(hungry.Log(), from, to);
  const double busy_mean = MeanToolsBetween(busy.Log(), from, to);
  std::printf("%.1f and %.1f tool processes on average in the %.1f s of both; %.1f and %.1f s\n",
              hungry_mean, busy_mean, to - from, hungry_result.wall_seconds,
              busy_result.wall_seconds);
  // Four of the hungry ones fit at their peaks; the busy ones take next to no memory, and are eight
  // at most.
  CHECK(hungry_mean >= 1.5);
  CHECK(busy_mean >= 2);
}

TEST_CASE("Static compilers are held by signals, and the summary names them") {
  if (Skip()) return;
  StandinBuild many;
  for (int i = 0; i < 8; ++i) {
    StandinEdge edge;
    edge.name = "unit" + std::to_string(i);
    edge.tool = "cc1plus";
    edge.curve = "0:2M,0.5:40M,0.7:40M";
    edge.options = {"--cpu", "0.3"};
    many.edges.push_back(edge);
  }
  const GateBuild build(many, /*static_tools=*/true);
  const ProgramResult result =
      Run(build.Run({"--jobs", "2"}, {*OldNinja(), "-j", "8"}), seconds(120));
  INFO(result.err << build.DaemonLog());
  CHECK(result.exit_code == 0);
  CHECK(build.Outputs().size() == 8);
  CHECK(Contains(result.err, "8 tool processes were out of the gate's reach"));
  CHECK(Contains(result.err, ": cc1plus"));
  // Two of the eight that ninja has started; a scan may find one late.
  std::smatch mean;
  REQUIRE(std::regex_search(result.err, mean, std::regex("([0-9.]+) tool processes mean")));
  CHECK(std::stod(mean[1]) < 3);
}

}  // namespace
}  // namespace headroom::testing
