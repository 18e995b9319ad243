// Tokens: as many as memory and cores bear, shared fairly, steady when nothing binds.
#include "server/policy/share.h"

#include <algorithm>

#include "tests/unit/policy/fixture.h"

namespace headroom::policy::share_test {
namespace {

void Hint(Host& host, const char* driver, int count, int fan_out, LaneId id = kLane) {
  LaneHint hint;
  hint.id = id;
  hint.edges = {{driver, count, fan_out}};
  host.Feed(hint);
}

LaneSample Fifo(LaneId id, int idle, int clients = 1) {
  return LaneSample{id, idle, clients, {}, {}};
}

ReasonCode LastCode(const std::vector<Action>& actions) {
  ReasonCode code = ReasonCode::kOwnEnd;
  for (const Action& action : actions) {
    if (const auto* mint = std::get_if<Mint>(&action)) code = mint->reason.code;
    if (const auto* collect = std::get_if<Collect>(&action)) code = collect->reason.code;
  }
  return code;
}

TEST_CASE("with plenty of memory the pool is the cores, and stays") {
  Host host(GiB(256));
  host.Feed(host.Open(16));
  Hint(host, "other", 3000, 1);
  host.ObeyAll();
  CHECK(host.Lane().minted == 15);
  host.Look({Fifo(kLane, 0)});
  host.Take();
  int job = 100;
  for (int i = 0; i < 500; ++i) {
    host.Wait(Sec(0.02));
    JobSeen seen;
    seen.job = {job, 1};
    seen.lane = kLane;
    seen.driver = "other";
    host.Feed(seen);
    if (i > 15) host.Feed(JobGone{ProcId{job - 15, 1}});
    ++job;
    host.Look({Fifo(kLane, i % 16 == 0 ? 1 : 0)});
  }
  const std::vector<Action> actions = host.Take();
  CHECK(All<Mint>(actions).empty());
  CHECK(All<Collect>(actions).empty());
}

TEST_CASE("the first batch follows the build file (a ninja that does not wake must get it right)") {
  Host light(GiB(32));
  light.Feed(light.Open(16));
  Hint(light, "c++", 500, 1);
  light.ObeyAll();
  Host heavy(GiB(32));
  heavy.Feed(heavy.Open(16));
  Hint(heavy, "nvcc", 500, 4);
  heavy.ObeyAll();
  CHECK(light.Lane().minted >= 9);
  CHECK(heavy.Lane().minted <= 1);
}

TEST_CASE("of an unknown client a few tokens, more as its jobs show what they are") {
  Host host(GiB(64));
  host.Feed(host.Open(32));
  CHECK(LastCode(host.actions) == ReasonCode::kSlowStart);
  host.ObeyAll();
  CHECK(host.Lane().minted == kSlowStartJobs - 1);
  std::vector<int> sizes;
  int job = 100;
  for (int second = 0; second < 8; ++second) {
    host.Wait(Sec(1.1));
    // It uses all it has, on commands that need no compiler.
    for (int i = 0; i <= host.Lane().minted; ++i, ++job) {
      JobSeen seen;
      seen.job = {job, 1};
      seen.lane = kLane;
      seen.driver = "other";
      host.Feed(seen);
      host.Feed(JobGone{ProcId{job, 1}});
    }
    host.Look({Fifo(kLane, host.Lane().minted)});
    host.ObeyAll();
    sizes.push_back(host.Lane().minted);
  }
  CHECK(std::is_sorted(sizes.begin(), sizes.end()));
  CHECK(sizes.back() == 31);
}

TEST_CASE("slow start is left out where even jobs of 4 GB fit on all cores") {
  Host host(GiB(64));
  host.Feed(host.Open(4));
  host.ObeyAll();
  CHECK(host.Lane().minted == 3);
}

TEST_CASE("the option --jobs replaces the cores, also above the machine's") {
  Host host(GiB(256));
  LaneOpened lane = host.Open(2);
  lane.jobs_cap = 16;
  host.Feed(lane);
  Hint(host, "other", 100, 1);
  host.ObeyAll();
  CHECK(host.Lane().minted == 15);
}

TEST_CASE("two builds share the cores, when one ends the other gets them (K7)") {
  Host host(GiB(256));
  const LaneId second{2};
  host.Feed(host.Open(16));
  Hint(host, "other", 1000, 1);
  host.ObeyAll();
  host.Look({Fifo(kLane, 15)});
  host.ObeyAll();
  CHECK(host.Lane().minted == 15);
  host.Feed(host.Open(16, second));
  Hint(host, "other", 1000, 1, second);
  host.ObeyAll();
  host.Look({Fifo(kLane, 7), Fifo(second, host.Lane(second).idle)});
  host.ObeyAll();
  CHECK(host.Lane().target == 7);
  CHECK(host.Lane(second).target == 7);
  host.Feed(LaneClosed{second});
  host.ObeyAll();
  CHECK(host.Lane().minted == 15);
}

TEST_CASE("users first: one with three builds gets no more than one with a single one") {
  Host host(GiB(256));
  for (uint32_t i = 1; i <= 4; ++i) {
    host.Feed(host.Open(16, LaneId{i}, i == 4 ? 2000 : 1000));
    Hint(host, "other", 1000, 1, LaneId{i});
  }
  host.ObeyAll();
  host.Look({Fifo(LaneId{1}, 0), Fifo(LaneId{2}, 0), Fifo(LaneId{3}, 0), Fifo(LaneId{4}, 0)});
  host.ObeyAll();
  int first = 0;
  for (uint32_t i = 1; i <= 3; ++i) first += host.Lane(LaneId{i}).target + 1;
  const int other = host.Lane(LaneId{4}).target + 1;
  // All were out when the later ones came: what is out counts, the rest evens it out.
  CHECK(first + other <= 16 + 3);
  CHECK(other >= 1);
}

TEST_CASE("every client may run one job, whatever memory says") {
  Host host(GiB(4));
  host.Feed(host.Open(8));
  Hint(host, "nvcc", 100, 4);
  host.available = MiB(100);
  host.Look({Fifo(kLane, 0, 3)});
  host.ObeyAll();
  CHECK(host.Lane().minted == 0);
  CHECK(host.Lane().target == 0);
}

TEST_CASE("less memory takes idle tokens back, more brings them again") {
  Host host(GiB(64));
  host.Feed(host.Open(16));
  Hint(host, "c++", 500, 1);
  host.ObeyAll();
  host.Look({Fifo(kLane, host.Lane().minted)});
  host.ObeyAll();
  const int before = host.Lane().minted;
  CHECK(before == 15);
  for (int i = 0; i < 100; ++i) {
    host.Wait(Sec(0.1));
    host.available = std::max(GiB(6), host.available - GiB(1));
    host.Look({Fifo(kLane, host.Lane().idle)});
    host.ObeyAll();
  }
  CHECK(host.Lane().minted < before / 2);
  host.available = GiB(64);
  for (int i = 0; i < 50; ++i) {
    host.Wait(Sec(0.1));
    host.Look({Fifo(kLane, host.Lane().idle)});
    host.ObeyAll();
  }
  CHECK(host.Lane().minted == before);
}

TEST_CASE("noise of a few percent does not move tokens to and fro") {
  Host host(GiB(16));
  host.Feed(host.Open(32));
  Hint(host, "c++", 500, 1);
  host.ObeyAll();
  host.Look({Fifo(kLane, host.Lane().minted)});
  host.ObeyAll();
  host.done.clear();
  for (int i = 0; i < 300; ++i) {
    host.Wait(Sec(0.1));
    host.available = GiB(16) - MiB((i * 37) % 100);
    host.Look({Fifo(kLane, host.Lane().idle)});
    host.ObeyAll();
  }
  int moves = 0;
  for (const Mint& mint : All<Mint>(host.done)) moves += mint.count;
  CHECK(moves <= 4);
}

TEST_CASE("without prediction the pool is the cores, whatever memory says") {
  Host host(GiB(2));
  Configure configure;
  configure.prediction = false;
  host.Feed(configure);
  host.Feed(host.Open(16));
  Hint(host, "nvcc", 100, 4);
  host.ObeyAll();
  CHECK(host.Lane().minted == 15);
}

TEST_CASE("a lane's mixture is what it has still to run, else what it ran") {
  Host host;
  host.Feed(host.Open(4));
  LaneHint hint;
  hint.id = kLane;
  hint.edges = {{"nvcc", 2, 4}, {"c++", 10, 1}};
  host.Feed(hint);
  CHECK(MixtureOf(host.state.profile, host.Lane()).size() == 2);
  for (int i = 0; i < 2; ++i) {
    JobSeen seen;
    seen.job = {50 + i, 1};
    seen.lane = kLane;
    seen.driver = "nvcc";
    seen.fan_out = 4;
    host.Feed(seen);
  }
  const Mixture left = MixtureOf(host.state.profile, host.Lane());
  REQUIRE(left.size() == 1);
  CHECK(host.state.profile.classes[left[0].first].name == "job c++*1");
}

}  // namespace
}  // namespace headroom::policy::share_test
