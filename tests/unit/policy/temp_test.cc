// K9: temporary files as a second budget, on a simulated disk.
#include "server/policy/temp.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/unit/policy/fixture.h"

namespace headroom::policy {
namespace {

constexpr int kCores = 16;

ProcId Job(int number) {
  return {3000 + number, 1};
}

// Jobs of two tools one after the other, each of which writes half of its job's files in its first
// second and keeps them until the job's end, on a disk of `disk` bytes. The gate's answers are
// carried out at once.
struct Disk {
  Host host{GiB(256)};
  Bytes size, used, most_used, each;
  int jobs_done = 0, most_jobs = 0;
  struct Running {
    int job = 0;
    bool second = false;
    double since = 0;
  };
  std::map<uint64_t, Running> running;  // by gate
  std::map<uint64_t, Running> waiting;
  std::map<int, Bytes> written;
  double clock = 0;

  Disk(Bytes disk, Bytes of_job, bool told = true) : size(disk), each(of_job) {
    LaneOpened lane = host.Open(kCores);
    lane.gated = true;
    host.Feed(lane);
    if (told) Look();
    host.Take();
  }
  void Look() {
    Sample sample;
    sample.temps.push_back({kLane, size - used});
    host.Feed(sample);
  }
  void Ask(int job, bool second) {
    GateRequest request;
    request.gate = GateId{static_cast<uint64_t>(job) * 2 + (second ? 1 : 0) + 1};
    request.lane = kLane;
    request.domain = kHost;
    request.keeper = {10000 + job * 2 + (second ? 1 : 0), 1};
    request.info.tool = second ? "ptxas" : "cudafe++";
    request.replayable = true;
    request.job = Job(job);
    waiting[static_cast<uint64_t>(request.gate)] = {job, second, 0};
    host.Feed(request);
  }
  void Begin(int job) {
    JobSeen seen;
    seen.job = Job(job);
    seen.lane = kLane;
    seen.driver = "nvcc";
    host.Feed(seen);
    Ask(job, false);
  }
  // Half a second.
  void Turn(bool look) {
    for (const Admit& admit : All<Admit>(host.Take())) {
      const auto gate = static_cast<uint64_t>(admit.gate);
      Running run = waiting.at(gate);
      run.since = clock;
      running[gate] = run;
      waiting.erase(gate);
      host.Feed(GateStarted{admit.gate, ProcId{static_cast<int>(40000 + gate), 1}});
    }
    clock += 0.5;
    host.Wait(Sec(0.5));
    std::set<int> open;
    for (const auto& [gate, run] : running) {
      Bytes& of = written[run.job];
      const Bytes wanted = each / 2 * (run.second ? 2 : 1);
      of = std::min(wanted, of + each / 4);
    }
    for (const auto& [gate, run] : std::map(running)) {
      if (clock - run.since < 2) continue;
      running.erase(gate);
      GateEnded ended;
      ended.gate = GateId{gate};
      host.Feed(ended);
      if (!run.second) {
        Ask(run.job, true);
      } else {
        written.erase(run.job);
        ++jobs_done;
        host.Feed(JobGone{Job(run.job)});
      }
    }
    used = Bytes{};
    for (const auto& [job, bytes] : written) used += bytes;
    most_used = std::max(most_used, used);
    most_jobs = std::max(most_jobs, static_cast<int>(written.size()));
    if (look) Look();
    host.Feed(Tick{});
  }
  void Build(int jobs, bool look = true) {
    for (int job = 0; job < jobs; ++job) Begin(job);
    for (int turns = 0; jobs_done < jobs && turns < 2000; ++turns) Turn(look);
  }
};

TEST_CASE("a small disk for temporary files is never filled, and the build goes on (K9)") {
  // 64 MB, 20 MB a job: three fit.
  Disk disk(MiB(64), MiB(20));
  disk.Build(30);
  CHECK(disk.jobs_done == 30);
  CHECK(disk.most_used <= MiB(64));
  CHECK(disk.most_jobs >= 2);
}

TEST_CASE("without that look the same build fills it: the test can fail") {
  Disk disk(MiB(64), MiB(20), false);
  disk.Build(30, false);
  CHECK(disk.jobs_done == 30);
  CHECK(disk.most_used > MiB(64));
}

TEST_CASE("a disk that one job fills holds one job at a time") {
  Disk disk(MiB(30), MiB(28));
  disk.Build(6);
  CHECK(disk.jobs_done == 6);
  CHECK(disk.most_jobs == 1);
}

TEST_CASE("a large disk holds nothing back") {
  Disk disk(GiB(100), MiB(200));
  disk.Build(40);
  CHECK(disk.jobs_done == 40);
  CHECK(disk.most_jobs >= kCores);
}

TEST_CASE("what others write on the disk is not put down to the jobs") {
  State state;
  state.lanes[kLane].id = kLane;
  Observe(state, {kLane, GiB(10)});
  Observe(state, {kLane, GiB(4)});  // no job has begun: somebody else's
  const TempState& temp = state.lanes.at(kLane).temp;
  CHECK(temp.most == GiB(4));
  CHECK(temp.each == Bytes{});
  CHECK(TempOfJob(temp) == MiB(256));
  JobState job;
  job.job = Job(1);
  job.lane = kLane;
  job.begun = true;
  state.jobs.push_back(job);
  Observe(state, {kLane, GiB(4) - MiB(100)});
  CHECK(temp.each == MiB(100));
  CHECK(TempOfJob(temp) == MiB(256));
  // All of a disk at once is no job's.
  Observe(state, {kLane, Bytes{-5}});
  CHECK(temp.free == Bytes{});
  CHECK(temp.each == GiB(2));
  // Of a lane that is gone.
  Observe(state, {LaneId{9}, GiB(1)});
}

}  // namespace
}  // namespace headroom::policy
