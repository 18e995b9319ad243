#include "server/policy/domain.h"

#include <algorithm>

namespace headroom::policy {
namespace {

// Rates are smoothed over this many seconds. Of all that is lost, for the brake: one sample's step
// is no trend, and a fast one must be seen at once. Of what others take, for the plan: slower,
// since it is extended into the future, and noise must not move tokens; a hog is still seen within
// 2 s.
constexpr double kRateSeconds = 0.5;
constexpr double kForeignRateSeconds = 1.5;

}  // namespace

Bytes DefaultReserve(Bytes limit) {
  return std::max(Share(limit, Permyriad{300}), std::min(Share(limit, Permyriad{700}), MiB(512)));
}

Bytes DefaultReserve(const DomainState& domain) {
  return DefaultReserve(domain.limit) * (domain.kills_group ? 2 : 1);
}

Bytes ReserveOf(const State& state, const DomainState& domain, const LaneState* lane) {
  if (lane != nullptr && lane->reserve_bytes) return *lane->reserve_bytes;
  if (lane != nullptr && lane->reserve_share) return Share(domain.limit, *lane->reserve_share);
  if (state.reserve_bytes) return *state.reserve_bytes;
  if (state.reserve_share) return Share(domain.limit, *state.reserve_share);
  return DefaultReserve(domain);
}

const DomainState* FindDomain(const State& state, DomainId id) {
  const auto it = state.domains.find(id);
  if (it != state.domains.end()) return &it->second;
  for (const auto& [other, domain] : state.domains) {
    if (domain.parent == DomainId::kNone) return &domain;
  }
  return nullptr;
}

bool InCircle(const State& state, DomainId id) {
  DomainId up = id;
  for (size_t hops = 0; hops < state.domains.size(); ++hops) {
    const auto it = state.domains.find(up);
    if (it == state.domains.end()) return false;
    up = it->second.parent;
    if (up == id) return true;
  }
  return false;
}

bool Update(DomainState& domain, const DomainSample& sample, Time now) {
  if (domain.sampled) {
    const double dt = std::chrono::duration<double>(now - domain.sampled_at).count();
    if (dt > 0.002) {
      const double decline = static_cast<double>((domain.available - sample.available).count);
      const double own = static_cast<double>(domain.own_growth.count);
      const double weight = dt / (dt + kRateSeconds);
      domain.fill_rate += weight * (decline / dt - domain.fill_rate);
      domain.foreign_rate +=
          dt / (dt + kForeignRateSeconds) * ((decline - own) / dt - domain.foreign_rate);
      domain.own_growth = Bytes{};
      domain.sampled_at = now;
    }
  } else {
    domain.sampled_at = now;
    domain.own_growth = Bytes{};
  }
  const bool killed = domain.sampled && sample.oom_kills > domain.oom_kills;
  if (killed) {
    domain.oom_at = now;
    domain.oom_unclaimed += sample.oom_kills - domain.oom_kills;
  }
  domain.available = sample.available;
  domain.oom_kills = sample.oom_kills;
  domain.psi_full_avg10 = sample.psi_full_avg10;
  domain.swap_in_pages = sample.swap_in_pages;
  domain.sampled = true;
  return killed;
}

void Remove(State& state, DomainId id) {
  const auto it = state.domains.find(id);
  if (it == state.domains.end() || it->second.parent == DomainId::kNone) return;
  const DomainId parent = it->second.parent;
  state.domains.erase(it);
  for (auto& [other, domain] : state.domains) {
    if (domain.parent == id) domain.parent = parent;
  }
  for (auto& [lane_id, lane] : state.lanes) {
    if (lane.domain == id) lane.domain = parent;
  }
  for (ProcState& proc : state.procs) {
    if (proc.domain == id) proc.domain = parent;
  }
  for (auto& [gate_id, gate] : state.gates) {
    if (gate.domain == id) gate.domain = parent;
  }
}

}  // namespace headroom::policy
