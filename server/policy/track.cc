#include "server/policy/track.h"

#include <algorithm>

#include "server/policy/predict.h"

namespace headroom::policy {
namespace {

template <typename Vector>
auto LowerBound(Vector& procs, ProcId proc) {
  return std::lower_bound(procs.begin(), procs.end(), proc,
                          [](const ProcState& p, ProcId id) { return p.proc < id; });
}

template <typename Vector>
auto LowerBoundJob(Vector& jobs, ProcId job) {
  return std::lower_bound(jobs.begin(), jobs.end(), job,
                          [](const JobState& j, ProcId id) { return j.job < id; });
}

// Adds to what our processes grew by in a domain and all above it.
void AddOwnGrowth(State& state, DomainId id, Bytes growth) {
  int hops = 0;
  while (id != DomainId::kNone && hops++ < 64) {
    const auto it = state.domains.find(id);
    if (it == state.domains.end()) return;
    it->second.own_growth += growth;
    id = it->second.parent;
  }
}

bool Gated(const State& state, LaneId id) {
  const auto it = state.lanes.find(id);
  return it == state.lanes.end() || it->second.gated;
}

// Processes whose memory and CPU time are part of the job, from now on or no longer.
void Attach(JobState& job, ProcState& proc) {
  proc.in_job = true;
  job.now_anon += proc.use.anon;
  job.now_cpu += proc.use.cpu;
  job.procs += 1;
  job.procs_seen += 1;
  // nvcc's front end is the same for light and heavy kernels; other drivers show at once what they
  // run.
  job.main_seen =
      job.main_seen || (job.driver == "nvcc" ? proc.tool == "cicc" || proc.tool == "ptxas"
                                             : proc.tool != "cpp" && proc.tool != "as");
}

void CountStart(std::vector<HintState>& hints, const std::string& driver, int fan_out, int more) {
  const auto hint = std::find_if(hints.begin(), hints.end(), [&](const HintState& h) {
    return h.driver == driver && h.fan_out == fan_out;
  });
  if (hint != hints.end()) {
    hint->started = std::max(0, hint->started + more);
  } else if (more > 0 && hints.size() < 64) {
    hints.push_back(HintState{driver, fan_out, 0, more});
  }
}

}  // namespace

ProcState* FindProc(State& state, ProcId proc) {
  const auto it = LowerBound(state.procs, proc);
  return it != state.procs.end() && it->proc == proc ? &*it : nullptr;
}

const ProcState* FindProc(const State& state, ProcId proc) {
  const auto it = LowerBound(state.procs, proc);
  return it != state.procs.end() && it->proc == proc ? &*it : nullptr;
}

JobState* FindJob(State& state, ProcId job) {
  const auto it = LowerBoundJob(state.jobs, job);
  return it != state.jobs.end() && it->job == job ? &*it : nullptr;
}

JobState* FindJob(State& state, ProcId job, JobState* last) {
  if (last != nullptr && last->job == job) return last;
  JobState* next = last == nullptr ? state.jobs.data() : last + 1;
  if (next != state.jobs.data() + state.jobs.size() && next->job == job) return next;
  return FindJob(state, job);
}

const JobState* FindJob(const State& state, ProcId job) {
  const auto it = LowerBoundJob(state.jobs, job);
  return it != state.jobs.end() && it->job == job ? &*it : nullptr;
}

void Track(State& state, const JobSeen& seen, Time now) {
  const auto lane = state.lanes.find(seen.lane);
  if (!seen.job || lane == state.lanes.end()) return;
  const auto it = LowerBoundJob(state.jobs, seen.job);
  if (it != state.jobs.end() && it->job == seen.job) {
    const int fan_out = std::max(1, seen.fan_out);
    if (it->driver == seen.driver && it->fan_out == fan_out) return;
    CountStart(lane->second.hints, it->driver, it->fan_out, -1);
    CountStart(lane->second.hints, seen.driver, fan_out, 1);
    it->driver = seen.driver;
    it->source = seen.source;
    it->fan_out = fan_out;
    it->klass = JobClass(state.profile, seen.driver, fan_out, seen.source);
    return;
  }
  JobState job;
  job.job = seen.job;
  job.lane = seen.lane;
  job.client = seen.client;
  job.driver = seen.driver;
  job.source = seen.source;
  job.fan_out = std::max(1, seen.fan_out);
  job.klass = JobClass(state.profile, seen.driver, job.fan_out, seen.source);
  job.use.since = now;
  lane->second.jobs_seen += 1;
  CountStart(lane->second.hints, seen.driver, job.fan_out, 1);
  const bool gated = lane->second.gated;
  for (ProcState& proc : state.procs) {
    if (proc.job == seen.job && !gated && proc.gate == GateId::kNone) Attach(job, proc);
  }
  state.jobs.insert(it, std::move(job));
}

void Track(State& state, const JobGone& gone) {
  const auto it = LowerBoundJob(state.jobs, gone.job);
  if (it == state.jobs.end() || it->job != gone.job) return;
  const auto lane = state.lanes.find(it->lane);
  if (lane != state.lanes.end()) {
    lane->second.jobs_ended += 1;
    if (it->begun && lane->second.temp.each.count > 0) lane->second.temp.learned = true;
  }
  if (it->procs > 0) {
    for (ProcState& proc : state.procs) {
      if (proc.job == gone.job) proc.in_job = false;
    }
  }
  // A job of which no tool process was ever seen is a light one.
  if (it->use.sampled_at == Time{}) it->use.sampled_at = it->use.since;
  if (lane == state.lanes.end() || !lane->second.gated) Learn(state.profile, it->klass, it->use);
  state.jobs.erase(it);
}

void Track(State& state, const ProcSeen& seen, Time now) {
  if (!seen.proc) return;
  const auto it = LowerBound(state.procs, seen.proc);
  if (it != state.procs.end() && it->proc == seen.proc) {
    // Seen by a scan first, then named by its keeper (or the other way round).
    if (seen.gate != GateId::kNone) it->gate = seen.gate;
    return;
  }
  ProcState proc;
  proc.proc = seen.proc;
  proc.job = seen.job;
  proc.lane = seen.lane;
  proc.domain = seen.domain;
  proc.gate = seen.gate;
  proc.uid = seen.uid;
  proc.tool = seen.info.tool;
  proc.source = seen.info.source;
  proc.flags_hash = seen.info.flags_hash;
  proc.input_bytes = seen.info.input_bytes;
  proc.klass = ToolClass(state.profile, proc.tool, proc.source);
  proc.use.since = now;
  JobState* job = seen.job ? FindJob(state, seen.job) : nullptr;
  if (job != nullptr && seen.gate == GateId::kNone && !Gated(state, job->lane)) {
    Attach(*job, proc);
  }
  state.procs.insert(it, std::move(proc));
}

void Forget(State& state, ProcId id, bool learn) {
  const auto it = LowerBound(state.procs, id);
  if (it == state.procs.end() || it->proc != id) return;
  if (learn) Learn(state.profile, it->klass, it->use, it->input_bytes);
  if (it->in_job) {
    if (JobState* job = FindJob(state, it->job); job != nullptr) {
      // Its CPU time stays with the job.
      job->now_anon -= it->use.anon;
      job->procs -= 1;
    }
  }
  AddOwnGrowth(state, it->domain, -it->use.anon);
  state.procs.erase(it);
}

void Track(State& state, const std::vector<ProcSample>& samples, Time now) {
  DomainId domain = DomainId::kNone;
  Bytes growth;
  JobState* job = nullptr;  // of the process before: mostly the same
  size_t next = 0;          // samples come in the order of ids: then nothing is searched
  for (const ProcSample& sample : samples) {
    if (next >= state.procs.size() || state.procs[next].proc != sample.proc) {
      const auto it = LowerBound(state.procs, sample.proc);
      if (it == state.procs.end() || it->proc != sample.proc) continue;
      next = static_cast<size_t>(it - state.procs.begin());
    }
    ProcState& proc = state.procs[next];
    ++next;
    const Bytes before = proc.use.anon;
    const Duration cpu_before = proc.use.cpu;
    Update(proc.use, std::max(Bytes{}, sample.anon), sample.cpu, now);
    if (proc.domain != domain) {
      if (growth.count != 0) AddOwnGrowth(state, domain, growth);
      domain = proc.domain;
      growth = Bytes{};
    }
    growth += proc.use.anon - before;
    if (proc.in_job) {
      job = FindJob(state, proc.job, job);
      if (job != nullptr) {
        job->now_anon += proc.use.anon - before;
        job->now_cpu += proc.use.cpu - cpu_before;
      }
    }
  }
  if (growth.count != 0) AddOwnGrowth(state, domain, growth);
  for (JobState& each : state.jobs) {
    if (each.procs_seen == 0) continue;
    if (each.now_anon == each.use.anon && each.now_cpu == each.use.cpu) continue;
    Update(each.use, each.now_anon, each.now_cpu, now);
  }
}

void Disown(State& state, LaneId lane) {
  for (ProcState& proc : state.procs) {
    if (proc.lane != lane) continue;
    proc.lane = LaneId::kNone;
    proc.job = ProcId{};
    proc.in_job = false;
    proc.gate = GateId::kNone;
    proc.frozen = false;
  }
  std::erase_if(state.jobs, [&](const JobState& job) { return job.lane == lane; });
  std::erase_if(state.gates, [&](const auto& entry) { return entry.second.lane == lane; });
}

}  // namespace headroom::policy
