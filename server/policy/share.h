// How many tokens each lane gets: as many jobs as memory and cores bear, shared fairly.
//
// Users first, then the lanes of one user, always the one that has least (max-min). Lanes without a
// client lend: they get what the others leave. Every lane with a client may run one job, whatever
// memory says: its implicit slot can't be taken away.
//
// An idle token may be taken at any microsecond and nobody knows what it will run: each counts as
// one job of the lane's mixture, which is what its build file still has to run, else what it has
// run so far.
#ifndef HEADROOM_SERVER_POLICY_SHARE_H_
#define HEADROOM_SERVER_POLICY_SHARE_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "server/policy/action.h"
#include "server/policy/admit.h"
#include "server/policy/ledger.h"
#include "server/policy/state.h"

namespace headroom::policy {

// Slow start: jobs of a lane of which nothing is known, at first. Enough to see what they are; few
// enough that even jobs of 20 GB do not kill a machine that has as many cores.
inline constexpr int kSlowStartJobs = 4;
// Doubled after this time, if the jobs so far have been seen: a compiler shows its kind within it.
inline constexpr Duration kSlowStartStep = std::chrono::seconds(1);

// What the jobs behind a lane's free tokens will be: classes and weights. Makes classes as needed.
using Mixture = std::vector<std::pair<uint32_t, double>>;
Mixture MixtureOf(Profile& profile, const LaneState& lane);

// Sets every lane's target and emits the Mint and Collect actions for it. `news`: corrections of
// the ledger that this step found, as reasons.
void ShareTokens(State& state, Plan& plan, const std::map<LaneId, Mixture>& mixtures,
                 const std::map<LaneId, LedgerNews>& news, Time now, std::vector<Action>& actions);

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_SHARE_H_
