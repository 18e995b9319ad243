#include "server/daemon/status.h"

#include <catch2/catch.hpp>
#include <string>

#include "server/policy/step.h"

using namespace headroom;
using daemon::BuildStatus;
using daemon::StatusFacts;
using policy::DomainId;
using policy::LaneId;
using policy::MiB;
using policy::ReasonCode;

namespace {

constexpr DomainId kHost{1};
constexpr DomainId kGroup{2};
constexpr DomainId kOther{3};

policy::DomainState Domain(DomainId id, DomainId parent, const char* name, int64_t limit_mib,
                           int64_t available_mib) {
  policy::DomainState domain;
  domain.id = id;
  domain.parent = parent;
  domain.name = name;
  domain.limit = MiB(limit_mib);
  domain.available = MiB(available_mib);
  domain.sampled = true;
  return domain;
}

struct StatusWorld {
  policy::State state;
  StatusFacts facts;
  policy::Time now{std::chrono::seconds(100)};

  StatusWorld() {
    state.domains[kHost] = Domain(kHost, DomainId::kNone, "host", 8000, 5000);
    state.domains[kGroup] = Domain(kGroup, kHost, "/build", 2000, 1500);
    state.domains[kOther] = Domain(kOther, kHost, "/tight", 100, 1);
    facts.plans[kHost] = {MiB(400), MiB(1000)};
    facts.plans[kGroup] = {MiB(100), MiB(600)};
    facts.version = "1.2.3";
    facts.pid = 77;
    facts.uptime = std::chrono::seconds(5);
  }

  policy::LaneState& AddLane(uint32_t id, DomainId domain, uint32_t uid) {
    policy::LaneState& lane = state.lanes[LaneId{id}];
    lane.id = LaneId{id};
    lane.name = "run-" + std::to_string(id);
    lane.domain = domain;
    lane.uid = uid;
    lane.cores = 8;
    lane.minted = 5;
    lane.idle = 2;
    lane.target = 6;
    lane.debt = 1;
    lane.clients = 1;
    return lane;
  }
  void AddJob(int32_t pid, uint32_t lane, const char* source) {
    policy::JobState job;
    job.job = {pid, 1};
    job.lane = LaneId{lane};
    job.driver = "nvcc";
    job.source = source;
    job.use.since = policy::Time(std::chrono::seconds(90));
    state.jobs.push_back(job);
  }
  void AddProc(int32_t pid, int32_t job, bool frozen) {
    policy::ProcState proc;
    proc.proc = {pid, 1};
    proc.job = {job, 1};
    proc.frozen = frozen;
    proc.use.anon = MiB(150);
    state.procs.push_back(proc);
  }
  v1::Status Build(uid_t viewer = 0) const { return BuildStatus(state, facts, now, viewer); }
};

}  // namespace

TEST_CASE("memory is that of the tightest domain of any lane") {
  StatusWorld world;
  SECTION("without lanes: the host") {
    const auto status = world.Build();
    CHECK(status.memory().domain() == "host");
    CHECK(status.memory().total() == uint64_t{8000} << 20);
    CHECK(status.memory().available() == int64_t{5000} << 20);
    CHECK(status.memory().reserve() == uint64_t{400} << 20);
    CHECK(status.memory().expected_growth() == uint64_t{1000} << 20);
    CHECK(status.memory().headroom() == int64_t{3600} << 20);
    CHECK(status.has_pool());
    CHECK(status.pool().minted() == 0);
    CHECK(status.version() == "1.2.3");
    CHECK(status.pid() == 77);
    CHECK(status.uptime_ns() == 5'000'000'000);
  }
  SECTION("a lane's own") {
    world.AddLane(1, kGroup, 1000);
    CHECK(world.Build().memory().domain() == "/build");
  }
  SECTION("one above it") {
    world.AddLane(1, kGroup, 1000);
    world.facts.plans[kHost].expected_growth = MiB(4500);
    CHECK(world.Build().memory().domain() == "host");
    CHECK(world.Build().memory().headroom() == int64_t{100} << 20);
  }
  SECTION("a lane whose domain is gone, and a circle of parents") {
    world.AddLane(1, DomainId{99}, 1000);
    CHECK(world.Build().memory().domain() == "host");
    world.state.domains[kGroup].parent = kOther;
    world.state.domains[kOther].parent = kGroup;
    world.AddLane(2, kGroup, 1000);
    CHECK(world.Build().memory().domain() == "/tight");
  }
  SECTION("that of a tool at the gate, below the lane's; not one that was never looked at") {
    world.AddLane(1, kHost, 1000);
    CHECK(world.Build().memory().domain() == "host");
    policy::GateState gate;
    gate.gate = policy::GateId{7};
    gate.lane = LaneId{1};
    gate.domain = kGroup;
    world.state.gates[gate.gate] = gate;
    CHECK(world.Build().memory().domain() == "/build");
    CHECK(world.Build().memory().total() == uint64_t{2000} << 20);
    CHECK(world.Build().lanes(0).waits_in().domain() == "/build");
    world.state.domains[kGroup].sampled = false;
    CHECK(world.Build().memory().domain() == "host");
  }
  SECTION("that of a tool that no gate holds, below the lane's") {
    world.AddLane(1, kHost, 1000);
    policy::ProcState proc;
    proc.proc = {9, 1};
    proc.domain = kGroup;
    world.state.procs.push_back(proc);
    CHECK(world.Build().memory().domain() == "host");  // of no lane
    world.state.procs[0].lane = LaneId{1};
    CHECK(world.Build().memory().domain() == "/build");
  }
  SECTION("nothing known at all") {
    CHECK_FALSE(BuildStatus({}, {}, {}, 0).has_memory());
  }
}

TEST_CASE("lanes, jobs and pools") {
  StatusWorld world;
  world.AddLane(1, kGroup, 1000);
  world.AddLane(2, kHost, 1001).kind = policy::LaneKind::kShared;
  world.facts.lanes[LaneId{1}].dir = "/run/headroom/1000/run-1";
  world.AddJob(10, 1, "a.cu");
  world.AddJob(20, 2, "secret.cu");
  world.AddJob(30, 1, "b.cu");
  world.AddProc(11, 10, true);
  world.AddProc(12, 10, false);
  world.AddProc(31, 30, true);
  world.AddProc(32, 30, true);
  world.facts.predicted[{10, 1}] = MiB(900);
  world.facts.predicted_gates[policy::GateId{1}] = MiB(20);
  policy::GateState gate;
  gate.lane = LaneId{1};
  gate.keeper = {40, 1};
  gate.tool = "cicc";
  gate.source = "c.cu";
  gate.floor = MiB(50);
  gate.asked_at = policy::Time(std::chrono::seconds(99));
  world.state.gates[policy::GateId{1}] = gate;
  // Runs in a job that is listed.
  gate.phase = policy::GatePhase::kRunning;
  gate.job = {30, 1};
  world.state.gates[policy::GateId{2}] = gate;

  const auto status = world.Build(1000);
  CHECK(status.pool().minted() == 10);
  CHECK(status.pool().idle() == 4);
  CHECK(status.pool().out() == 6);
  CHECK(status.pool().target() == 12);
  CHECK(status.pool().debt() == 2);
  REQUIRE(status.lanes_size() == 2);
  const auto& own = status.lanes(0);
  CHECK(own.kind() == "own");
  CHECK(own.dir() == "/run/headroom/1000/run-1");
  CHECK(own.cores() == 8);
  REQUIRE(own.jobs_size() == 3);
  CHECK(own.jobs(0).source() == "a.cu");
  CHECK(own.jobs(0).state() == "running");
  // The sum over its tool processes, as the job's own is kept in lanes without a gate alone.
  CHECK(own.jobs(0).bytes() == uint64_t{300} << 20);
  CHECK(own.jobs(0).predicted_peak() == uint64_t{900} << 20);
  CHECK(own.jobs(0).age_ns() == 10'000'000'000);
  CHECK(own.jobs(1).state() == "frozen");
  CHECK(own.jobs(2).state() == "waiting");
  CHECK(own.jobs(2).driver() == "cicc");
  CHECK(own.jobs(2).predicted_peak() == uint64_t{50} << 20);
  CHECK(own.jobs(2).age_ns() == 1'000'000'000);

  const auto& shared = status.lanes(1);
  CHECK(shared.kind() == "shared");
  REQUIRE(shared.jobs_size() == 1);
  // Another user's: seen, but not what it is.
  CHECK(shared.jobs(0).pid() == 20);
  CHECK(shared.jobs(0).source().empty());
  CHECK(world.Build(0).lanes(1).jobs(0).source() == "secret.cu");
}

TEST_CASE("a status of any size fits into a frame") {
  StatusWorld world;
  world.AddLane(1, kHost, 1000);
  for (int32_t i = 0; i < 10'000; ++i) {
    world.AddJob(i + 1, 1, "csrc/flash_attn/src/flash_bwd_hdim128_bf16_causal_sm80_and_more.cu");
    world.AddProc(100'000 + i, i + 1, false);
  }
  const auto status = world.Build();
  CHECK(status.lanes(0).jobs_size() == static_cast<int>(daemon::kMostJobs));
  CHECK(status.ByteSizeLong() < size_t{1} << 20);
  REQUIRE(status.notes_size() == 1);
  CHECK(status.notes(0) == "6000 more jobs are not listed");
}

TEST_CASE("numbers below zero never become huge") {
  StatusWorld world;
  auto& lane = world.AddLane(1, kHost, 1000);
  lane.minted = 1;
  lane.idle = 3;  // somebody wrote tokens of his own
  lane.debt = -1;
  world.facts.plans[kHost].expected_growth = MiB(-5);
  world.AddJob(10, 1, "");
  world.state.jobs[0].use.since = policy::Time(std::chrono::seconds(500));
  const auto status = world.Build();
  CHECK(status.pool().out() == 0);
  CHECK(status.pool().debt() == 0);
  CHECK(status.memory().expected_growth() == 0);
  CHECK(status.lanes(0).jobs(0).age_ns() == 0);
}

TEST_CASE("why no more jobs start") {
  policy::LaneState lane;
  lane.cores = 8;
  lane.clients = 1;
  lane.minted = 3;
  lane.idle = 1;
  CHECK(daemon::WaitsFor(lane, ReasonCode::kMemoryTight).empty());
  lane.idle = 0;
  CHECK(daemon::WaitsFor(lane, ReasonCode::kMemoryTight).find("memory") == 0);
  CHECK(daemon::WaitsFor(lane, ReasonCode::kFairShare).find("other builds") == 0);
  CHECK(daemon::WaitsFor(lane, ReasonCode::kMemoryFits).empty());
  CHECK(daemon::WaitsFor(lane, std::nullopt).empty());
  lane.minted = 7;
  CHECK(daemon::WaitsFor(lane, ReasonCode::kMemoryTight) == "all 8 cores are in use");
  lane.jobs_cap = 16;
  CHECK(daemon::WaitsFor(lane, ReasonCode::kMemoryFits).empty());
  lane.minted = 15;
  CHECK(daemon::WaitsFor(lane, ReasonCode::kMemoryFits) == "all 16 jobs of --jobs run");
}

TEST_CASE("figures of the plan are the policy's own") {
  StatusWorld world;
  for (auto& [id, domain] : world.state.domains) domain.sampled = true;
  world.state.lanes.clear();
  world.AddLane(1, kGroup, 1000);
  StatusFacts idle;
  daemon::AddOutlook(world.state, idle);
  REQUIRE(idle.plans.size() == 3);
  // max(3 %, min(7 %, 512 MiB)).
  CHECK(idle.plans[kHost].reserve == MiB(512));
  CHECK(idle.plans[kGroup].reserve == MiB(2000) * 7 / 100);
  CHECK(idle.plans[kHost].expected_growth == policy::Bytes{0});
  CHECK(idle.predicted.empty());

  // Jobs in the cgroup count in it and in the host, not beside it.
  for (int i = 0; i < 3; ++i) {
    const policy::ProcId job{10 + i, 1};
    policy::Step(world.state,
                 policy::JobSeen{.job = job,
                                 .lane = LaneId{1},
                                 .client = {5, 1},
                                 .driver = "nvcc",
                                 .source = "kernel_" + std::to_string(i) + ".cu",
                                 .fan_out = 1},
                 world.now);
  }
  REQUIRE(world.state.jobs.size() == 3);
  StatusFacts busy;
  daemon::AddOutlook(world.state, busy);
  CHECK(busy.plans[kGroup].expected_growth > MiB(100));
  CHECK(busy.plans[kHost].expected_growth >= busy.plans[kGroup].expected_growth);
  CHECK(busy.plans[kOther].expected_growth == policy::Bytes{0});
  REQUIRE(busy.predicted.size() == 3);
  CHECK(busy.predicted[policy::ProcId{10, 1}] > MiB(50));
}

TEST_CASE("tools at the gate are listed with what they have and are expected to need") {
  StatusWorld world;
  world.state.lanes.clear();
  world.AddLane(1, kGroup, 1000).gated = true;
  for (const uint64_t id : {1U, 2U}) {
    policy::GateRequest request;
    request.gate = policy::GateId{id};
    request.lane = LaneId{1};
    request.domain = kGroup;
    request.keeper = {static_cast<int>(100 + id), 1};
    request.info.tool = "cicc";
    request.info.source = "a.cu";
    request.replayable = true;
    policy::Step(world.state, request, world.now);
  }
  const policy::ProcId worker{200, 1};
  policy::Step(world.state, policy::GateStarted{policy::GateId{1}, worker}, world.now);
  world.now += std::chrono::seconds(1);
  policy::Sample sample;
  sample.procs.push_back({worker, MiB(300), std::chrono::seconds(1)});
  policy::Step(world.state, sample, world.now);
  daemon::AddOutlook(world.state, world.facts);
  const auto status = world.Build();
  REQUIRE(status.lanes(0).jobs_size() == 2);
  // Below no client that is known (a shell loop), and so of no job.
  const auto& runs = status.lanes(0).jobs(0);
  CHECK(runs.state() == "running");
  CHECK(runs.pid() == 200);
  CHECK(runs.bytes() == uint64_t{300} << 20);
  CHECK(runs.predicted_peak() > uint64_t{300} << 20);
  const auto& waits = status.lanes(0).jobs(1);
  CHECK(waits.state() == "waiting");
  CHECK(waits.pid() == 102);
  CHECK(waits.predicted_peak() > uint64_t{300} << 20);
}
