// Domains: memory limits that nest. The tightest of a lane's binds; the host always counts.
#ifndef HEADROOM_SERVER_POLICY_DOMAIN_H_
#define HEADROOM_SERVER_POLICY_DOMAIN_H_

#include <vector>

#include "server/policy/event.h"
#include "server/policy/state.h"
#include "server/policy/types.h"

namespace headroom::policy {

// What is never planned with: design.md's default is max(3 %, min(7 %, 512 MiB)) of the domain. In
// small cgroups less than 5 % was measured to be too thin for the sampler's delay.
Bytes DefaultReserve(Bytes limit);
// Twice that, where one OOM kill ends the whole build with nothing left to run anything again.
Bytes DefaultReserve(const DomainState& domain);

// The reserve of `domain`: the lane's own wish (null: none), else the configured one, else the
// default.
Bytes ReserveOf(const State& state, const DomainState& domain, const LaneState* lane);

// The domain of that id, or the host where it is unknown or gone. Null: no domain at all.
const DomainState* FindDomain(const State& state, DomainId id);

// Whether the way up from `id` comes back to it: two domains that name each other as parents. No
// state that Step made has such a circle.
bool InCircle(const State& state, DomainId id);

// A sample of one domain; true when its oom_kill counter rose.
bool Update(DomainState& domain, const DomainSample& sample, Time now);

// Takes the domain out; what was in it belongs to its parent.
void Remove(State& state, DomainId id);

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_DOMAIN_H_
