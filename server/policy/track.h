// Who runs: jobs and tool processes come, are measured, and go; what they took is learned.
#ifndef HEADROOM_SERVER_POLICY_TRACK_H_
#define HEADROOM_SERVER_POLICY_TRACK_H_

#include <vector>

#include "server/policy/event.h"
#include "server/policy/state.h"

namespace headroom::policy {

// Null: not known.
ProcState* FindProc(State& state, ProcId proc);
const ProcState* FindProc(const State& state, ProcId proc);
JobState* FindJob(State& state, ProcId job);
const JobState* FindJob(const State& state, ProcId job);
// The same where processes are gone through in their order: mostly it is `last`, that of the
// process before (null: none), or the one after.
JobState* FindJob(State& state, ProcId job, JobState* last);

void Track(State& state, const JobSeen& seen, Time now);
void Track(State& state, const JobGone& gone);
void Track(State& state, const ProcSeen& seen, Time now);
// `learn`: it ended by itself, so that its peak is what it needed.
void Forget(State& state, ProcId proc, bool learn);
// All of a round of the sampler.
void Track(State& state, const std::vector<ProcSample>& samples, Time now);

// The lane is gone: what still runs of it is foreign from now on.
void Disown(State& state, LaneId lane);

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_TRACK_H_
