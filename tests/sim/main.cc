// headroom-sim: what a build would do on a machine, under Headroom's policy or another one.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/sim/random.h"
#include "server/sim/scenario.h"

namespace {

using headroom::sim::ClientKind;
using headroom::sim::Outcome;
using headroom::sim::Policy;
using headroom::sim::RunResult;
using headroom::sim::Scenario;

nlohmann::ordered_json ToJson(const Outcome& outcome) {
  const RunResult& run = outcome.run;
  nlohmann::ordered_json json;
  json["seconds"] = run.seconds;
  json["oom_kills"] = run.oom_kills;
  json["failed"] = run.failed;
  json["evictions"] = run.evictions;
  json["wasted_cpu_s"] = run.wasted_cpu_s;
  json["peak_bytes"] = static_cast<int64_t>(run.peak_bytes);
  if (outcome.n) json["n"] = *outcome.n;
  json["cpu_s"] = run.cpu_s;
  json["first_oom_s"] = run.first_oom_s;
  json["foreign_kills"] = run.foreign_kills;
  json["freezes"] = run.freezes;
  json["hung"] = run.hung;
  if (outcome.steps > 0) {
    json["steps"] = outcome.steps;
    json["broken_invariants"] = outcome.broken;
    nlohmann::ordered_json coverage = nlohmann::ordered_json::array();
    for (const auto& [key, value] : outcome.coverage) {
      coverage.push_back({{"tool", key.first},
                          {"source", key.second},
                          {"processes", value.processes},
                          {"covered", value.covered},
                          {"mean_p95_over_peak", value.ratio_sum / value.processes}});
    }
    json["coverage"] = coverage;
  }
  return json;
}

int Main(int argc, char** argv) {
  CLI::App app{"Simulates builds over recorded memory curves"};
  std::string curves;
  std::string policy_text = "headroom";
  std::string ninja = "head";
  double mem_gb = 0;
  double ptxas_scale = 1;
  bool as_json = false;
  std::optional<uint64_t> random_number;
  bool timeline = false;
  std::optional<double> spoiled_gb;
  Scenario scenario;
  scenario.cores = 0;
  app.add_option("--curves", curves, "JSON lines, one command each")->required();
  auto* random =
      app.add_option("--random", random_number,
                     "the random scenario of that number; machine and build come from it");
  app.add_option("--cores", scenario.cores)->check(CLI::PositiveNumber)->excludes(random);
  auto* mem = app.add_option("--mem", mem_gb, "GB (10^9 bytes)")->check(CLI::PositiveNumber);
  mem->excludes(random);
  app.add_option("--archs", scenario.archs, "0: as recorded")->check(CLI::Range(0, 64));
  app.add_option("--threads", scenario.threads, "nvcc --threads")->check(CLI::Range(1, 64));
  app.add_option("--policy", policy_text,
                 "headroom, fixed:N, best-fixed, flash-attn, threshold:PERCENT, oracle or "
                 "oracle-arrival");
  app.add_flag("--tokens-only", scenario.tokens_only, "no gate");
  app.add_option("--builds", scenario.builds, "at once")->check(CLI::Range(1, 64));
  app.add_flag("--history", scenario.history, "a second build, with what the first has taught");
  app.add_option("--seed", scenario.seed, "of the noise (peaks +-5 %); 0: none");
  app.add_option("--ninja", ninja, "head, 1.13 or make")
      ->check(CLI::IsMember({"head", "1.13", "make"}));
  app.add_option("--ptxas-scale", ptxas_scale, "memory of ptxas; 10 models CUDA 12.x")
      ->check(CLI::PositiveNumber);
  app.add_flag("!--no-hint", scenario.hint, "the client's build.ninja cannot be read");
  app.add_flag("!--no-prediction", scenario.prediction, "as the hidden test option of headroomd");
  app.add_option("--spoil", spoiled_gb, "every predicted peak, in GB");
  app.add_option("--fastest-look", scenario.fastest_look_s,
                 "seconds between samples, at least; the policy may ask for more")
      ->check(CLI::Range(0.001, 1.0));
  app.add_option("--jobs", scenario.jobs, "as headroom run --jobs: may be more than the cores")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--timeline", timeline, "a line a second of virtual time to stderr");
  app.add_flag("--actions", scenario.actions, "in the timeline, each action with its inputs");
  app.add_flag("--json", as_json);
  CLI11_PARSE(app, argc, argv);

  const std::optional<Policy> policy = headroom::sim::ParsePolicy(policy_text);
  if (!policy) {
    std::cerr << "headroom-sim: --policy " << policy_text
              << ": not one of those that --help names\n";
    return 2;
  }
  scenario.mem_bytes = mem_gb * 1e9;
  if (spoiled_gb) scenario.spoiled_peak = *spoiled_gb * 1e9;
  if (timeline) scenario.timeline = &std::cerr;
  scenario.ninja = ninja == "head"   ? ClientKind::kNinjaHead
                   : ninja == "1.13" ? ClientKind::kNinja113
                                     : ClientKind::kMake;
  try {
    scenario.commands = headroom::sim::ReadCurves(curves);
  } catch (const headroom::sim::CurvesError& error) {
    std::cerr << "headroom-sim: " << error.what() << '\n';
    return 2;
  }
  if (random_number) {
    Scenario drawn = headroom::sim::RandomScenario(scenario.commands, *random_number);
    drawn.history = scenario.history;
    drawn.tokens_only = scenario.tokens_only;
    drawn.hint = scenario.hint;
    drawn.prediction = scenario.prediction;
    drawn.spoiled_peak = scenario.spoiled_peak;
    drawn.fastest_look_s = scenario.fastest_look_s;
    drawn.jobs = scenario.jobs;
    drawn.timeline = scenario.timeline;
    drawn.actions = scenario.actions;
    scenario = std::move(drawn);
  } else if (scenario.cores < 1 || mem_gb <= 0) {
    std::cerr << "headroom-sim: --cores and --mem (or --random) are needed\n";
    return 2;
  }
  headroom::sim::ScaleTool(scenario.commands, "ptxas", ptxas_scale);
  const Outcome outcome = headroom::sim::Simulate(scenario, *policy);
  const nlohmann::ordered_json json = ToJson(outcome);
  if (as_json) {
    std::cout << json.dump() << '\n';
  } else {
    for (const auto& [name, value] : json.items()) std::cout << name << ' ' << value << '\n';
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return Main(argc, argv);
}
