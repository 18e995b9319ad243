#include "server/sim/scenario.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <numeric>

#include "server/sim/baselines.h"

namespace headroom::sim {
namespace {

// From the start of a build tool to its first job: ninja reads its build file and the log.
constexpr double kClientParseSeconds = 0.05;

EngineConfig ConfigOf(const Scenario& scenario, ClientKind client, int jobs) {
  EngineConfig config;
  config.cores = scenario.cores;
  config.mem_bytes = scenario.mem_bytes;
  config.load = scenario.load;
  config.seed = scenario.seed;
  config.noise = scenario.seed == 0 ? 0.0 : kNoise;
  for (int i = 0; i < scenario.builds; ++i) {
    BuildSpec spec;
    spec.commands = &scenario.commands;
    spec.archs = scenario.archs;
    spec.threads = scenario.threads;
    spec.client = client;
    spec.jobs = jobs;
    config.builds.push_back(std::move(spec));
  }
  return config;
}

RunResult Fixed(const Scenario& scenario, int jobs, bool stop_on_failure) {
  Ungated ungated;
  EngineConfig config = ConfigOf(scenario, ClientKind::kFixed, jobs);
  config.stop_on_failure = stop_on_failure;
  return Engine(std::move(config), ungated).Run();
}

// A build under Headroom; with history, the second of two.
Outcome UnderHeadroom(const Scenario& scenario, policy::Profile profile) {
  Outcome outcome;
  for (int build = scenario.history ? 0 : 1; build < 2; ++build) {
    HeadroomOptions options;
    options.gated = !scenario.tokens_only;
    options.hint = scenario.hint;
    options.prediction = scenario.prediction;
    options.fastest_look_s = scenario.fastest_look_s;
    options.jobs = scenario.jobs;
    options.timeline = build == 1 ? scenario.timeline : nullptr;
    options.actions = scenario.actions;
    options.profile = std::move(profile);
    if (scenario.spoiled_peak) {
      options.spoiled_peak = policy::Bytes{static_cast<int64_t>(*scenario.spoiled_peak)};
    }
    Headroom headroom(std::move(options));
    EngineConfig config = ConfigOf(scenario, scenario.ninja, 1);
    // No two builds are alike in noise.
    if (build == 0 && scenario.seed != 0) config.seed = Mix(scenario.seed, 1);
    for (BuildSpec& spec : config.builds) spec.parse_s = kClientParseSeconds;
    outcome.run = Engine(std::move(config), headroom).Run();
    outcome.broken.insert(outcome.broken.end(), headroom.broken().begin(), headroom.broken().end());
    outcome.steps = headroom.steps();
    outcome.coverage = headroom.coverage();
    profile = headroom.profile();
  }
  return outcome;
}

std::optional<int> Whole(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Policy> ParsePolicy(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  std::optional<int> number;
  if (colon != std::string::npos) {
    number = Whole(std::string_view(text).substr(colon + 1));
    if (!number) return std::nullopt;
  }
  if (name == "fixed" && number && *number >= 1) return Policy{PolicyKind::kFixed, *number, 0};
  if (name == "threshold" && number && *number >= 0 && *number <= 100) {
    return Policy{PolicyKind::kThreshold, 0, *number / 100.0};
  }
  if (number) return std::nullopt;
  if (name == "headroom") return Policy{PolicyKind::kHeadroom, 0, 0};
  if (name == "best-fixed") return Policy{PolicyKind::kBestFixed, 0, 0};
  if (name == "flash-attn") return Policy{PolicyKind::kFlashAttn, 0, 0};
  if (name == "oracle") return Policy{PolicyKind::kOracle, 0, 0};
  if (name == "oracle-arrival") return Policy{PolicyKind::kOracleArrival, 0, 0};
  return std::nullopt;
}

bool Reliable(const Scenario& scenario, int jobs) {
  Scenario noisy = scenario;
  for (int seed = 1; seed <= kNoiseSeeds; ++seed) {
    noisy.seed = static_cast<uint64_t>(seed);
    const RunResult run = Fixed(noisy, jobs, true);
    if (run.failed || run.oom_kills > 0) return false;
  }
  return true;
}

// More jobs are not always faster (beyond the cores they only share), and not always less reliable
// (other jobs coincide). So: halving finds where reliability ends, a few more beyond that are
// tried, and of those below it the fastest counts.
int BestFixed(const Scenario& scenario) {
  const int most = static_cast<int>(scenario.commands.size());
  constexpr int kBeyond = 4;
  std::map<int, bool> tried;
  const auto reliable = [&](int n) {
    const auto it = tried.find(n);
    if (it != tried.end()) return it->second;
    return tried[n] = Reliable(scenario, n);
  };
  int good = 0;
  for (int bad = most + 1; bad - good > 1;) {
    const int middle = bad == most + 1 && good == 0 ? most : (good + bad) / 2;
    (reliable(middle) ? good : bad) = middle;
  }
  for (int n = good + 1; n <= std::min(most, good + kBeyond); ++n) {
    if (reliable(n)) good = n;
  }
  int best = 0;
  double best_seconds = 0;
  Scenario quiet = scenario;
  quiet.seed = 0;
  // Fewer jobs than a quarter of what memory bears are only faster where cores bind long before;
  // there all are alike.
  for (int n = good; n > good / 4; --n) {
    const double seconds = Fixed(quiet, n, true).seconds;
    if ((best == 0 || seconds < best_seconds) && reliable(n)) {
      best = n;
      best_seconds = seconds;
    }
  }
  return best;
}

Outcome Simulate(const Scenario& scenario, const Policy& policy) {
  Outcome outcome;
  switch (policy.kind) {
    case PolicyKind::kHeadroom: {
      outcome = UnderHeadroom(scenario, {});
      break;
    }
    case PolicyKind::kFixed:
      outcome.run = Fixed(scenario, policy.n, false);
      break;
    case PolicyKind::kBestFixed: {
      const int n = BestFixed(scenario);
      outcome.n = n;
      outcome.run = Fixed(scenario, std::max(n, 1), false);
      break;
    }
    case PolicyKind::kFlashAttn: {
      const int n = FlashAttnJobs(scenario.cores, scenario.mem_bytes);
      outcome.n = n;
      outcome.run = Fixed(scenario, n, false);
      break;
    }
    case PolicyKind::kThreshold: {
      Threshold threshold(policy.threshold);
      outcome.run = Engine(ConfigOf(scenario, ClientKind::kFixed,
                                    std::max(1, static_cast<int>(scenario.cores))),
                           threshold)
                        .Run();
      break;
    }
    case PolicyKind::kOracle:
    case PolicyKind::kOracleArrival: {
      const bool arrival = policy.kind == PolicyKind::kOracleArrival;
      Oracle oracle(arrival ? Oracle::Order::kArrival : Oracle::Order::kLongestFirst);
      EngineConfig config =
          ConfigOf(scenario, ClientKind::kFixed, static_cast<int>(scenario.commands.size()));
      if (!arrival) {
        for (BuildSpec& spec : config.builds) {
          spec.order.resize(scenario.commands.size());
          std::iota(spec.order.begin(), spec.order.end(), 0);
          std::stable_sort(spec.order.begin(), spec.order.end(), [&](int a, int b) {
            return CommandWork(scenario.commands[static_cast<size_t>(a)], scenario.archs,
                               scenario.threads) >
                   CommandWork(scenario.commands[static_cast<size_t>(b)], scenario.archs,
                               scenario.threads);
          });
        }
      }
      outcome.run = Engine(std::move(config), oracle).Run();
      break;
    }
  }
  return outcome;
}

}  // namespace headroom::sim
