#include "tests/replay/enact.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace headroom::replay {
namespace {

namespace fs = std::filesystem;
using testing::MemoryCgroup;
using testing::Program;
using testing::ProgramOptions;
using testing::ProgramResult;
using testing::ReadFile;
using testing::WriteFile;

// How often is looked whether the OOM killer has struck: fine against the seconds that are
// compared.
constexpr std::chrono::milliseconds kLookEvery{20};

const std::string kBinDir = HEADROOM_BIN_DIR;

// Real archs, so that flags differ from arch to arch as they do; a scenario of more goes on
// counting.
constexpr int kFirstArch = 80;

std::string Number(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.4f", value);
  return text;
}

std::string Ninja() {
  const auto ninja = testing::VenvTool("ninja");
  if (!ninja)
    throw std::runtime_error("build/venv/bin/ninja is missing; scripts/setup installs it");
  return ninja->string();
}

// What a count in `headroom run`'s summary says: "..., 2 evictions, ..."; 0 where it isn't there.
int CountBefore(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  if (at == std::string::npos || at < 2) return 0;
  const size_t begin = text.rfind(' ', at - 2);
  return std::atoi(text.c_str() + begin + 1);
}

void Keep(const std::vector<sim::Knot>& knots, size_t first, size_t last, double tolerance,
          std::set<size_t>& kept) {
  double most = 0;
  size_t where = first;
  for (size_t i = first + 1; i < last; ++i) {
    const sim::Knot& a = knots[first];
    const sim::Knot& b = knots[last];
    const double line = a.bytes + (b.bytes - a.bytes) * (knots[i].cpu - a.cpu) / (b.cpu - a.cpu);
    const double off = std::abs(knots[i].bytes - line);
    if (off > most) {
      most = off;
      where = i;
    }
  }
  if (most <= tolerance) return;
  kept.insert(where);
  Keep(knots, first, where, tolerance, kept);
  Keep(knots, where, last, tolerance, kept);
}

}  // namespace

void StretchTime(std::vector<sim::Command>& commands, double factor) {
  for (sim::Command& command : commands) {
    for (sim::Shape& shape : command.shapes) {
      shape.cpu_s *= factor;
      for (sim::Knot& knot : shape.knots) knot.cpu *= factor;
    }
    for (auto* part : {&command.front, &command.back}) {
      for (sim::Stage& stage : *part) stage.gap_s *= factor;
    }
    for (auto& chain : command.chains) {
      for (sim::Stage& stage : chain) stage.gap_s *= factor;
    }
    command.end_gap_s *= factor;
  }
}

std::vector<sim::Knot> Simplified(const std::vector<sim::Knot>& knots, double peak) {
  const auto top = std::max_element(knots.begin(), knots.end(),
                                    [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  const size_t summit = static_cast<size_t>(top - knots.begin());
  // Most curves are told by far fewer; one that is not gets a coarser line.
  for (double tolerance = 0.01 * peak;; tolerance *= 1.5) {
    std::set<size_t> kept = {0, summit, knots.size() - 1};
    if (summit > 0) Keep(knots, 0, summit, tolerance, kept);
    if (summit + 1 < knots.size()) Keep(knots, summit, knots.size() - 1, tolerance, kept);
    if (kept.size() > kMostKnots) continue;
    std::vector<sim::Knot> result;
    result.reserve(kept.size());
    for (const size_t i : kept) result.push_back(knots[i]);
    return result;
  }
}

std::optional<std::string> Enactment::WhyUnavailable() {
  return MemoryCgroup::WhyUnavailable();
}

Enactment::Enactment(sim::Scenario scenario, int memory_scale)
    : scenario_(std::move(scenario)), scale_(memory_scale) {
  if (scenario_.builds != 1 || scenario_.tokens_only || !scenario_.load.empty() ||
      scenario_.seed != 0) {
    throw std::runtime_error(
        "only one build at the gate, without other load and noise, can be acted");
  }
  // The one that is installed.
  scenario_.ninja = sim::ClientKind::kNinja113;
  Write();
}

Enactment::~Enactment() = default;

std::string Enactment::ObjectOf(size_t command) const {
  return "obj/" + std::to_string(command) + ".o";
}

void Enactment::Write() const {
  const fs::path tools = dir_ / "tools";
  fs::create_directories(tools);
  fs::create_directories(dir_ / "build/obj");
  for (const char* name : {"nvcc", "c++", "cicc", "ptxas", "cudafe++", "cc1plus", "fatbinary",
                           "nvlink", "cc1", "ld", "as"}) {
    // A copy where a link can't be: another file system.
    std::error_code error;
    fs::create_hard_link(HEADROOM_ACTOR, tools / name, error);
    if (error) fs::copy_file(HEADROOM_ACTOR, tools / name);
  }

  std::ostringstream ninja;
  std::set<std::string> rules;
  std::ostringstream edges;
  std::string all = "build all: phony";
  for (size_t i = 0; i < scenario_.commands.size(); ++i) {
    const sim::Command& command = scenario_.commands[i];
    const int chains = command.Chains(scenario_.archs);
    const std::string rule = command.driver == "nvcc" ? "nvcc" + std::to_string(chains) : "cxx";
    if (rules.insert(rule).second) {
      ninja << "rule " << rule << "\n  command = " << (tools / command.driver).string() << " -c";
      if (command.driver == "nvcc") {
        ninja << " --threads " << scenario_.threads;
        for (int arch = 0; arch < chains; ++arch) {
          ninja << " -gencode arch=compute_" << kFirstArch + arch << ",code=sm_"
                << kFirstArch + arch;
        }
      }
      ninja << " $in -o $out\n";
    }
    edges << "build " << ObjectOf(i) << ": " << rule << ' ' << command.source << '\n';
    all += ' ' + ObjectOf(i);
    WriteFile(dir_ / "build" / command.source, "");

    std::ostringstream plan;
    const auto stage = [&](const sim::Stage& one, int copy) {
      const sim::Shape& shape = command.shapes[static_cast<size_t>(one.shape)];
      // A preprocessor is cc1plus with -E, which the gate lets pass.
      const bool preprocesses = shape.tool == "cpp";
      plan << "stage " << Number(one.gap_s) << ' '
           << (tools / (preprocesses ? "cc1plus" : shape.tool)).string();
      if (preprocesses) plan << " -E";
      plan << " --orig_src_path_name " << command.source;
      if (copy >= 0) plan << " -arch sm_" << kFirstArch + copy;
      // Of its real size, but of holes.
      const std::string input = "obj/" + std::to_string(i) + '-' + std::to_string(one.shape) +
                                (shape.tool == "ptxas" ? ".ptx"
                                 : preprocesses        ? ".cu"
                                                       : ".ii");
      const fs::path file = dir_ / "build" / input;
      WriteFile(file, "");
      fs::resize_file(file, static_cast<uint64_t>(shape.input_bytes));
      plan << ' ' << input << " curve:";
      const std::vector<sim::Knot> knots = Simplified(shape.knots, shape.peak);
      for (size_t k = 0; k < knots.size(); ++k) {
        plan << (k == 0 ? "" : ",") << Number(knots[k].cpu) << ':'
             << std::llround(knots[k].bytes / scale_);
      }
      plan << '\n';
    };
    plan << "threads " << scenario_.threads << "\nfront\n";
    for (const sim::Stage& one : command.front) stage(one, -1);
    for (int copy = 0; copy < chains; ++copy) {
      plan << "chain\n";
      for (const sim::Stage& one : command.Chain(copy)) stage(one, copy);
    }
    plan << "back\n";
    for (const sim::Stage& one : command.back) stage(one, -1);
    plan << "end " << Number(command.end_gap_s) << '\n';
    WriteFile(dir_ / "build" / (ObjectOf(i) + ".plan"), plan.str());
  }
  WriteFile(dir_ / "build/build.ninja", ninja.str() + edges.str() + all + "\ndefault all\n");
}

void Enactment::Clean() const {
  for (size_t i = 0; i < scenario_.commands.size(); ++i) {
    fs::remove(dir_ / "build" / ObjectOf(i));
  }
  for (const char* name : {".ninja_log", ".ninja_deps"}) fs::remove(dir_ / "build" / name);
}

ProgramOptions Enactment::Plain(const std::vector<std::string>& argv,
                                const MemoryCgroup& cgroup) const {
  ProgramOptions options;
  options.argv = argv;
  options.cwd = dir_ / "build";
  options.cgroup = &cgroup;
  for (const char* name :
       {"MAKEFLAGS", "MFLAGS", "HEADROOM_LANE", "LD_PRELOAD", "HEADROOM_GATE", "MAX_JOBS"}) {
    options.env[name] = std::nullopt;
  }
  options.env["HEADROOM_RUNTIME_DIR"] = (dir_ / "run").string();
  return options;
}

Outcome Enactment::Act(const ProgramOptions& options, const MemoryCgroup& cgroup,
                       bool until_first_kill, std::chrono::seconds timeout) const {
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::steady_clock::now() - begin; };
  Outcome outcome;
  Program program(options);
  while (program.Running() && passed() < timeout) {
    outcome.oom_kills = static_cast<int>(cgroup.OomKills());
    if (outcome.oom_kills > 0 && until_first_kill) {
      outcome.seconds = std::chrono::duration<double>(passed()).count();
      cgroup.KillAll();
      break;
    }
    std::this_thread::sleep_for(kLookEvery);
  }
  const ProgramResult result = program.Wait(std::chrono::seconds(1));
  outcome.oom_kills = static_cast<int>(cgroup.OomKills());
  outcome.failed = result.exit_code != 0;
  outcome.killed = outcome.failed && outcome.oom_kills > 0;
  if (outcome.seconds == 0) outcome.seconds = result.wall_seconds;
  outcome.peak_bytes =
      static_cast<double>(cgroup.MaxUsage().value_or(0)) * static_cast<double>(scale_);
  const size_t summary = result.err.rfind("headroom: wall");
  if (summary != std::string::npos) {
    const std::string line = result.err.substr(summary, result.err.find('\n', summary) - summary);
    outcome.evictions = CountBefore(line, "eviction");
    outcome.freezes = CountBefore(line, "freeze");
  }
  constexpr size_t kShown = 2000;
  const std::string said = result.out + result.err;
  outcome.output = said.substr(said.size() - std::min(said.size(), kShown));
  if (result.timed_out) outcome.output += "\n(did not end in time)";
  cgroup.KillAll();
  return outcome;
}

Outcome Enactment::UnderHeadroom(std::chrono::seconds timeout) {
  Clean();
  if (!daemon_) {
    ProgramOptions options;
    options.argv = {kBinDir + "/headroomd",
                    "--config",
                    "/dev/null",
                    "--runtime-dir",
                    (dir_ / "run").string(),
                    "--state-dir",
                    (dir_ / "state").string(),
                    "--test-cores",
                    std::to_string(static_cast<int>(scenario_.cores))};
    if (scale_ > 1) {
      options.argv.emplace_back("--test-memory-scale");
      options.argv.push_back(std::to_string(scale_));
    }
    daemon_ = std::make_unique<Program>(options);
    const fs::path socket = dir_ / "run/control.sock";
    if (!testing::WaitUntil([&] { return fs::exists(socket); })) {
      throw std::runtime_error("headroomd did not come up: " + daemon_->Err());
    }
  }
  const MemoryCgroup cgroup(static_cast<uint64_t>(scenario_.mem_bytes / scale_));
  return Act(Plain({kBinDir + "/headroom", "run", "--", Ninja()}, cgroup), cgroup, false, timeout);
}

Outcome Enactment::Fixed(int jobs, std::chrono::seconds timeout) {
  Clean();
  const MemoryCgroup cgroup(static_cast<uint64_t>(scenario_.mem_bytes / scale_));
  return Act(Plain({Ninja(), "-j" + std::to_string(jobs)}, cgroup), cgroup, true, timeout);
}

namespace {

Outcome FromSimulator(const sim::RunResult& run) {
  Outcome outcome;
  outcome.failed = run.failed;
  outcome.killed = run.failed && run.oom_kills > 0;
  outcome.seconds = outcome.killed ? run.first_oom_s : run.seconds;
  outcome.oom_kills = run.oom_kills;
  outcome.evictions = run.evictions;
  outcome.freezes = run.freezes;
  outcome.peak_bytes = run.peak_bytes;
  return outcome;
}

}  // namespace

Outcome Enactment::SimulatedUnderHeadroom(bool history) const {
  sim::Scenario scenario = scenario_;
  scenario.history = history;
  return FromSimulator(sim::Simulate(scenario, {sim::PolicyKind::kHeadroom, 0, 0}).run);
}

Outcome Enactment::SimulatedFixed(int jobs) const {
  sim::Scenario scenario = scenario_;
  scenario.cores = static_cast<double>(jobs * std::max(1, scenario.threads) + 1);
  return FromSimulator(sim::Simulate(scenario, {sim::PolicyKind::kFixed, jobs, 0}).run);
}

bool Agree(const Outcome& acted, const Outcome& simulated, double share) {
  return acted.failed == simulated.failed && acted.killed == simulated.killed &&
         (acted.oom_kills > 0) == (simulated.oom_kills > 0) &&
         std::abs(acted.seconds - simulated.seconds) <= share * simulated.seconds;
}

std::string InWords(const Outcome& outcome) {
  char text[160];
  if (outcome.killed) {
    snprintf(text, sizeof text, "killed after %.1f s", outcome.seconds);
  } else {
    snprintf(text, sizeof text, "%s%.1f s, %d OOM kills, %d evictions, %d freezes, peak %.4g GB",
             outcome.failed ? "failed after " : "", outcome.seconds, outcome.oom_kills,
             outcome.evictions, outcome.freezes, outcome.peak_bytes / 1e9);
  }
  return text;
}

}  // namespace headroom::replay
