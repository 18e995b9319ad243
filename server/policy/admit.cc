#include "server/policy/admit.h"

#include <algorithm>
#include <cmath>

#include "server/policy/domain.h"

namespace headroom::policy {
namespace {

// A foreign consumer's growth is extended for this long: it may stop at any time, and each sample
// looks again.
constexpr double kForeignSeconds = 3;

double AsDouble(Bytes b) {
  return static_cast<double>(b.count);
}

int64_t AsInt(double value) {
  return static_cast<int64_t>(std::clamp(value, -9e18, 9e18));
}

}  // namespace

Plan::Plan(State& state, const std::vector<uint32_t>& extra)
    : state_(state), predictor_(state, extra) {
  domains_.reserve(state.domains.size());
  for (const auto& [id, domain] : state.domains) {
    if (!domain.sampled) continue;
    Domain d;
    d.id = id;
    d.available = AsDouble(domain.available);
    d.reserve = AsDouble(ReserveOf(state, domain, nullptr));
    d.limit = AsDouble(domain.limit);
    d.fill_rate = domain.fill_rate;
    d.foreign_rate = state.prediction ? std::max(0.0, domain.foreign_rate) : 0;
    d.common.resize(predictor_.models().size());
    domains_.push_back(std::move(d));
  }
  for (Domain& d : domains_) {
    // An ancestor that was never sampled is passed over.
    DomainId up = state.domains.at(d.id).parent;
    int hops = 0;
    while (up != DomainId::kNone && d.parent < 0 && hops++ < 64) {
      for (size_t i = 0; i < domains_.size(); ++i) {
        if (domains_[i].id == up) d.parent = static_cast<int>(i);
      }
      const auto it = state.domains.find(up);
      up = it == state.domains.end() ? DomainId::kNone : it->second.parent;
    }
  }

  // Whoever names a circle of parents gets a domain without one.
  for (Domain& d : domains_) {
    size_t hops = 0;
    for (int at = d.parent; at >= 0 && hops <= domains_.size(); ++hops) {
      at = domains_[static_cast<size_t>(at)].parent;
    }
    if (hops > domains_.size()) d.parent = -1;
  }

  units_.reserve(state.procs.size() + state.jobs.size());
  // Most processes share a domain with the one before: the look-up is not repeated.
  DomainId last_id = DomainId::kNone;
  int last = DomainOf(last_id);
  const auto position = [&](DomainId id) {
    if (id != last_id) {
      last_id = id;
      last = DomainOf(id);
    }
    return last;
  };
  for (size_t i = 0; i < state.procs.size(); ++i) {
    const ProcState& proc = state.procs[i];
    if (proc.in_job) continue;
    Unit& unit = units_.emplace_back();
    unit.index = i;
    unit.lane = proc.lane;
    unit.domain = position(proc.domain);
    unit.slot = predictor_.Slot(proc.klass);
    unit.frozen = proc.frozen;
    unit.since = proc.use.since;
    unit.now = proc.use.anon;
    Bytes floor;
    if (proc.gate != GateId::kNone) {
      const auto gate = state.gates.find(proc.gate);
      if (gate != state.gates.end()) floor = gate->second.floor;
    }
    unit.forecast = predictor_.OfProc(i, floor, proc.frozen);
    AddUnit(unit);
  }
  for (size_t i = 0; i < state.jobs.size(); ++i) {
    const JobState& job = state.jobs[i];
    const auto lane = state.lanes.find(job.lane);
    if (lane == state.lanes.end() || lane->second.gated) continue;
    Unit& unit = units_.emplace_back();
    unit.job = true;
    unit.index = i;
    unit.lane = job.lane;
    unit.domain = position(lane->second.domain);
    unit.slot = predictor_.Slot(job.klass);
    unit.since = job.use.since;
    unit.now = job.use.anon;
    unit.frozen = job.frozen;
    unit.forecast = predictor_.OfJob(i, job.frozen);
    if (!job.frozen) Blur(unit.forecast, Learned(unit.slot));
    AddUnit(unit);
  }
  Spread();
}

int Plan::DomainOf(DomainId id) const {
  // Known but not sampled, or unknown: what is above it, in the end the host.
  for (int hops = 0; hops < 64; ++hops) {
    for (size_t i = 0; i < domains_.size(); ++i) {
      if (domains_[i].id == id) return static_cast<int>(i);
    }
    const auto it = state_.domains.find(id);
    if (it == state_.domains.end() || it->second.parent == DomainId::kNone) break;
    id = it->second.parent;
  }
  for (size_t i = 0; i < domains_.size(); ++i) {
    if (domains_[i].parent < 0) return static_cast<int>(i);
  }
  return -1;
}

double Plan::Learned(int slot) const {
  return predictor_.models()[static_cast<size_t>(slot)].curves->shape_weight;
}

void Plan::Account(Domain& domain, const Unit& unit, double sign) {
  const Forecast& f = unit.forecast;
  const double now = AsDouble(unit.now);
  OverTime& common = domain.common[static_cast<size_t>(unit.slot)];
  for (size_t h = 0; h < kHorizons; ++h) {
    domain.growth[h] += sign * (f.level[h] - now);
    domain.own_var[h] += sign * f.slope[h] * f.slope[h] * f.own_var;
    common[h] += sign * f.slope[h] * f.common_gain;
  }
  domain.units += sign > 0 ? 1 : -1;
}

void Plan::AddUnit(const Unit& unit) {
  any_frozen_ = any_frozen_ || unit.frozen;
  if (unit.domain >= 0 && !unit.frozen)
    Account(domains_[static_cast<size_t>(unit.domain)], unit, 1);
}

// Sums of a domain are part of those above it; errors of a class are partly its parent's.
void Plan::Spread() {
  std::vector<size_t> order;
  std::vector<int> depth(domains_.size(), 0);
  for (size_t i = 0; i < domains_.size(); ++i) {
    int up = domains_[i].parent;
    while (up >= 0 && depth[i] < 64) {
      ++depth[i];
      up = domains_[static_cast<size_t>(up)].parent;
    }
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return depth[a] > depth[b]; });
  const std::vector<Model>& models = predictor_.models();
  for (size_t i : order) {
    Domain& d = domains_[i];
    if (d.parent >= 0) {
      Domain& up = domains_[static_cast<size_t>(d.parent)];
      for (size_t h = 0; h < kHorizons; ++h) {
        up.growth[h] += d.growth[h];
        up.own_var[h] += d.own_var[h];
        for (size_t s = 0; s < models.size(); ++s) up.common[s][h] += d.common[s][h];
      }
      up.units += d.units;
    }
  }
  for (Domain& d : domains_) {
    for (size_t s = models.size(); s-- > 0;) {
      const Model& model = models[s];
      for (size_t h = 0; h < kHorizons; ++h) {
        d.common_var[h] += model.own_var * d.common[s][h] * d.common[s][h];
        if (model.parent >= 0) {
          d.common[static_cast<size_t>(model.parent)][h] += model.share * d.common[s][h];
        }
      }
    }
  }
}

Addition Plan::Of(const std::vector<std::pair<uint32_t, double>>& classes, Bytes floor) const {
  Addition addition;
  double total = 0;
  for (const auto& [klass, share] : classes) total += share;
  if (total <= 0) return addition;
  for (const auto& [klass, share] : classes) {
    Addition::Part part;
    part.slot = predictor_.Slot(klass);
    part.share = share / total;
    part.forecast = predictor_.Fresh(klass, floor);
    if (state_.profile.classes[klass].job) Blur(part.forecast, Learned(part.slot));
    addition.need += part.share * part.forecast.peak;
    for (size_t h = 0; h < kHorizons; ++h) {
      addition.growth[h] += part.share * part.forecast.level[h];
    }
    addition.parts.push_back(std::move(part));
  }
  for (const Addition::Part& part : addition.parts) {
    for (size_t h = 0; h < kHorizons; ++h) {
      const double off = part.forecast.level[h] - addition.growth[h];
      const double slope = part.forecast.slope[h];
      addition.own_var[h] += part.share * (slope * slope * part.forecast.own_var + off * off);
    }
  }
  return addition;
}

Plan::Room Plan::Within(int domain, const OverTime& growth, const OverTime& var, double safety,
                        double reserve) const {
  const Domain& d = domains_[static_cast<size_t>(domain)];
  Room tightest;
  tightest.bytes = 1e18;
  for (size_t h = 0; h < kHorizons; ++h) {
    const double foreign = d.foreign_rate * std::min(kForeignSeconds, kHorizonSeconds[h]);
    const double margin = safety * std::sqrt(std::max(0.0, var[h]));
    const double left = d.available - reserve - growth[h] - foreign - margin;
    if (left < tightest.bytes)
      tightest = Room{left, domain, h, growth[h] + foreign, margin, reserve, d.available};
  }
  return tightest;
}

Plan::Room Plan::Own(int domain, double safety) const {
  const Domain& d = domains_[static_cast<size_t>(domain)];
  OverTime var{};
  for (size_t h = 0; h < kHorizons; ++h) var[h] = d.own_var[h] + d.common_var[h];
  return Within(domain, d.growth, var, safety, d.reserve);
}

Plan::Room Plan::After(int domain, const Addition* addition, double count, double safety,
                       const LaneState* lane) const {
  Room tightest;
  tightest.bytes = 1e18;
  const std::vector<Model>& models = predictor_.models();
  for (int at = domain; at >= 0; at = domains_[static_cast<size_t>(at)].parent) {
    const Domain& d = domains_[static_cast<size_t>(at)];
    double reserve = d.reserve;
    if (lane != nullptr && (lane->reserve_bytes || lane->reserve_share)) {
      const auto it = state_.domains.find(d.id);
      if (it != state_.domains.end()) reserve = AsDouble(ReserveOf(state_, it->second, lane));
    }
    OverTime growth = d.growth;
    OverTime var{};
    for (size_t h = 0; h < kHorizons; ++h) var[h] = d.own_var[h] + d.common_var[h];
    if (addition != nullptr && count > 0) {
      for (size_t h = 0; h < kHorizons; ++h) {
        growth[h] += count * addition->growth[h];
        var[h] += count * addition->own_var[h];
      }
      if (safety > 0) {
        // Its errors add to those that its classes already have in the plan. Parts that share an
        // ancestor are taken one after the other; the cross term is of second order.
        for (const Addition::Part& part : addition->parts) {
          double gain = count * part.share * part.forecast.common_gain;
          for (int s = part.slot; s >= 0; s = models[static_cast<size_t>(s)].parent) {
            const Model& model = models[static_cast<size_t>(s)];
            const OverTime& common = d.common[static_cast<size_t>(s)];
            for (size_t h = 0; h < kHorizons; ++h) {
              const double more = gain * part.forecast.slope[h];
              var[h] += model.own_var * more * (2 * common[h] + more);
            }
            gain *= model.share;
          }
        }
      }
    }
    const Room room = Within(at, growth, var, safety, reserve);
    if (room.bytes < tightest.bytes) tightest = room;
  }
  return tightest;
}

void Plan::Add(int domain, const Addition& addition, double count) {
  const std::vector<Model>& models = predictor_.models();
  for (int at = domain; at >= 0; at = domains_[static_cast<size_t>(at)].parent) {
    Domain& d = domains_[static_cast<size_t>(at)];
    for (size_t h = 0; h < kHorizons; ++h) {
      d.growth[h] += count * addition.growth[h];
      d.own_var[h] += count * addition.own_var[h];
    }
    for (const Addition::Part& part : addition.parts) {
      double gain = count * part.share * part.forecast.common_gain;
      for (int s = part.slot; s >= 0; s = models[static_cast<size_t>(s)].parent) {
        const Model& model = models[static_cast<size_t>(s)];
        OverTime& common = d.common[static_cast<size_t>(s)];
        for (size_t h = 0; h < kHorizons; ++h) {
          const double more = gain * part.forecast.slope[h];
          d.common_var[h] += model.own_var * more * (2 * common[h] + more);
          common[h] += more;
        }
        gain *= model.share;
      }
    }
  }
}

void Plan::Freeze(size_t index) {
  Unit& unit = units_[index];
  for (int at = unit.domain; at >= 0; at = domains_[static_cast<size_t>(at)].parent) {
    Account(domains_[static_cast<size_t>(at)], unit, -1);
  }
  unit.frozen = true;
  any_frozen_ = true;
}

void Plan::Thaw(size_t index) {
  Unit& unit = units_[index];
  if (unit.job) {
    unit.forecast = predictor_.OfJob(unit.index, false);
    Blur(unit.forecast, Learned(unit.slot));
  } else {
    unit.forecast = predictor_.OfProc(unit.index, Bytes{}, false);
  }
  for (int at = unit.domain; at >= 0; at = domains_[static_cast<size_t>(at)].parent) {
    Account(domains_[static_cast<size_t>(at)], unit, 1);
  }
  unit.frozen = false;
}

Reason Because(ReasonCode code, const Plan& plan, const Plan::Room& room) {
  Reason reason{code, {}};
  if (room.domain < 0) return reason;
  const Plan::Domain& d = plan.domains()[static_cast<size_t>(room.domain)];
  reason.inputs = {
      {Input::kDomain, static_cast<int64_t>(d.id)},
      {Input::kAvailableBytes, AsInt(room.available)},
      {Input::kReserveBytes, AsInt(room.reserve)},
      {Input::kExpectedGrowthBytes, AsInt(room.growth)},
      {Input::kSafetyBytes, AsInt(room.safety)},
      {Input::kHeadroomBytes, AsInt(room.bytes)},
      {Input::kHorizonNanos, AsInt(kHorizonSeconds[room.horizon] * 1e9)},
  };
  return reason;
}

}  // namespace headroom::policy
