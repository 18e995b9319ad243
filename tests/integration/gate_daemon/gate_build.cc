#include "tests/integration/gate_daemon/gate_build.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "server/sys/lock_file.h"
#include "server/sys/process.h"
#include "server/sys/process_table.h"
#include "server/sys/roots.h"

namespace headroom::testing {
namespace {

const std::string kHeadroom = HEADROOM_BIN_DIR "/headroom";

std::vector<std::string> ToolNames() {
  return {"nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "c++", "ld", "lto1", "rustc"};
}

}  // namespace

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

GateBuild::GateBuild(StandinBuild build, bool static_tools)
    : tools_(dir_ / "tools", ToolNames(), static_tools), build_(std::move(build)) {
  Write(build_);
}

void GateBuild::Write(const StandinBuild& build) const {
  WriteNinjaBuild(dir(), tools_, build);
  WriteMakeBuild(dir(), tools_, build);
  // Under a suffix that compilers know: what is compiled is to be named.
  for (const char* name : {"build.ninja", "Makefile"}) {
    std::string text = ReadFile(dir() / name);
    for (size_t at = text.find(".src"); at != std::string::npos; at = text.find(".src", at)) {
      text.replace(at, 4, ".cu");
    }
    WriteFile(dir() / name, text);
  }
  for (const StandinEdge& edge : build.edges) {
    fs::rename(dir() / (edge.name + ".src"), dir() / (edge.name + ".cu"));
  }
}

GateBuild::~GateBuild() {
  // A test that failed may have left it.
  if (const std::optional<pid_t> daemon = Daemon()) kill(*daemon, SIGTERM);
  DaemonEnds();
}

ProgramOptions GateBuild::Plain(const Words& command, const MemoryCgroup* cgroup) const {
  ProgramOptions program;
  program.argv = command;
  program.cwd = dir();
  program.cgroup = cgroup;
  for (const char* name :
       {"MAKEFLAGS", "MFLAGS", "HEADROOM_LANE", "LD_PRELOAD", "HEADROOM_GATE", "ASAN_OPTIONS"}) {
    program.env[name] = std::nullopt;
  }
  program.env["HEADROOM_RUNTIME_DIR"] = runtime().string();
  return program;
}

ProgramOptions GateBuild::Run(const Words& options, const Words& command,
                              const MemoryCgroup* cgroup) const {
  ProgramOptions program = Plain({kHeadroom, "run"}, cgroup);
  program.argv.insert(program.argv.end(), options.begin(), options.end());
  program.argv.emplace_back("--");
  program.argv.insert(program.argv.end(), command.begin(), command.end());
  return program;
}

void GateBuild::Clean() const {
  for (const StandinEdge& edge : build_.edges) fs::remove(dir() / (edge.name + ".o"));
  for (const char* name : {"standin.log", ".ninja_log", ".ninja_deps"}) fs::remove(dir() / name);
}

std::map<std::string, std::string> GateBuild::Expected() const {
  Clean();
  // Of the same content, without its memory and its time.
  StandinBuild light = build_;
  light.common_options += " --scale 0 --time-factor 0";
  Write(light);
  const ProgramResult plain = testing::Run(Plain({"ninja"}));
  if (plain.exit_code != 0) throw std::runtime_error("the plain build fails: " + plain.out);
  auto outputs = Outputs();
  Write(build_);
  Clean();
  return outputs;
}

std::string GateBuild::DaemonLog() const {
  std::error_code error;
  if (!fs::exists(runtime() / "headroomd.log", error)) return "";
  return ReadFile(runtime() / "headroomd.log");
}

std::optional<pid_t> GateBuild::Daemon() const {
  const auto holder = sys::LockFile::Holder((runtime() / "lock").string());
  if (!holder) return std::nullopt;
  return *holder;
}

bool GateBuild::DaemonEnds() const {
  return WaitUntil([&] { return !Daemon(); }, std::chrono::seconds(20));
}

std::optional<std::string> OldNinja() {
  const std::optional<fs::path> ninja = FindProgram("ninja");
  if (!ninja) return std::nullopt;
  const ProgramResult version = Run({ninja->string(), "--version"});
  if (!version.out.starts_with("1.") || version.out.starts_with("1.13")) return std::nullopt;
  return ninja->string();
}

StandinBuild CudaBuild(int count, std::uint64_t mean_bytes, double seconds) {
  StandinBuild build;
  for (int i = 0; i < count; ++i) {
    // From half to one and a half of the mean, so spread that neighbours differ.
    const double share = 0.5 + static_cast<double>(i * 7 % count) / (count - 1);
    const auto peak = static_cast<unsigned long long>(share * static_cast<double>(mean_bytes));
    const double length = seconds * (0.6 + 0.8 * static_cast<double>(i * 3 % count) / count);
    char cicc[160];
    snprintf(cicc, sizeof cicc, "cicc:0:4M;%.2f:%llu;%.2f:%llu;%.2f:%llu", 0.5 * length, peak / 3,
             0.8 * length, peak, length, peak);
    char ptxas[96];
    snprintf(ptxas, sizeof ptxas, "ptxas:0:2M;%.2f:%llu", 0.4 * length, peak / 4);
    char front[96];
    snprintf(front, sizeof front, "cc1plus:0:2M;%.2f:%llu", 0.2 * length, peak / 8);
    StandinEdge edge;
    edge.name = "kernel" + std::to_string(i);
    edge.tool = "nvcc";
    std::string chain = std::string(front) + "+" + cicc + "+" + ptxas;
    std::replace(chain.begin(), chain.end(), ';', ',');
    edge.chains = {chain};
    // Predictions go by CPU time: what only sleeps looks like something that is over at once.
    edge.options = {"--cpu", "0.2"};
    build.edges.push_back(edge);
  }
  return build;
}

std::vector<pid_t> LeftOver(const fs::path& runtime) {
  std::vector<pid_t> left;
  sys::ProcessLister lister{sys::Roots()};
  const auto pids = lister.List();
  if (!pids.ok()) return left;
  for (const pid_t pid : **pids) {
    const auto lane = sys::ReadEnvironVariable(sys::Roots(), pid, "HEADROOM_LANE");
    if (lane && lane->starts_with(runtime.string())) left.push_back(pid);
  }
  return left;
}

}  // namespace headroom::testing
