// K17: one source bigger than the machine, which gets through by swapping.
#include "tests/unit/policy/fixture.h"

namespace headroom::policy::swap_test {
namespace {

constexpr Bytes kLimit = GiB(8);

GateRequest Ask(uint64_t gate, const char* source, Bytes floor = {}) {
  GateRequest request;
  request.gate = GateId{gate};
  request.lane = kLane;
  request.domain = kHost;
  request.keeper = {static_cast<int>(1000 + gate), 1};
  request.info.tool = "cicc";
  request.info.source = source;
  request.replayable = true;
  request.floor = floor;
  return request;
}

// What the kernel shows of a process of `size` beside others of `rest`: resident at most what fits.
struct Swapping {
  Bytes resident;
  Bytes available;
};
Swapping Show(Bytes size, Bytes rest) {
  const Bytes room{std::max<int64_t>(0, kLimit.count - rest.count - MiB(200).count)};
  const Bytes resident = std::min(size, room);
  return {resident, Bytes{kLimit.count - rest.count - resident.count}};
}

TEST_CASE("one source bigger than memory runs alone and to its end where there is swap (K17)") {
  Host host(kLimit);
  DomainSeen domain;
  domain.id = kHost;
  domain.name = "host";
  domain.limit = kLimit;
  domain.swap_possible = true;
  host.Feed(domain);
  LaneOpened lane = host.Open(8);
  lane.gated = true;
  host.Feed(lane);

  // Seen before: 12 GB. Two small ones run.
  for (const uint64_t id : {1u, 2u}) {
    host.Feed(Ask(id, "small.cu"));
    host.Wait(Sec(1));
    host.Feed(Tick{});
    host.Feed(GateStarted{GateId{id}, ProcId{static_cast<int>(2000 + id), 1}});
  }
  REQUIRE(All<Admit>(host.Take()).size() == 2);
  // It may start beside them, where they are expected to end before it is large.
  host.Feed(Ask(3, "huge.cu", GiB(12)));
  std::vector<Admit> admits = All<Admit>(host.Take());
  for (const uint64_t id : {1u, 2u}) {
    GateEnded ended;
    ended.gate = GateId{id};
    ended.end = GateEnd::kExit;
    ended.peak = MiB(500);
    host.Feed(ended);
    for (const Admit& admit : All<Admit>(host.Take())) admits.push_back(admit);
  }
  // Alone, at the latest: it can't fit, and swap is nothing to plan with, but one may always run.
  REQUIRE(admits.size() == 1);
  CHECK(admits[0].gate == GateId{3});
  host.Feed(GateStarted{GateId{3}, ProcId{2003, 1}});

  // It grows beyond the machine; more come. It runs alone, and nothing is done to it.
  uint64_t swapped_in = 0;
  for (int t = 1; t <= 60; ++t) {
    host.Wait(Sec(1));
    const Swapping seen = Show(MiB(200 * t), Bytes{0});
    host.available = seen.available;
    swapped_in += MiB(200 * t) > kLimit ? 20'000u : 0u;
    Sample sample;
    DomainSample now;
    now.id = kHost;
    now.available = host.available;
    now.swap_in_pages = swapped_in;
    now.psi_full_avg10 = Permyriad{swapped_in > 0 ? 4000 : 0};
    sample.domains.push_back(now);
    sample.procs.push_back({ProcId{2003, 1}, seen.resident, Sec(0.6 * t)});
    host.Feed(sample);
    if (t == 40) {
      for (const uint64_t id : {4u, 5u}) host.Feed(Ask(id, "other.cu"));
    }
    CHECK(All<Admit>(host.actions).empty());
    CHECK(All<Evict>(host.actions).empty());
    CHECK(All<Freeze>(host.actions).empty());
    host.Take();
  }
  GateEnded ended;
  ended.gate = GateId{3};
  ended.end = GateEnd::kExit;
  ended.peak = GiB(8);
  host.Feed(ended);
  host.available = kLimit - MiB(200);
  host.Wait(Sec(1));
  host.Look();
  CHECK_FALSE(All<Admit>(host.Take()).empty());
}

}  // namespace
}  // namespace headroom::policy::swap_test
