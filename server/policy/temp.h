// Temporary files: the file system of a lane's TMPDIR is a second budget beside memory. nvcc writes
// 20 to 200 MB for each job there, and fails with "error while writing" where it is full (K9). On a
// tmpfs they take memory as well: that is seen as any other memory is.
//
// Planned with by jobs, not by tools: what a job's first tool wrote stays until the job's end. A
// job begins when the first of its gated tools is admitted; those of a job that has begun are
// never held for this.
#ifndef HEADROOM_SERVER_POLICY_TEMP_H_
#define HEADROOM_SERVER_POLICY_TEMP_H_

#include <map>
#include <set>

#include "server/policy/event.h"
#include "server/policy/state.h"
#include "server/policy/types.h"

namespace headroom::policy {

// One look at a lane's file system: what its jobs have written is what is missing from the most
// that was free.
void Observe(State& state, const TempSample& sample);

// What one more job is expected to write. Until one has ended, at least a heavy job's files.
Bytes TempOfJob(const TempState& temp);

// What an admission at the gate has to ask of temporary files, for one decision.
class TempPlan {
 public:
  TempPlan(State& state, Time now);
  // Whether this waiter may go as far as temporary files go. `nothing_runs`: in its lane and
  // domain. One job can always begin: at once where none has, and soon where those that have
  // begun do nothing.
  bool Fits(const GateState& gate, bool nothing_runs) const;
  // It was admitted.
  void Admitted(const GateState& gate);

 private:
  bool HasBegun(const GateState& gate) const;

  State& state_;
  Time now_;
  std::map<LaneId, int> in_flight_;  // jobs that have begun, of lanes whose file system is known
  std::set<LaneId> begun_waits_;     // lanes with a waiter of a job that has begun
};

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_TEMP_H_
