#include "server/daemon/lens.h"

#include <utility>
#include <variant>

namespace headroom::daemon {

using policy::ProcId;

Lens::Lens(int memory_scale, std::function<bool(const ProcId&)> is_frozen)
    : scale_(memory_scale), is_frozen_(std::move(is_frozen)) {}

void Lens::Begin(const ProcId& proc, policy::Time now) {
  clocks_.try_emplace(proc, Clock{now, {}});
}

policy::Duration Lens::Ran(const ProcId& proc, policy::Time now) {
  const auto clock = clocks_.find(proc);
  if (clock == clocks_.end()) return {};
  // As it stands now, so since the last look: exact to the time between two.
  if (!is_frozen_(proc)) clock->second.ran += now - clock->second.at;
  clock->second.at = now;
  return clock->second.ran;
}

policy::Event Lens::Through(policy::Event event, policy::Time now) {
  if (auto* seen = std::get_if<policy::DomainSeen>(&event)) {
    seen->limit = seen->limit * scale_;
  } else if (auto* sample = std::get_if<policy::Sample>(&event)) {
    for (policy::DomainSample& domain : sample->domains) {
      domain.available = domain.available * scale_;
    }
    for (policy::ProcSample& proc : sample->procs) {
      proc.anon = proc.anon * scale_;
      proc.cpu = Ran(proc.proc, now);
    }
  } else if (const auto* proc_seen = std::get_if<policy::ProcSeen>(&event)) {
    Begin(proc_seen->proc, now);
  } else if (const auto* proc_gone = std::get_if<policy::ProcGone>(&event)) {
    clocks_.erase(proc_gone->proc);
  } else if (const auto* started = std::get_if<policy::GateStarted>(&event)) {
    if (started->worker) {
      Begin(started->worker, now);
      workers_[started->gate] = started->worker;
    }
  } else if (auto* ended = std::get_if<policy::GateEnded>(&event)) {
    ended->peak = ended->peak * scale_;
    if (auto worker = workers_.extract(ended->gate)) {
      ended->cpu = Ran(worker.mapped(), now);
      clocks_.erase(worker.mapped());
    }
  } else if (const auto* gate_gone = std::get_if<policy::GateGone>(&event)) {
    if (auto worker = workers_.extract(gate_gone->gate)) clocks_.erase(worker.mapped());
  }
  return event;
}

}  // namespace headroom::daemon
