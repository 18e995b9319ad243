// What a lane's build took, for the summary that `headroom run` prints: jobs over time, peak of
// memory, incidents. Pure: fed with what was seen and when.
#ifndef HEADROOM_SERVER_DAEMON_ACCOUNTING_H_
#define HEADROOM_SERVER_DAEMON_ACCOUNTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "headroom/v1/control.pb.h"
#include "server/policy/types.h"

namespace headroom::daemon {

class LaneAccount {
 public:
  explicit LaneAccount(policy::Time opened) : opened_(opened), at_(opened) {}

  // From now on so many run, not counting frozen ones; `anon_bytes` is what its tool processes
  // have.
  void Saw(policy::Time now, int jobs, int tools, int64_t anon_bytes);

  void AddIncident(v1::Incident::Kind kind, const std::string& tool, const std::string& source,
                   int64_t bytes, int64_t limit_bytes, const std::string& domain, policy::Time now);
  void AddOomKills(uint32_t count) { oom_kills_ += count; }
  void AddUngated(const std::string& tool);

  uint32_t freezes() const { return freezes_; }

  // Until `now`. `jobs_mean` is weighted with time over all of it, idle time included.
  v1::LaneSummary Summary(policy::Time now) const;

 private:
  policy::Time opened_;
  policy::Time at_;
  int jobs_ = 0;
  int tools_ = 0;
  int jobs_min_ = 0;  // over the time that any ran
  int jobs_max_ = 0;
  double job_seconds_ = 0;
  double tool_seconds_ = 0;
  int64_t peak_ = 0;
  uint32_t freezes_ = 0, evictions_ = 0, retries_ = 0, oom_kills_ = 0, ungated_ = 0;
  std::vector<v1::Incident> incidents_;
  std::vector<std::string> ungated_tools_;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_ACCOUNTING_H_
