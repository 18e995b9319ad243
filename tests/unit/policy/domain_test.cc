// Domains: reserves, nesting, rates.
#include "server/policy/domain.h"

#include "server/policy/admit.h"
#include "tests/unit/policy/fixture.h"

namespace headroom::policy {
namespace {

DomainSample At(DomainId id, Bytes available, uint64_t oom_kills = 0) {
  DomainSample sample;
  sample.id = id;
  sample.available = available;
  sample.oom_kills = oom_kills;
  return sample;
}

TEST_CASE("the default reserve is the larger of 3 % and the smaller of 7 % and 512 MiB") {
  CHECK(DefaultReserve(MiB(1000)) == MiB(70));
  CHECK(DefaultReserve(GiB(10)) == MiB(512));
  CHECK(DefaultReserve(GiB(100)) == GiB(3));
}

TEST_CASE("where one OOM kill ends the whole build, twice as much is kept") {
  Host host(GiB(10));
  DomainSeen seen;
  seen.id = DomainId{2};
  seen.parent = kHost;
  seen.name = "/pod";
  seen.limit = MiB(1000);
  host.Feed(seen);
  const DomainState& domain = host.state.domains.at(DomainId{2});
  CHECK(ReserveOf(host.state, domain, nullptr) == MiB(70));
  seen.kills_group = true;
  host.Feed(seen);
  CHECK(ReserveOf(host.state, domain, nullptr) == MiB(140));
  seen.limit = GiB(100);
  host.Feed(seen);
  CHECK(ReserveOf(host.state, domain, nullptr) == GiB(6));
  // What is asked for is taken at its word.
  Configure configure;
  configure.reserve.bytes = MiB(10);
  host.Feed(configure);
  CHECK(ReserveOf(host.state, domain, nullptr) == MiB(10));
  seen.kills_group = false;
  host.Feed(seen);
  CHECK(!domain.kills_group);
}

TEST_CASE("a lane's wish comes before the configured reserve, that before the default") {
  Host host(GiB(10));
  const DomainState& domain = host.state.domains.at(kHost);
  CHECK(ReserveOf(host.state, domain, nullptr) == MiB(512));
  Configure configure;
  configure.reserve.share = Permyriad{1000};
  host.Feed(configure);
  CHECK(ReserveOf(host.state, domain, nullptr) == GiB(1));
  LaneState lane;
  lane.reserve_bytes = MiB(100);
  CHECK(ReserveOf(host.state, domain, &lane) == MiB(100));
}

TEST_CASE("the tightest of the nested domains binds (K6: the limit is on the grandparent)") {
  Host host(GiB(64));
  for (uint32_t i = 2; i <= 4; ++i) {
    DomainSeen seen;
    seen.id = DomainId{i};
    seen.parent = DomainId{i - 1};
    seen.name = "cgroup";
    seen.limit = i == 2 ? GiB(2) : GiB(32);
    host.Feed(seen);
  }
  Sample sample;
  sample.domains = {At(DomainId{2}, GiB(2)), At(DomainId{3}, GiB(2)), At(DomainId{4}, GiB(2))};
  host.Feed(sample);
  Plan plan(host.state, {});
  const Plan::Room room = plan.After(plan.DomainOf(DomainId{4}), nullptr, 0, 0, nullptr);
  CHECK(plan.domains()[static_cast<size_t>(room.domain)].id != DomainId{1});
  // Of the three, all at 2 GiB, the default reserve is largest where the limit is.
  LaneOpened lane = host.Open(16);
  lane.domain = DomainId{4};
  host.Feed(lane);
  LaneHint hint;
  hint.id = kLane;
  hint.edges = {{"nvcc", 50, 1}};
  host.Feed(hint);
  host.ObeyAll();
  // 16 cores, 64 GiB on the host, but one nvcc job may take more than 2 GiB.
  CHECK(host.Lane().minted == 0);
}

TEST_CASE("a domain that is gone leaves what was in it to its parent") {
  Host host;
  DomainSeen seen;
  seen.id = DomainId{2};
  seen.parent = kHost;
  seen.limit = GiB(1);
  host.Feed(seen);
  LaneOpened lane = host.Open(4);
  lane.domain = DomainId{2};
  host.Feed(lane);
  host.Feed(DomainGone{DomainId{2}});
  CHECK(host.Lane().domain == kHost);
  host.Feed(DomainGone{kHost});  // the host never goes
  CHECK(host.state.domains.size() == 1);
}

TEST_CASE("a fall of available memory is told apart from our own growth") {
  Host host(GiB(64));
  host.Feed(host.Open(4));
  host.Feed(Tool(10, "cc1plus", "a.cc"));
  Bytes anon;
  for (int i = 1; i <= 40; ++i) {
    host.Wait(Sec(0.1));
    anon += MiB(10);
    host.available -= MiB(30);
    host.Look({}, {{ProcId{10, 1}, anon, Sec(0.1 * i)}});
  }
  const DomainState& domain = host.state.domains.at(kHost);
  CHECK(domain.fill_rate == Approx(300.0 * 1024 * 1024).epsilon(0.1));
  CHECK(domain.foreign_rate == Approx(200.0 * 1024 * 1024).epsilon(0.1));
}

TEST_CASE("what may begin to grow is glanced for, what grows is looked at") {
  Host host(GiB(12));
  host.Feed(host.Open(2));
  LaneSample lane;
  lane.id = kLane;
  lane.clients = 1;
  host.Look({lane});
  host.Feed(Tool(10, "cc1plus", "a.cc"));
  host.Feed(Tool(11, "cc1plus", "b.cc"));
  // Two cores could take 8 GB/s: a tenth of 1.5 s, while all there is stands still.
  for (int i = 0; i < 50; ++i) {
    host.Wait(Sec(0.2));
    host.Look({lane}, {{{10, 1}, MiB(20), Sec(1)}, {{11, 1}, MiB(20), Sec(1)}});
  }
  CHECK(host.state.sampling == Sec(0.25));
  CHECK(host.state.glancing > Sec(0.1));
  CHECK(host.state.glancing < Sec(0.2));
  const Bytes room = host.available - ReserveOf(host.state, host.state.domains.at(kHost), nullptr);
  const auto needs_look = [&](Bytes available) {
    const std::vector<DomainSample> glance = {At(kHost, available)};
    return NeedsLook(host.state, glance);
  };
  CHECK_FALSE(needs_look(host.available + GiB(1)));
  CHECK_FALSE(needs_look(host.available - room * 9 / 100));
  CHECK(needs_look(host.available - room * 11 / 100));
  // Of what is unknown nothing can be said; without room each fall counts.
  const std::vector<DomainSample> unknown = {At(DomainId{7}, Bytes{})};
  CHECK_FALSE(NeedsLook(host.state, unknown));
  host.available = MiB(100);
  host.Look({lane});
  CHECK(needs_look(MiB(99)));
  // 1 GiB/s for a second: looked at often, and no glances in between.
  host.available = GiB(2);
  host.Look({lane});
  for (int i = 0; i < 10; ++i) {
    host.Wait(Sec(0.1));
    host.available = host.available - MiB(102);
    host.Look({lane}, {{{10, 1}, MiB(20 + 102 * (i + 1)), Sec(1)}});
  }
  CHECK(host.state.sampling < Sec(0.25));
  CHECK(host.state.glancing <= host.state.sampling);
}

TEST_CASE("a rise of the kernel's counter is seen, a first sight is not one") {
  DomainState domain;
  CHECK_FALSE(Update(domain, At(kHost, GiB(1), 7), Time{Sec(1)}));
  CHECK_FALSE(Update(domain, At(kHost, GiB(1), 7), Time{Sec(2)}));
  CHECK(Update(domain, At(kHost, GiB(1), 9), Time{Sec(3)}));
  CHECK(domain.oom_unclaimed == 2);
}

TEST_CASE("domains that name each other as parents do no harm, sampled or not") {
  const bool sampled = GENERATE(false, true);
  const bool with_host = GENERATE(false, true);
  Host host;
  // 2 -> 3 -> 4 -> 2, and the host below 4 in one case.
  for (uint32_t i = 2; i <= 4; ++i) {
    DomainSeen seen;
    seen.id = DomainId{i};
    seen.parent = DomainId{i == 4 ? 2 : i + 1};
    seen.limit = GiB(32);
    host.Feed(seen);
    if (sampled) {
      Sample sample;
      sample.domains = {At(seen.id, GiB(32))};
      host.Feed(sample);
    }
  }
  if (with_host) {
    DomainSeen seen;
    seen.id = kHost;
    seen.parent = DomainId{4};
    seen.limit = GiB(64);
    host.Feed(seen);
  }
  for (const auto& [id, domain] : host.state.domains) CHECK_FALSE(InCircle(host.state, id));
  LaneOpened lane = host.Open(4);
  lane.domain = DomainId{3};
  host.Feed(lane);
  ProcSeen seen = Tool(10, "cc1plus", "a.cc");
  seen.domain = DomainId{2};
  host.Feed(seen);
  GateRequest request;
  request.gate = GateId{1};
  request.lane = kLane;
  request.domain = DomainId{4};
  request.keeper = {20, 1};
  request.info.tool = "cicc";
  host.Feed(request);
  host.Wait(Sec(1));
  host.Look({}, {{ProcId{10, 1}, MiB(100), Sec(1)}});
  CHECK(All<Admit>(host.Take()).size() == 1);
  host.Feed(DomainGone{DomainId{3}});
  host.Feed(DomainGone{DomainId{4}});
  host.Feed(Tick{});
}

TEST_CASE("a snapshot with a circle of parents is planned with all the same") {
  const bool sampled = GENERATE(false, true);
  State state;
  for (uint32_t i = 1; i <= 3; ++i) {
    DomainState& domain = state.domains[DomainId{i}];
    domain.id = DomainId{i};
    domain.parent = DomainId{i % 3 + 1};
    domain.sampled = sampled && i != 2;
    domain.limit = domain.available = GiB(8);
  }
  REQUIRE(InCircle(state, DomainId{1}));
  const Plan plan(state, {});
  if (sampled) {
    CHECK(plan.domains().size() == 2);
    const Plan::Room room = plan.After(plan.DomainOf(DomainId{2}), nullptr, 0, 0, nullptr);
    CHECK(room.domain >= 0);
    CHECK(room.bytes > 0);
  } else {
    CHECK(plan.DomainOf(DomainId{2}) == -1);
  }
  Step(state, Tick{}, Time{Sec(1)});
}

}  // namespace
}  // namespace headroom::policy
