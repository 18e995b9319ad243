// The gate: who may go on, who gives way, and what follows a killed worker.
#include "server/policy/gate.h"

#include <set>

#include "tests/unit/policy/fixture.h"

namespace headroom::policy {
namespace {

GateRequest Ask(uint64_t gate, const char* tool = "cicc", const char* source = "") {
  GateRequest request;
  request.gate = GateId{gate};
  request.lane = kLane;
  request.domain = kHost;
  request.keeper = {static_cast<int>(1000 + gate), 1};
  request.info.tool = tool;
  request.info.source = source;
  request.replayable = true;
  return request;
}

Host Gated(int cores, Bytes limit = GiB(64)) {
  Host host(limit);
  LaneOpened lane = host.Open(cores);
  lane.gated = true;
  host.Feed(lane);
  host.Take();
  return host;
}

void Start(Host& host, uint64_t gate) {
  host.Feed(GateStarted{GateId{gate}, ProcId{static_cast<int>(2000 + gate), 1}});
}

std::vector<uint64_t> Admitted(Host& host) {
  std::vector<uint64_t> gates;
  for (const Admit& admit : All<Admit>(host.Take())) {
    gates.push_back(static_cast<uint64_t>(admit.gate));
  }
  return gates;
}

GateEnded Killed(uint64_t gate, Bytes peak) {
  GateEnded ended;
  ended.gate = GateId{gate};
  ended.end = GateEnd::kKilled;
  ended.code = 9;
  ended.peak = peak;
  return ended;
}

Verdict TheVerdict(Host& host) {
  const std::vector<Verdict> verdicts = All<Verdict>(host.Take());
  REQUIRE(verdicts.size() == 1);
  return verdicts[0];
}

TEST_CASE("one that fits goes on at once, and never more than the cores") {
  Host host = Gated(2, GiB(256));
  host.Feed(Ask(1, "cudafe++"));
  CHECK(Admitted(host) == std::vector<uint64_t>{1});
  Start(host, 1);
  host.Wait(Sec(0.2));
  host.Feed(Ask(2, "cudafe++"));
  host.Feed(Ask(3, "cudafe++"));
  CHECK(Admitted(host) == std::vector<uint64_t>{2});
  Start(host, 2);
  host.Wait(Sec(5));
  host.Feed(Tick{});
  CHECK(Admitted(host).empty());
  GateEnded ended;
  ended.gate = GateId{1};
  host.Feed(ended);
  CHECK(Admitted(host) == std::vector<uint64_t>{3});
}

TEST_CASE("one may always run, however small the domain") {
  Host host = Gated(8, MiB(300));
  host.Feed(Ask(1));
  const std::vector<Admit> admits = All<Admit>(host.Take());
  REQUIRE(admits.size() == 1);
  CHECK(admits[0].reason.code == ReasonCode::kFloor);
  host.Wait(Sec(0.2));
  host.Feed(Ask(2));
  CHECK(Admitted(host).empty());
}

TEST_CASE("a lane of which nothing runs is not kept out by another lane's light work") {
  Host host = Gated(8, GiB(2));
  LaneOpened other = host.Open(8, LaneId{2}, 1001);
  other.gated = true;
  host.Feed(other);
  host.available = MiB(1900);
  host.Look();
  GateRequest light = Ask(1, "cc1", "light.c");
  light.lane = LaneId{2};
  host.Feed(light);
  Start(host, 1);
  host.Take();
  // Unknown, and by its kind larger than all there is.
  host.Feed(Ask(2, "cicc", "giant.cu"));
  host.Wait(Sec(1));
  host.Look();
  CHECK(Admitted(host).empty());

  SECTION("it goes when it has waited") {
    host.Wait(Sec(3));
    host.Look();
    const std::vector<Admit> admits = All<Admit>(host.Take());
    REQUIRE(admits.size() == 1);
    CHECK(admits[0].gate == GateId{2});
    CHECK(admits[0].reason.code == ReasonCode::kFloor);
    Start(host, 2);
    // One of the lane runs: its next waits for memory like everybody.
    host.Feed(Ask(3, "cicc", "next.cu"));
    host.Wait(Sec(10));
    host.Look();
    CHECK(Admitted(host).empty());
  }
  SECTION("not while the memory isn't there") {
    host.available = MiB(10);
    host.Wait(Sec(10));
    host.Look();
    CHECK(Admitted(host).empty());
  }
  SECTION("evicted, it comes back when it would get further than before") {
    GateRequest again = Ask(2, "cicc", "giant.cu");
    again.attempt = 2;
    again.floor = MiB(400);
    host.Feed(again);
    host.available = MiB(700);
    host.Wait(Sec(10));
    host.Look();
    CHECK(Admitted(host).empty());
    host.available = MiB(1900);
    host.Wait(Sec(1));
    host.Look();
    CHECK(Admitted(host) == std::vector<uint64_t>{2});
  }
}

TEST_CASE("descendants of an admitted one are never blocked") {
  Host host = Gated(1, MiB(500));
  host.Feed(Ask(1, "ld"));
  Start(host, 1);
  host.Take();
  GateRequest child = Ask(2, "lto1");
  child.under = GateId{1};
  host.Feed(child);
  const std::vector<Admit> admits = All<Admit>(host.Take());
  REQUIRE(admits.size() == 1);
  CHECK(admits[0].gate == GateId{2});
  CHECK(admits[0].reason.code == ReasonCode::kWaitsForGate);
}

TEST_CASE("of many descendants as many run as there are cores, and one at least") {
  const int cores = GENERATE(1, 4);
  Host host = Gated(cores, GiB(64));
  host.Feed(Ask(1, "ld"));
  Start(host, 1);
  host.Take();
  for (uint64_t i = 2; i <= 65; ++i) {
    GateRequest child = Ask(i, "lto1");
    child.under = GateId{1};
    host.Feed(child);
  }
  size_t running = All<Admit>(host.Take()).size();
  // The first is let go while the linker still counts, those after it once it doesn't.
  CHECK(running >= 1);
  CHECK(running <= static_cast<size_t>(cores));
  std::set<GateId> done;
  for (int round = 0; round < 200 && done.size() < 64; ++round) {
    const auto next =
        std::find_if(host.state.gates.begin(), host.state.gates.end(), [](const auto& entry) {
          return entry.second.phase == GatePhase::kAdmitted && entry.second.under != GateId::kNone;
        });
    if (next != host.state.gates.end()) {
      const GateId id = next->first;  // the entry ends with the process
      done.insert(id);
      Start(host, static_cast<uint64_t>(id));
      GateEnded ended;
      ended.gate = id;
      ended.end = GateEnd::kExit;
      host.Feed(ended);
      host.Feed(GateGone{id});
    }
    host.Wait(Sec(0.2));
    host.Look();
    size_t now = 0;
    for (const auto& [id, gate] : host.state.gates) {
      now += gate.phase == GatePhase::kAdmitted && gate.under != GateId::kNone ? 1 : 0;
    }
    CHECK(now <= static_cast<size_t>(cores));
  }
  CHECK(done.size() == 64);
}

TEST_CASE("one that is to run alone doesn't wait for the process that waits for it") {
  Host host = Gated(8);
  host.Feed(Ask(1, "ld"));
  Start(host, 1);
  for (int attempt = 1; attempt <= 3; ++attempt) {
    GateRequest child = Ask(2, "lto1");
    child.under = GateId{1};
    child.attempt = attempt;
    host.Take();
    host.Feed(child);
    const std::vector<uint64_t> admitted = Admitted(host);
    REQUIRE(admitted == std::vector<uint64_t>{2});
    if (attempt == 3) break;
    Start(host, 2);
    host.Wait(Sec(1));
    ++host.oom_kills;
    host.Look();
    host.Take();
    host.Feed(Killed(2, GiB(3)));
    const Verdict verdict = TheVerdict(host);
    CHECK(verdict.again);
    CHECK(verdict.alone == (attempt == 2));
  }
}

TEST_CASE("an unknown wave is let in slowly where all of it might not fit") {
  Host host = Gated(64, GiB(100));
  for (uint64_t i = 1; i <= 64; ++i) host.Feed(Ask(i));
  const size_t at_once = Admitted(host).size();
  CHECK(at_once >= 1);
  CHECK(at_once <= 30);
}

TEST_CASE("short of memory the youngest is evicted, with what it had reached, and goes first") {
  Host host = Gated(4, GiB(16));
  for (uint64_t i = 1; i <= 3; ++i) {
    host.Feed(Ask(i, "cicc"));
    host.Wait(Sec(1));
    host.Feed(Tick{});
    Start(host, i);
  }
  REQUIRE(Admitted(host).size() == 3);
  for (int t = 1; t <= 10; ++t) {
    host.Wait(Sec(0.1));
    host.available = GiB(15) - MiB(1500 * t);
    host.Look({}, {{ProcId{2001, 1}, MiB(500 * t), Sec(2 + 0.1 * t)},
                   {ProcId{2002, 1}, MiB(500 * t), Sec(1 + 0.1 * t)},
                   {ProcId{2003, 1}, MiB(500 * t), Sec(0.1 * t)}});
    if (!All<Evict>(host.actions).empty()) break;
  }
  const std::vector<Evict> evicts = All<Evict>(host.Take());
  REQUIRE_FALSE(evicts.empty());
  CHECK(evicts[0].gate == GateId{3});
  CHECK(evicts[0].floor >= MiB(4000));
  for (const Evict& evict : evicts) CHECK(evict.gate != GateId{1});  // never the last
  GateEnded ended = Killed(3, MiB(5000));
  ended.end = GateEnd::kEvicted;
  host.Feed(ended);
  const Verdict verdict = TheVerdict(host);
  CHECK(verdict.again);
  CHECK(verdict.reason.code == ReasonCode::kRetryEvicted);
  // Memory is not back yet: nobody is let in.
  host.Feed(Ask(9, "cudafe++"));
  GateRequest again = Ask(3);
  again.attempt = 2;
  again.floor = verdict.floor;
  host.Feed(again);
  CHECK(Admitted(host).empty());
  host.available = GiB(12);
  host.Wait(Sec(1));
  host.Look();
  host.Wait(Sec(1));
  host.Look();
  const std::vector<uint64_t> admitted = Admitted(host);
  REQUIRE_FALSE(admitted.empty());
  CHECK(admitted[0] == 3);
}

TEST_CASE("stopped before its keeper had told of it, it goes on once that has") {
  Host host = Gated(4, GiB(4));
  host.Feed(Ask(1));
  Start(host, 1);
  host.Wait(Sec(0.1));
  const ProcId late{50, 1};
  host.Feed(Tool(50, "cicc", "late.cu"));
  // A machine so busy that nobody has told of it for seconds; meanwhile memory runs short.
  host.Wait(Sec(3));
  for (int t = 1; t <= 20 && All<Freeze>(host.actions).empty(); ++t) {
    host.Wait(Sec(0.1));
    host.available = GiB(4) - MiB(200 * t);
    host.Look({}, {{ProcId{50, 1}, MiB(1), Sec(0.1)}, {ProcId{2001, 1}, MiB(200 * t), Sec(t)}});
  }
  const std::vector<Freeze> freezes = All<Freeze>(host.Take());
  REQUIRE(freezes.size() == 1);
  REQUIRE(freezes[0].proc == late);
  // Still too little for both by what is expected of them: the gate had planned with it before.
  REQUIRE(host.state.procs.front().frozen);
  host.Feed(Ask(2));
  host.state.gates.at(GateId{2}).phase = GatePhase::kAdmitted;
  host.Wait(Sec(0.1));
  host.Feed(GateStarted{GateId{2}, late});
  const std::vector<Thaw> thaws = All<Thaw>(host.Take());
  REQUIRE(thaws.size() == 1);
  CHECK(thaws[0].proc == late);
  // And stays going.
  host.Wait(Sec(1));
  host.Look({}, {{late, MiB(50), Sec(0.2)}, {ProcId{2001, 1}, MiB(4000), Sec(21)}});
  CHECK(All<Freeze>(host.Take()).empty());
}

TEST_CASE("killed with OOM evidence: again, then alone, then the end") {
  Host host = Gated(4, GiB(4));
  host.Feed(Ask(1));
  for (int attempt = 1;; ++attempt) {
    INFO("attempt " << attempt);
    REQUIRE(Admitted(host) == std::vector<uint64_t>{1});
    Start(host, 1);
    ++host.oom_kills;
    host.Look();
    host.Take();
    host.Feed(Killed(1, GiB(3)));
    const Verdict verdict = TheVerdict(host);
    if (attempt == 1) {
      CHECK(verdict.again);
      CHECK_FALSE(verdict.alone);
      CHECK(verdict.floor >= GiB(3));
      CHECK(verdict.reason.code == ReasonCode::kRetryOomKill);
    } else {
      // Nothing else ran: it needs more than there is.
      CHECK_FALSE(verdict.again);
      CHECK(verdict.reason.code == ReasonCode::kTooBig);
      break;
    }
    GateRequest again = Ask(1);
    again.attempt = attempt + 1;
    host.Feed(again);
  }
  CHECK(host.state.gates.empty());
}

TEST_CASE("five tries after OOM kills when others always run beside it") {
  Host host = Gated(8, GiB(64));
  GateRequest used = Ask(1);
  used.oom_kills = kMostOomTries - 1;  // an earlier daemon saw four
  used.attempt = kMostOomTries;
  host.Feed(Ask(2, "cudafe++"));
  Start(host, 2);
  host.Feed(used);
  host.Wait(Sec(1));
  host.Feed(Tick{});
  host.Take();
  Start(host, 1);
  ++host.oom_kills;
  host.Look();
  host.Take();
  host.Feed(Killed(1, GiB(3)));
  const Verdict verdict = TheVerdict(host);
  CHECK_FALSE(verdict.again);
  CHECK(verdict.reason.code == ReasonCode::kTriesUsedUp);
}

TEST_CASE("killed without evidence: twice again, and memory is not blamed") {
  Host host = Gated(4);
  host.Feed(Ask(1));
  for (int attempt = 1; attempt <= 3; ++attempt) {
    INFO("attempt " << attempt);
    REQUIRE(Admitted(host) == std::vector<uint64_t>{1});
    Start(host, 1);
    host.Feed(Killed(1, GiB(1)));
    const Verdict verdict = TheVerdict(host);
    CHECK(verdict.again == (attempt <= kMostKilledTries));
    CHECK(verdict.reason.code ==
          (attempt <= kMostKilledTries ? ReasonCode::kRetryKilled : ReasonCode::kTriesUsedUp));
    CHECK(verdict.floor == Bytes{});
    GateRequest again = Ask(1);
    again.attempt = attempt + 1;
    if (verdict.again) host.Feed(again);
  }
}

TEST_CASE("one OOM kill explains one end") {
  Host host = Gated(4);
  for (uint64_t i = 1; i <= 2; ++i) {
    host.Feed(Ask(i));
    host.Wait(Sec(1));
    host.Feed(Tick{});
    Start(host, i);
  }
  ++host.oom_kills;
  host.Look();
  host.Take();
  host.Feed(Killed(1, GiB(1)));
  CHECK(TheVerdict(host).reason.code == ReasonCode::kRetryOomKill);
  host.Feed(Killed(2, GiB(1)));
  CHECK(TheVerdict(host).reason.code == ReasonCode::kRetryKilled);
}

TEST_CASE("an OOM kill somewhere else on the machine explains nothing") {
  Host host = Gated(4);
  const DomainId cgroup{7};
  DomainSeen seen;
  seen.id = cgroup;
  seen.parent = kHost;
  seen.name = "cgroup";
  seen.limit = GiB(32);
  host.Feed(seen);
  uint64_t in_cgroup = 0;
  const auto look = [&] {
    Sample sample;
    sample.domains.resize(2);
    sample.domains[0].id = kHost;
    sample.domains[0].available = GiB(60);
    sample.domains[0].oom_kills = host.oom_kills;
    sample.domains[1].id = cgroup;
    sample.domains[1].available = GiB(30);
    sample.domains[1].oom_kills = in_cgroup;
    host.Feed(sample);
    host.Take();
  };
  look();
  for (uint64_t i = 1; i <= 2; ++i) {
    GateRequest request = Ask(i);
    request.domain = cgroup;
    host.Feed(request);
    host.Wait(Sec(1));
    host.Feed(Tick{});
    Start(host, i);
  }
  ++host.oom_kills;  // in another cgroup
  look();
  host.Feed(Killed(1, GiB(1)));
  CHECK(TheVerdict(host).reason.code == ReasonCode::kRetryKilled);
  ++host.oom_kills;
  ++in_cgroup;
  look();
  host.Feed(Killed(2, GiB(1)));
  CHECK(TheVerdict(host).reason.code == ReasonCode::kRetryOomKill);
}

TEST_CASE("its own ends are passed on as they are (K19)") {
  Host host = Gated(4);
  host.Feed(Ask(1));
  Start(host, 1);
  ++host.oom_kills;
  host.Look();
  host.Take();
  GateEnded crash = Killed(1, GiB(1));
  crash.end = GateEnd::kSignal;
  crash.code = 11;
  host.Feed(crash);
  const Verdict verdict = TheVerdict(host);
  CHECK_FALSE(verdict.again);
  CHECK(verdict.reason.code == ReasonCode::kOwnEnd);

  host.Feed(Ask(2));
  host.Take();
  Start(host, 2);
  GateEnded exited;
  exited.gate = GateId{2};
  exited.code = 1;
  host.Feed(exited);
  CHECK(All<Verdict>(host.Take()).empty());
}

TEST_CASE("what can't be replayed is neither evicted nor run again") {
  Host host = Gated(4, GiB(4));
  GateRequest request = Ask(1);
  request.replayable = false;
  host.Feed(request);
  Start(host, 1);
  ++host.oom_kills;
  host.Look();
  host.Take();
  host.Feed(Killed(1, GiB(3)));
  const Verdict verdict = TheVerdict(host);
  CHECK_FALSE(verdict.again);
  CHECK(verdict.reason.code == ReasonCode::kNotReplayable);
}

TEST_CASE("keepers that register again after a restart are running") {
  Host host = Gated(2);
  GateRequest known = Ask(1);
  known.worker = {77, 5};
  host.Feed(known);
  CHECK(Admitted(host).empty());
  CHECK(host.state.gates.at(GateId{1}).phase == GatePhase::kRunning);
  REQUIRE(host.state.procs.size() == 1);
  CHECK(host.state.procs[0].proc == ProcId{77, 5});
  host.Feed(GateGone{GateId{1}});
  CHECK(host.state.gates.empty());
  CHECK(host.state.procs.empty());
}

TEST_CASE("tokens are for light work as well: minted beyond the jobs that wait") {
  Host host = Gated(4, GiB(4));
  CHECK(host.Lane().target == 3);
  for (uint64_t i = 1; i <= 40; ++i) {
    GateRequest request = Ask(i);
    request.job = {static_cast<int>(500 + i / 4), 1};  // four chains a job
    host.Feed(request);
    if (i == 8) CHECK(host.Lane().target == 3 + 2);
  }
  CHECK(host.Lane().target == 3 + 10);
  for (uint64_t i = 41; i <= 100; ++i) host.Feed(Ask(i));
  CHECK(host.Lane().target == 4 * kMostTokensPerCore - 1);
}

TEST_CASE("longest expected work first, and nobody waits forever") {
  Host host = Gated(1, GiB(64));
  host.Feed(Ask(1, "cudafe++"));
  Start(host, 1);
  host.Take();
  host.Feed(Ask(2, "cudafe++"));
  host.Feed(Ask(3, "cicc"));
  GateEnded ended;
  ended.gate = GateId{1};
  host.Feed(ended);
  CHECK(Admitted(host) == std::vector<uint64_t>{3});
  Start(host, 3);
  // The short one has waited for long when the next long one comes.
  host.Wait(Sec(200));
  host.Feed(Ask(4, "cicc"));
  ended.gate = GateId{3};
  host.Feed(ended);
  CHECK(Admitted(host) == std::vector<uint64_t>{2});
}

TEST_CASE("events that name nothing known change nothing") {
  Host host = Gated(2);
  const State before = host.state;
  host.Feed(GateStarted{GateId{9}, ProcId{1, 1}});
  host.Feed(Killed(9, GiB(1)));
  host.Feed(GateGone{GateId{9}});
  GateRequest lost = Ask(5);
  lost.lane = LaneId{77};
  host.Feed(lost);
  CHECK(host.state.gates == before.gates);
}

}  // namespace
}  // namespace headroom::policy
