// headroom-enact: a scenario acted out with real processes, beside what the simulator says of it.
//
//   headroom-enact --curves FILE --cores N --mem GB [--archs A] [--threads T] [--commands
//   FIRST:COUNT]
//                  [--memory-scale 32] [--time-factor 1] POLICY...
// POLICY: headroom (again: a later build of the same daemon, with what the first has taught), or
// fixed:N. A line for each, with both outcomes. Exit code: 0 all agree, 1 some differ, 2 it can't
// be done.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/replay/enact.h"

namespace headroom::replay {
namespace {

constexpr double kShare = 0.15;  // of the simulator's time: what is wanted
constexpr std::chrono::seconds kTimeout{3600};

int Main(int argc, char** argv) {
  CLI::App app{"Acts a simulated scenario out with real processes"};
  std::string curves;
  std::vector<std::string> policies;
  double mem_gb = 0;
  double time_factor = 1;
  int memory_scale = 32;
  std::string part;
  sim::Scenario scenario;
  app.add_option("--curves", curves, "JSON lines, one command each")->required();
  app.add_option("--cores", scenario.cores, "that the daemon is told")
      ->required()
      ->check(CLI::PositiveNumber);
  app.add_option("--mem", mem_gb, "GB (10^9 bytes)")->required()->check(CLI::PositiveNumber);
  app.add_option("--archs", scenario.archs, "0: as recorded")->check(CLI::Range(0, 64));
  app.add_option("--threads", scenario.threads, "nvcc --threads")->check(CLI::Range(1, 64));
  app.add_option("--commands", part, "FIRST:COUNT of the curves alone");
  app.add_option("--memory-scale", memory_scale)->check(CLI::Range(1, 1024));
  app.add_option("--time-factor", time_factor, "of all seconds in the curves")
      ->check(CLI::Range(0.01, 10.0));
  app.add_option("POLICY", policies, "headroom or fixed:N, in the order in which they are run")
      ->required();
  CLI11_PARSE(app, argc, argv);

  std::vector<sim::Policy> parsed;
  for (const std::string& text : policies) {
    const auto policy = sim::ParsePolicy(text);
    if (!policy ||
        (policy->kind != sim::PolicyKind::kHeadroom && policy->kind != sim::PolicyKind::kFixed)) {
      fprintf(stderr, "headroom-enact: '%s' can't be acted; headroom or fixed:N\n", text.c_str());
      return 2;
    }
    parsed.push_back(*policy);
  }
  if (const auto why = Enactment::WhyUnavailable()) {
    fprintf(stderr, "headroom-enact: %s\n", why->c_str());
    return 2;
  }
  try {
    scenario.commands = sim::ReadCurves(curves);
    if (!part.empty()) {
      size_t first = 0;
      size_t count = 0;
      if (sscanf(part.c_str(), "%zu:%zu", &first, &count) != 2 || count == 0 ||
          first + count > scenario.commands.size()) {
        fprintf(stderr,
                "headroom-enact: --commands %s: FIRST:COUNT within the %zu commands is wanted\n",
                part.c_str(), scenario.commands.size());
        return 2;
      }
      const auto begin = scenario.commands.begin() + static_cast<ptrdiff_t>(first);
      scenario.commands = {begin, begin + static_cast<ptrdiff_t>(count)};
    }
    scenario.mem_bytes = mem_gb * 1e9;
    StretchTime(scenario.commands, time_factor);
    Enactment enactment(scenario, memory_scale);
    bool all = true;
    bool first = true;
    for (size_t i = 0; i < parsed.size(); ++i) {
      Outcome acted;
      Outcome simulated;
      std::string name = policies[i];
      if (parsed[i].kind == sim::PolicyKind::kFixed) {
        simulated = enactment.SimulatedFixed(parsed[i].n);
        acted = enactment.Fixed(parsed[i].n, kTimeout);
      } else {
        simulated = enactment.SimulatedUnderHeadroom(!first);
        acted = enactment.UnderHeadroom(kTimeout);
        if (!first) name += ", second build";
        first = false;
      }
      const bool agree = Agree(acted, simulated, kShare);
      all = all && agree;
      printf("%s | acted %s | simulated %s | %.3f | %s\n", name.c_str(), InWords(acted).c_str(),
             InWords(simulated).c_str(), acted.seconds / simulated.seconds,
             agree ? "agree" : "DIFFER");
      fflush(stdout);
      if (acted.failed && !acted.killed) fprintf(stderr, "%s\n", acted.output.c_str());
    }
    return all ? 0 : 1;
  } catch (const std::exception& error) {
    fprintf(stderr, "headroom-enact: %s\n", error.what());
    return 2;
  }
}

}  // namespace
}  // namespace headroom::replay

int main(int argc, char** argv) try {
  return headroom::replay::Main(argc, argv);
} catch (const std::exception& error) {
  fprintf(stderr, "headroom-enact: %s\n", error.what());
  return 2;
}
