// What `headroom status` shows, made from the policy's state and what the daemon knows besides.
// Pure.
//
// Whoever can connect sees all lanes, as all processes can be seen with ps(1); the sources that
// other users build are left out.
#ifndef HEADROOM_SERVER_DAEMON_STATUS_H_
#define HEADROOM_SERVER_DAEMON_STATUS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headroom/v1/control.pb.h"
#include "server/policy/action.h"
#include "server/policy/state.h"
#include "server/policy/types.h"

namespace headroom::daemon {

// What the policy plans with in a domain.
struct DomainPlan {
  policy::Bytes reserve;
  policy::Bytes expected_growth;  // of everything that runs, safety included
  friend bool operator==(const DomainPlan&, const DomainPlan&) = default;
};

struct LaneFacts {
  std::string dir;
  // Of the lane's last Mint or Collect.
  std::optional<policy::ReasonCode> last_reason;
};

struct StatusFacts {
  std::string version;
  int32_t pid = 0;
  bool private_daemon = false;
  uint64_t broken_invariants = 0;
  policy::Duration uptime{0};
  policy::Bytes shmem;       // of the host
  policy::Bytes arc_credit;  // of the host
  std::map<policy::DomainId, DomainPlan> plans;
  std::map<policy::LaneId, LaneFacts> lanes;
  // What a running job is expected to reach; jobs that are missing here have no figure.
  std::map<policy::ProcId, policy::Bytes> predicted;
  // The same of a process at the gate, waiting or running.
  std::map<policy::GateId, policy::Bytes> predicted_gates;
  std::vector<std::string> notes;
};

// Fills `plans` and what is predicted, as the policy would plan now. Takes the state by value: planning
// makes classes in it.
void AddOutlook(policy::State state, StatusFacts& facts);

// For `viewer`. At most kMostJobs jobs are listed, so that the answer fits into a frame; a note
// says how many are not.
inline constexpr size_t kMostJobs = 4000;
v1::Status BuildStatus(const policy::State& state, const StatusFacts& facts, policy::Time now,
                       uid_t viewer);

// Why the lane starts no more jobs now, in words; empty: nothing holds it back.
std::string WaitsFor(const policy::LaneState& lane, std::optional<policy::ReasonCode> last_reason);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_STATUS_H_
