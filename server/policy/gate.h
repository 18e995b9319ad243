// The gate: which of the tool processes that wait before their main() may go on, which of those
// that run must give way, and what happens after one was killed.
//
// Life of a gated process: GateRequest (waiting) -> Admit -> GateStarted (running) -> GateEnded.
// After an eviction or a Verdict with `again`, its keeper sends GateRequest anew, with the next
// attempt.
#ifndef HEADROOM_SERVER_POLICY_GATE_H_
#define HEADROOM_SERVER_POLICY_GATE_H_

#include <map>
#include <vector>

#include "server/policy/action.h"
#include "server/policy/admit.h"
#include "server/policy/event.h"
#include "server/policy/state.h"

namespace headroom::policy {

// Attempts after an end with OOM evidence; the second of them alone in its domain.
inline constexpr int kMostOomTries = 5;
// Attempts after SIGKILL or SIGTERM to the worker without such evidence.
inline constexpr int kMostKilledTries = 2;

// At most one admission in this time and domain while what runs is not well known: a wave that is
// let in at once shows what it is only when it is too late (measured: a prior that is five times
// too low costs nothing with it, and 33 OOM kills without).
inline constexpr Duration kRamp = std::chrono::milliseconds(100);

// Tokens are for light work as well: minted beyond the cores by as many jobs as wait wholly at the
// gate, up to this many times the cores.
inline constexpr int kMostTokensPerCore = 4;

// Facts.
void Track(State& state, const GateRequest& request, Time now);
void Track(State& state, const GateStarted& started, Time now);
void Track(State& state, const GateEnded& ended, Time now, std::vector<Action>& actions);
void Track(State& state, const GateGone& gone);

// Tokens of each gated lane.
std::map<LaneId, int> GateTokens(const State& state);

// Somebody waits.
bool AnyWaiting(const State& state);

// Evicts where a domain runs short.
void EvictWhereShort(State& state, Plan& plan, Time now, std::vector<Action>& actions);

// What those that still wait are waiting for, as far as no event will tell of it.
struct WaitFor {
  bool memory = false;
  bool time = false;  // a ramp, a hold or a pause that ends by itself
};

// Lets go what fits.
WaitFor AdmitWaiting(State& state, Plan& plan, Time now, std::vector<Action>& actions);

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_GATE_H_
