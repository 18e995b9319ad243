#include "tests/sim/random.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "server/sim/rng.h"

namespace headroom::sim {
namespace {

// Other load comes as a ramp: a program that fills memory touches it page by page.
constexpr double kRampStepSeconds = 0.1;

void AddVisit(std::vector<LoadStep>& load, double from, double to, double bytes, double rate,
              double cores) {
  const double ramp = bytes / rate;
  for (double t = 0; t < ramp; t += kRampStepSeconds) {
    load.push_back({from + t, bytes * (t + kRampStepSeconds) / (ramp + kRampStepSeconds), cores});
  }
  load.push_back({from + ramp, bytes, cores});
  load.push_back({to, 0, 0});
}

void KeepKnots(const std::vector<Knot>& knots, size_t from, size_t to, double tolerance,
               std::vector<Knot>& kept) {
  double worst = 0;
  size_t at = from;
  for (size_t i = from + 1; i < to; ++i) {
    const double f = (knots[i].cpu - knots[from].cpu) / (knots[to].cpu - knots[from].cpu);
    const double line = knots[from].bytes + (knots[to].bytes - knots[from].bytes) * f;
    if (const double off = std::abs(knots[i].bytes - line); off > worst) {
      worst = off;
      at = i;
    }
  }
  if (worst <= tolerance) return;
  KeepKnots(knots, from, at, tolerance, kept);
  kept.push_back(knots[at]);
  KeepKnots(knots, at, to, tolerance, kept);
}

bool Draw(const std::vector<Command>& recorded, Rng& rng, Scenario& scenario) {
  scenario.cores = std::round(rng.LogUniform(4, 256));
  scenario.mem_bytes = scenario.cores * rng.LogUniform(1e9, 8e9);
  scenario.archs = rng.Int(1, 6);
  scenario.threads = rng.Int(1, 6);
  scenario.builds = rng.Chance(0.6) ? 1 : rng.Int(2, 3);
  constexpr ClientKind kTools[] = {ClientKind::kNinjaHead, ClientKind::kNinja113,
                                   ClientKind::kMake};
  scenario.ninja = kTools[rng.Int(0, 2)];

  // Which commands, in their order.
  std::vector<size_t> chosen(recorded.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  const size_t count = static_cast<size_t>(
      rng.Int(std::min(12, static_cast<int>(recorded.size())), static_cast<int>(recorded.size())));
  while (chosen.size() > count) {
    chosen.erase(chosen.begin() + rng.Int(0, static_cast<int>(chosen.size()) - 1));
  }
  scenario.commands.clear();
  for (const size_t i : chosen) scenario.commands.push_back(recorded[i]);

  // What the tools take.
  const double all = rng.LogUniform(1.0 / 2, 2);
  const bool cuda12 = rng.Chance(0.25);
  std::map<std::string, std::pair<double, double>> scales;
  for (const char* tool : {"cicc", "ptxas", "cudafe++", "cc1plus", "as", "fatbinary"}) {
    double memory = all * rng.LogUniform(1 / 1.5, 1.5);
    if (cuda12 && std::string(tool) == "ptxas") memory *= rng.LogUniform(3, 10);
    scales[tool] = {memory, rng.LogUniform(0.5, 2)};
  }
  scales["cpp"] = scales["cc1plus"];  // the same program
  double largest = 0;
  for (Command& command : scenario.commands) {
    for (Shape& shape : command.shapes) {
      const auto [memory, cpu] = scales[shape.tool];
      shape.peak *= memory;
      shape.cpu_s *= cpu;
      for (Knot& knot : shape.knots) {
        knot.bytes *= memory;
        knot.cpu *= cpu;
      }
      shape.knots.back().cpu = shape.cpu_s;
      Simplify(shape, 0.02 * shape.peak);
      largest = std::max(largest, shape.peak);
    }
  }

  // Other load.
  scenario.load.clear();
  double load_peak = 0;
  if (rng.Chance(0.5)) {
    const int visits = rng.Int(1, 3);
    double at = 0;
    for (int i = 0; i < visits; ++i) {
      const double from = at + rng.Uniform(5, 120);
      const double to = from + rng.Uniform(20, 120);
      const double bytes = scenario.mem_bytes * rng.Uniform(0.05, 0.30);
      const double rate = rng.LogUniform(0.2e9, 1e9);
      if (bytes / rate > to - from) continue;
      AddVisit(scenario.load, from, to, bytes, rate, scenario.cores * rng.Uniform(0, 0.25));
      load_peak = std::max(load_peak, bytes);
      at = to;
    }
  }
  const double reserve =
      std::max(0.03 * scenario.mem_bytes, std::min(0.07 * scenario.mem_bytes, 512.0 * (1 << 20)));
  return largest * (1 + kNoise) <= scenario.mem_bytes - reserve - load_peak;
}

}  // namespace

void Simplify(Shape& shape, double tolerance) {
  if (shape.knots.size() < 3) return;
  // The peak stays exactly what it is.
  const auto top = std::max_element(shape.knots.begin(), shape.knots.end(),
                                    [](const Knot& a, const Knot& b) { return a.bytes < b.bytes; });
  const size_t peak = static_cast<size_t>(top - shape.knots.begin());
  const size_t last = shape.knots.size() - 1;
  std::vector<Knot> kept = {shape.knots.front()};
  if (peak > 0) KeepKnots(shape.knots, 0, peak, tolerance, kept);
  if (peak > 0 && peak < last) kept.push_back(shape.knots[peak]);
  if (peak < last) KeepKnots(shape.knots, peak, last, tolerance, kept);
  kept.push_back(shape.knots[last]);
  shape.knots = std::move(kept);
}

Scenario RandomScenario(const std::vector<Command>& recorded, uint64_t number) {
  Scenario scenario;
  scenario.seed = number + 1;  // 0 would be without noise
  for (uint64_t draw = 0;; ++draw) {
    Rng rng(Mix(Mix(0x5CE7A410, number), draw));
    if (Draw(recorded, rng, scenario)) return scenario;
  }
}

}  // namespace headroom::sim
