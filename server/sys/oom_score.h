// /proc/PID/oom_score_adj (proc_pid_oom_score_adj(5)): whom the OOM killer takes first.
#ifndef HEADROOM_SERVER_SYS_OOM_SCORE_H_
#define HEADROOM_SERVER_SYS_OOM_SCORE_H_

#include "absl/status/status.h"
#include "server/sys/process.h"
#include "server/sys/roots.h"

namespace headroom::sys {

inline constexpr int kOomScoreAdjMax = 1000;

// Makes the process a likelier victim. Never lowers a value: that would need CAP_SYS_RESOURCE, and
// would protect a compiler above the user's shell. NotFound: gone, or another process by now.
absl::Status RaiseOomScoreAdj(const Roots& roots, const ProcessId& id, int value);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_OOM_SCORE_H_
