#include "server/sim/baselines.h"

#include <algorithm>
#include <cmath>

namespace headroom::sim {
namespace {

// Of the oracle's plan: the curves were sampled each 0.1 to 0.9 s.
constexpr double kBinSeconds = 0.5;
constexpr double kLookSeconds = 0.1;

double StageWork(const Command& command, const Stage& stage) {
  return stage.gap_s + command.shapes[static_cast<size_t>(stage.shape)].cpu_s;
}

size_t BinOf(double service) {
  return static_cast<size_t>(std::max(0.0, service / kBinSeconds));
}

}  // namespace

// --- Threshold
// ------------------------------------------------------------------------------------

void Threshold::Begin(Engine& engine) {
  Look(engine);
}

void Threshold::Look(Engine& engine) {
  engine.At(engine.now() + kLookSeconds, [this, &engine] { Look(engine); });
}

void Threshold::Decide(Engine& engine) {
  std::vector<int> left;
  for (const int proc : waiting_) {
    if (engine.running() == 0 || engine.memory_free() >= share_ * engine.config().mem_bytes) {
      engine.Start(proc);
    } else {
      left.push_back(proc);
    }
  }
  waiting_ = std::move(left);
}

// --- Oracle
// ---------------------------------------------------------------------------------------

void Oracle::Begin(Engine& engine) {
  Look(engine);
}

void Oracle::Look(Engine& engine) {
  changed_ = true;
  engine.At(engine.now() + kBinSeconds, [this, &engine] { Look(engine); });
}

double Oracle::Remaining(Engine& engine, int proc) const {
  const Proc& p = engine.proc(proc);
  const Command& command = (*engine.build(p.build).spec.commands)[static_cast<size_t>(p.command)];
  return RemainingWork(command, p.shape_index, p.copy);
}

void Oracle::OnReady(Engine& engine, int proc) {
  const Proc& p = engine.proc(proc);
  double rank = 0;
  switch (order_) {
    case Order::kArrival:
      rank = p.job;
      break;
    case Order::kLongestFirst:
      rank = -Remaining(engine, proc);
      break;
  }
  waiting_.push_back({proc, rank});
  std::stable_sort(waiting_.begin(), waiting_.end(),
                   [](const Waiter& a, const Waiter& b) { return a.rank < b.rank; });
  changed_ = true;
}

void Oracle::OnEnd(Engine&, int, ProcEnd) {
  changed_ = true;
}

bool Oracle::Fits(Engine& engine, int proc) {
  const Proc& p = engine.proc(proc);
  const double start = engine.service();
  const std::vector<Knot>& knots = p.shape->knots;
  const size_t first = BinOf(start);
  const size_t last = BinOf(start + p.shape->cpu_s);
  if (planned_.size() <= last) planned_.resize(last + 1, 0.0);
  wanted_.assign(last - first + 1, 0.0);
  for (size_t i = 1; i < knots.size(); ++i) {
    const double high = std::max(knots[i - 1].bytes, knots[i].bytes) * p.scale;
    const size_t to = BinOf(start + knots[i].cpu) - first;
    for (size_t bin = BinOf(start + knots[i - 1].cpu) - first; bin <= to; ++bin) {
      wanted_[bin] = std::max(wanted_[bin], high);
    }
  }
  const double limit = engine.config().mem_bytes - engine.load_bytes();
  for (size_t bin = 0; bin < wanted_.size(); ++bin) {
    if (planned_[first + bin] + wanted_[bin] > limit) return false;
  }
  return true;
}

void Oracle::Decide(Engine& engine) {
  if (!changed_) return;
  changed_ = false;
  std::vector<Waiter> left;
  bool closed = false;  // somebody waits: nobody overtakes
  for (const Waiter& waiter : waiting_) {
    if (closed) {
      left.push_back(waiter);
      continue;
    }
    const bool fits = Fits(engine, waiter.proc);
    const bool core = engine.running() + engine.load_cores() + 1 <= engine.config().cores;
    if (engine.running() > 0 && !(core && fits)) {
      closed = true;
      left.push_back(waiter);
      continue;
    }
    const size_t first = BinOf(engine.service());
    for (size_t bin = 0; bin < wanted_.size(); ++bin) planned_[first + bin] += wanted_[bin];
    engine.Start(waiter.proc);
  }
  waiting_ = std::move(left);
}

// --- Helpers
// --------------------------------------------------------------------------------------

int FlashAttnJobs(double cores, double free_bytes) {
  const double by_cores = std::floor(cores / 2);
  const double by_memory = std::floor(free_bytes / (1024.0 * 1024 * 1024) / 9);
  return static_cast<int>(std::max(1.0, std::min(by_cores, by_memory)));
}

namespace {

// Of the longest chain.
double ChainWork(const Command& command) {
  double most = 0;
  for (const std::vector<Stage>& chain : command.chains) {
    double work = 0;
    for (const Stage& stage : chain) work += StageWork(command, stage);
    most = std::max(most, work);
  }
  return most;
}

}  // namespace

double RemainingWork(const Command& command, int shape_index, int copy) {
  double work = command.end_gap_s;
  for (const Stage& stage : command.back) work += StageWork(command, stage);
  const auto from = [&command, shape_index](const std::vector<Stage>& stages) {
    double sum = 0;
    bool found = false;
    for (const Stage& stage : stages) {
      if (stage.shape == shape_index) {
        sum = command.shapes[static_cast<size_t>(shape_index)].cpu_s;
        found = true;
      } else if (found) {
        sum += StageWork(command, stage);
      }
    }
    return found ? sum : -1.0;
  };
  if (copy >= 0) return work + std::max(0.0, from(command.Chain(copy)));
  if (const double front = from(command.front); front >= 0) {
    return work + ChainWork(command) + front;
  }
  return std::max(0.0, from(command.back)) + command.end_gap_s;
}

double CommandWork(const Command& command, int archs, int threads) {
  double work = command.end_gap_s;
  for (const Stage& stage : command.front) work += StageWork(command, stage);
  for (const Stage& stage : command.back) work += StageWork(command, stage);
  return work + ChainWork(command) *
                    std::ceil(static_cast<double>(command.Chains(archs)) / std::max(1, threads));
}

}  // namespace headroom::sim
