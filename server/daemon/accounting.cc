#include "server/daemon/accounting.h"

#include <algorithm>
#include <chrono>

namespace headroom::daemon {
namespace {

// A build that is braked all day long must not make the daemon grow; the counts go on.
constexpr size_t kMostIncidents = 500;
constexpr size_t kMostUngatedNames = 20;

double Seconds(policy::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void LaneAccount::Saw(policy::Time now, int jobs, int tools, int64_t anon_bytes) {
  if (now > at_) {
    job_seconds_ += Seconds(now - at_) * jobs_;
    tool_seconds_ += Seconds(now - at_) * tools_;
    at_ = now;
  }
  jobs_ = jobs;
  tools_ = tools;
  if (jobs > 0) {
    jobs_min_ = jobs_max_ == 0 ? jobs : std::min(jobs_min_, jobs);
    jobs_max_ = std::max(jobs_max_, jobs);
  }
  peak_ = std::max(peak_, anon_bytes);
}

void LaneAccount::AddIncident(v1::Incident::Kind kind, const std::string& tool,
                              const std::string& source, int64_t bytes, int64_t limit_bytes,
                              const std::string& domain, policy::Time now) {
  if (kind == v1::Incident::FREEZE) ++freezes_;
  if (kind == v1::Incident::EVICTION) ++evictions_;
  if (kind == v1::Incident::RETRY) ++retries_;
  if (incidents_.size() >= kMostIncidents) return;
  v1::Incident& incident = incidents_.emplace_back();
  incident.set_kind(kind);
  incident.set_tool(tool);
  incident.set_source(source);
  incident.set_bytes(static_cast<uint64_t>(std::max<int64_t>(0, bytes)));
  incident.set_limit_bytes(static_cast<uint64_t>(std::max<int64_t>(0, limit_bytes)));
  incident.set_domain(domain);
  incident.set_at_ns(static_cast<uint64_t>(std::max<int64_t>(0, (now - opened_).count())));
}

void LaneAccount::AddUngated(const std::string& tool) {
  ++ungated_;
  if (ungated_tools_.size() < kMostUngatedNames &&
      std::find(ungated_tools_.begin(), ungated_tools_.end(), tool) == ungated_tools_.end()) {
    ungated_tools_.push_back(tool);
  }
}

v1::LaneSummary LaneAccount::Summary(policy::Time now) const {
  LaneAccount until = *this;
  until.Saw(now, jobs_, tools_, 0);
  const double wall = Seconds(now - opened_);
  v1::LaneSummary summary;
  summary.set_wall_ns(static_cast<uint64_t>(std::max<int64_t>(0, (now - opened_).count())));
  summary.set_peak_bytes(static_cast<uint64_t>(peak_));
  summary.set_jobs_min(static_cast<uint32_t>(jobs_min_));
  summary.set_jobs_max(static_cast<uint32_t>(jobs_max_));
  summary.set_jobs_mean(wall > 0 ? until.job_seconds_ / wall : 0);
  summary.set_tools_mean(wall > 0 ? until.tool_seconds_ / wall : 0);
  summary.set_freezes(freezes_);
  summary.set_evictions(evictions_);
  summary.set_retries(retries_);
  summary.set_oom_kills(oom_kills_);
  summary.set_ungated(ungated_);
  for (const std::string& tool : ungated_tools_) summary.add_ungated_tools(tool);
  for (const v1::Incident& incident : incidents_) *summary.add_incidents() = incident;
  return summary;
}

}  // namespace headroom::daemon
