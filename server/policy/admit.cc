#include "server/policy/admit.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "server/policy/arithmetic.h"
#include "server/policy/domain.h"

namespace headroom::policy {
namespace {

// A foreign consumer's growth is extended for this long: it may stop at any time, and each sample
// looks again.
constexpr double kForeignSeconds = 3;

// Jobs that are over sooner, in wall seconds, are never taken to end on time: a machine that is
// busy with something else for a moment shifts them by as much as they last, and their peaks then
// fall together.
constexpr double kShortLifeSeconds = 10;

int64_t AsInt(double value) {
  return static_cast<int64_t>(std::clamp(value, -9e18, 9e18));
}

}  // namespace

Plan::Plan(State& state, const std::vector<uint32_t>& extra)
    : state_(state), predictor_(state, extra) {
  FindDomains();
  rows_.assign(domains_.size() * predictor_.models().size(), -1);

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
    predictor_.OfProc(i, floor, proc.frozen, unit.forecast);
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
    predictor_.OfJob(i, job.frozen, unit.forecast);
    if (!job.frozen) Blur(unit.forecast, Learned(unit.slot));
    AddUnit(unit);
  }
  Spread();
}

void Plan::FindDomains() {
  const std::map<DomainId, DomainState>& all = state_.domains;
  domains_.reserve(all.size());
  positions_.reserve(all.size());
  for (const auto& [id, domain] : all) {
    positions_.emplace_back(id, domain.sampled ? static_cast<int>(domains_.size()) : -1);
    if (!domain.sampled) continue;
    Domain d;
    d.id = id;
    d.available = AsDouble(domain.available);
    d.reserve = AsDouble(ReserveOf(state_, domain, nullptr));
    d.limit = AsDouble(domain.limit);
    d.fill_rate = domain.fill_rate;
    d.foreign_rate = state_.prediction ? std::max(0.0, domain.foreign_rate) : 0;
    domains_.push_back(d);
  }
  // The nearest one above that was sampled; -1: none. As many steps as there are domains are enough
  // for every chain, and end a circle (Step lets none arise; a snapshot may hold anything).
  const auto above = [&](DomainId id) {
    for (size_t hops = 0; hops < all.size(); ++hops) {
      const auto it = all.find(id);
      if (it == all.end() || it->second.parent == DomainId::kNone) return -1;
      id = it->second.parent;
      const auto up = all.find(id);
      if (up != all.end() && up->second.sampled) return DomainOf(id);
    }
    return -1;
  };
  for (Domain& d : domains_) d.parent = above(d.id);
  for (Domain& d : domains_) {
    size_t hops = 0;
    for (int at = d.parent; at >= 0 && hops <= domains_.size(); ++hops) {
      at = domains_[static_cast<size_t>(at)].parent;
    }
    if (hops > domains_.size()) d.parent = -1;
  }
  for (size_t i = domains_.size(); i-- > 0;) {
    if (domains_[i].parent < 0) host_ = static_cast<int>(i);
  }
  // Known but not sampled: what is above it, in the end the host.
  for (auto& [id, position] : positions_) {
    if (position < 0) position = above(id);
    if (position < 0) position = host_;
  }
}

int Plan::DomainOf(DomainId id) const {
  const auto it =
      std::lower_bound(positions_.begin(), positions_.end(), id,
                       [](const auto& entry, DomainId key) { return entry.first < key; });
  return it != positions_.end() && it->first == id ? it->second : host_;
}

OverTime& Plan::Common(size_t domain, int slot) {
  int32_t& row = rows_[domain * predictor_.models().size() + static_cast<size_t>(slot)];
  if (row < 0) {
    row = static_cast<int32_t>(common_.size());
    common_.emplace_back();
  }
  return common_[static_cast<size_t>(row)];
}

double Plan::Learned(int slot) const {
  const Model& model = predictor_.models()[static_cast<size_t>(slot)];
  const double weight = model.curves->shape_weight;
  return model.cpu_s / model.rate < kShortLifeSeconds ? std::min(weight, kKnownCourse - 1) : weight;
}

void Plan::Account(size_t domain, const Unit& unit, double sign) {
  Domain& d = domains_[domain];
  const Forecast& f = unit.forecast;
  const double now = AsDouble(unit.now);
  // One sum after the other: then each loop is worked on four numbers at a time.
  for (size_t h = 0; h < kHorizons; ++h) d.growth[h] += sign * (f.level[h] - now);
  const double var = sign * f.own_var;
  for (size_t h = 0; h < kHorizons; ++h) {
    const double slope = f.slope[h];
    d.own_var[h] += slope * slope * var;
  }
  const double gain = sign * f.common_gain;
  OverTime& common = Common(domain, unit.slot);
  for (size_t h = 0; h < kHorizons; ++h) common[h] += f.slope[h] * gain;
  d.rising += sign * std::max(0.0, f.level[0] - now);
  d.units += sign > 0 ? 1 : -1;
}

void Plan::AddUnit(const Unit& unit) {
  any_frozen_ = any_frozen_ || unit.frozen;
  if (unit.domain >= 0 && !unit.frozen) Account(static_cast<size_t>(unit.domain), unit, 1);
}

// Sums of a domain are part of those above it; errors of a class are partly its parent's.
void Plan::Spread() {
  std::vector<size_t> order;
  std::vector<size_t> depth(domains_.size(), 0);
  for (size_t i = 0; i < domains_.size(); ++i) {
    for (int up = domains_[i].parent; up >= 0; up = domains_[static_cast<size_t>(up)].parent) {
      ++depth[i];
    }
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return depth[a] > depth[b]; });
  const std::vector<Model>& models = predictor_.models();
  const auto has = [&](size_t domain, size_t slot) {
    return rows_[domain * models.size() + slot] >= 0;
  };
  for (size_t i : order) {
    const Domain& d = domains_[i];
    if (d.parent < 0) continue;
    const size_t above = static_cast<size_t>(d.parent);
    Domain& up = domains_[above];
    for (size_t h = 0; h < kHorizons; ++h) {
      up.growth[h] += d.growth[h];
      up.own_var[h] += d.own_var[h];
    }
    up.rising += d.rising;
    up.units += d.units;
    for (size_t s = 0; s < models.size(); ++s) {
      if (!has(i, s)) continue;
      const OverTime part = Common(i, static_cast<int>(s));
      OverTime& sum = Common(above, static_cast<int>(s));
      for (size_t h = 0; h < kHorizons; ++h) sum[h] += part[h];
    }
  }
  for (size_t i = 0; i < domains_.size(); ++i) {
    Domain& d = domains_[i];
    for (size_t s = models.size(); s-- > 0;) {
      if (!has(i, s)) continue;
      const Model& model = models[s];
      const OverTime part = Common(i, static_cast<int>(s));
      for (size_t h = 0; h < kHorizons; ++h) d.common_var[h] += model.own_var * part[h] * part[h];
      if (model.parent < 0) continue;
      OverTime& sum = Common(i, model.parent);
      for (size_t h = 0; h < kHorizons; ++h) sum[h] += model.share * part[h];
    }
  }
}

Addition Plan::Of(const std::vector<std::pair<uint32_t, double>>& classes, Bytes floor,
                  int64_t input_bytes) const {
  Addition addition;
  double total = 0;
  for (const auto& [klass, share] : classes) total += share;
  if (total <= 0) return addition;
  for (const auto& [klass, share] : classes) {
    Addition::Part part;
    part.slot = predictor_.Slot(klass);
    part.share = share / total;
    part.forecast = predictor_.Fresh(klass, floor, input_bytes);
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
      if (lane != nullptr && lane->gated) growth[0] = std::max(growth[0], d.rising);
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
            const int32_t row =
                rows_[static_cast<size_t>(at) * models.size() + static_cast<size_t>(s)];
            const OverTime common = row < 0 ? OverTime{} : common_[static_cast<size_t>(row)];
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
    d.rising += count * addition.growth[0];
    for (const Addition::Part& part : addition.parts) {
      double gain = count * part.share * part.forecast.common_gain;
      for (int s = part.slot; s >= 0; s = models[static_cast<size_t>(s)].parent) {
        const Model& model = models[static_cast<size_t>(s)];
        OverTime& common = Common(static_cast<size_t>(at), s);
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
    Account(static_cast<size_t>(at), unit, -1);
  }
  unit.frozen = true;
  any_frozen_ = true;
}

void Plan::Thaw(size_t index) {
  Unit& unit = units_[index];
  unit.forecast = Forecast{};
  if (unit.job) {
    predictor_.OfJob(unit.index, false, unit.forecast);
    Blur(unit.forecast, Learned(unit.slot));
  } else {
    predictor_.OfProc(unit.index, Bytes{}, false, unit.forecast);
  }
  for (int at = unit.domain; at >= 0; at = domains_[static_cast<size_t>(at)].parent) {
    Account(static_cast<size_t>(at), unit, 1);
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
