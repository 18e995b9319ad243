// The policy's one entry: Step. The daemon, the simulator and the trace replayer call the very same
// function. It is pure: no clock, no syscall, no randomness; the same state, event and time give
// the same state and actions on every machine of one build.
//
// How a decision flows: the event changes facts in the state (ledger, domains, processes,
// learned sizes); then, for every domain that the event touched, what is expected of all that runs
// is compared with what is left, and the differences become actions: see docs/hacking.md.
//
// Threading: a State belongs to one thread. Errors: none; an event that names something unknown
// changes nothing (things vanish between an observation and its arrival).
#ifndef HEADROOM_SERVER_POLICY_STEP_H_
#define HEADROOM_SERVER_POLICY_STEP_H_

#include <span>
#include <string>
#include <vector>

#include "server/policy/action.h"
#include "server/policy/event.h"
#include "server/policy/state.h"
#include "server/policy/types.h"

namespace headroom::policy {

std::vector<Action> Step(State& state, const Event& event, Time now);

// Whether a glance at what the domains have left now (nothing else of the samples counts) shows so
// much of their room gone since the last Sample that everything must be looked at: what was to
// happen in the time to the next look has happened already.
bool NeedsLook(const State& state, std::span<const DomainSample> glance);

// What must hold after every step (design.md, Invariants); each string names one that does not,
// with its values. Empty: all hold.
std::vector<std::string> BrokenInvariants(const State& state);

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_STEP_H_
