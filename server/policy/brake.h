// The brake: what happens when reality outruns prediction.
//
// 1. Nothing is minted, nothing admitted. 2. The youngest gated process that can be run again is
// evicted. 3. What can't be evicted is frozen, youngest first, until the rest fits; thawed oldest
// first. Never the last one that makes progress in a domain; where none runs, one is thawed.
//
// Where nothing can be evicted (tokens only), waiting until memory is gone would be too late:
// frozen processes give nothing back. So the youngest are frozen as soon as the *expected* sum of
// what runs no longer fits, while they are still small.
#ifndef HEADROOM_SERVER_POLICY_BRAKE_H_
#define HEADROOM_SERVER_POLICY_BRAKE_H_

#include <vector>

#include "server/policy/action.h"
#include "server/policy/admit.h"
#include "server/policy/state.h"

namespace headroom::policy {

// Sets `braking` of every domain.
void WatchDomains(State& state, const Plan& plan, Time now);

// Freezes and thaws; evicts through the gate.
void Brake(State& state, Plan& plan, Time now, std::vector<Action>& actions);

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_BRAKE_H_
