// Between what the daemon sees and what the policy is told, for tests alone: a build on a large
// machine acted out by small stand-ins that sleep (tests/replay/enact.h). All memory is shown so
// many times as large as it is, and the CPU time of a process is the time that it has run.
//
// Sizes that the policy itself has said (floors, which keepers hand back) are shown as they are:
// they are of its world already. So are files' sizes, which a stand-in can have in full.
//
// Threading: one thread, the io_context's.
#ifndef HEADROOM_SERVER_DAEMON_LENS_H_
#define HEADROOM_SERVER_DAEMON_LENS_H_

#include <functional>
#include <map>

#include "server/policy/event.h"
#include "server/policy/types.h"

namespace headroom::daemon {

class Lens {
 public:
  // `is_frozen` says whether a process stands still at this moment: its CPU time does as well.
  Lens(int memory_scale, std::function<bool(const policy::ProcId&)> is_frozen);

  policy::Event Through(policy::Event event, policy::Time now);

  // Processes whose time is kept.
  size_t clocks() const { return clocks_.size(); }

 private:
  struct Clock {
    policy::Time at{};
    policy::Duration ran{0};
  };
  void Begin(const policy::ProcId& proc, policy::Time now);
  policy::Duration Ran(const policy::ProcId& proc, policy::Time now);

  int scale_;
  std::function<bool(const policy::ProcId&)> is_frozen_;
  std::map<policy::ProcId, Clock> clocks_;
  std::map<policy::GateId, policy::ProcId> workers_;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_LENS_H_
