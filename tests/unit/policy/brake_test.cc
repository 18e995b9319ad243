// The brake: nothing new, then the youngest stand still, never the last, the oldest go on first.
#include "server/policy/brake.h"

#include <set>

#include "tests/unit/policy/fixture.h"

namespace headroom::policy {
namespace {

// `count` tools of a lane, one a second, each growing by 100 MB a second.
struct Growing {
  explicit Growing(int count, Bytes limit = GiB(8)) : host(limit) {
    host.Feed(host.Open(count));
    for (int i = 0; i < count; ++i) {
      host.Feed(Tool(10 + i, "cicc", ""));
      ages.push_back(0);
      Run(1);
    }
  }

  void Run(double seconds) {
    for (double t = 0; t < seconds - 1e-9; t += 0.05) {
      host.Wait(Sec(0.05));
      std::vector<ProcSample> samples;
      Bytes used = hog;
      for (size_t i = 0; i < ages.size(); ++i) {
        const ProcId id{10 + static_cast<int>(i), 1};
        if (frozen.count(id) == 0) ages[i] += 0.05;
        const Bytes anon{static_cast<int64_t>(ages[i] * 1e8)};
        used += anon;
        samples.push_back({id, anon, Sec(ages[i])});
      }
      host.available = std::max(Bytes{}, limit() - used);
      host.Look({}, samples);
      for (const Action& action : host.Take()) {
        if (const auto* freeze = std::get_if<Freeze>(&action)) {
          frozen.insert(freeze->proc);
          order.push_back(freeze->proc.pid);
          CHECK(freeze->reason.code == ReasonCode::kBrake);
        }
        if (const auto* thaw = std::get_if<Thaw>(&action)) {
          frozen.erase(thaw->proc);
          thawed.push_back(thaw->proc.pid);
        }
      }
    }
  }
  Bytes limit() const { return host.state.domains.at(kHost).limit; }

  Host host;
  std::vector<double> ages;
  Bytes hog;
  std::set<ProcId> frozen;
  std::vector<int> order;
  std::vector<int> thawed;
};

TEST_CASE("the youngest are frozen first, and one always runs") {
  Growing build(6, GiB(4));
  build.Run(20);
  REQUIRE_FALSE(build.order.empty());
  // Never the oldest; the younger ones of those that ran then.
  CHECK(build.order.front() != 10);
  CHECK(build.frozen.size() == 5);
  CHECK(build.frozen.count(ProcId{10, 1}) == 0);
}

TEST_CASE("when the oldest ends, the next oldest goes on") {
  Growing build(6, GiB(4));
  build.Run(20);
  REQUIRE(build.frozen.size() == 5);
  build.host.Feed(ProcGone{ProcId{10, 1}});
  build.ages[0] = 0;
  build.Run(3);
  REQUIRE_FALSE(build.thawed.empty());
  CHECK(build.thawed.front() == 11);
}

TEST_CASE("a hog that is no part of the build: growth stops before memory runs out (K2)") {
  Growing build(4, GiB(16));
  CHECK(build.frozen.empty());
  for (int i = 0; i < 100; ++i) {
    build.hog += MiB(150);
    build.Run(0.5);
    if (build.host.available < MiB(1)) FAIL("memory ran out");
    if (build.frozen.size() >= 3) break;
  }
  CHECK(build.frozen.size() >= 2);
  // It goes: all are back within 10 s.
  build.hog = Bytes{};
  for (double& age : build.ages) age = std::min(age, 20.0);
  build.Run(10);
  CHECK(build.frozen.size() <= 1);
}

TEST_CASE("what is no part of an attached build is never touched") {
  Host host(GiB(4));
  for (int i = 0; i < 4; ++i) host.Feed(Tool(10 + i, "cicc", "", LaneId::kNone));
  for (int t = 1; t < 100; ++t) {
    host.Wait(Sec(0.1));
    std::vector<ProcSample> samples;
    for (int i = 0; i < 4; ++i) {
      samples.push_back({ProcId{10 + i, 1}, MiB(10 * t), Sec(0.1 * t)});
    }
    host.available = GiB(4) - MiB(40 * t);
    host.Look({}, samples);
  }
  CHECK(All<Freeze>(host.Take()).empty());
}

TEST_CASE("growth of foreign compilers lowers what a lane gets") {
  Host host(GiB(16));
  LaneHint hint;
  hint.id = kLane;
  hint.edges = {{"c++", 100, 1}};
  host.Feed(host.Open(8));
  host.Feed(hint);
  host.ObeyAll();
  const int alone = host.Lane().minted;
  for (int i = 0; i < 6; ++i) host.Feed(Tool(10 + i, "cicc", "", LaneId::kNone));
  host.Wait(Sec(0.1));
  host.Look({LaneSample{kLane, host.Lane().idle, 1, {}, {}}});
  host.ObeyAll();
  CHECK(host.Lane().minted < alone);
}

TEST_CASE("prediction off: nothing is frozen") {
  Host host(GiB(2));
  Configure configure;
  configure.prediction = false;
  host.Feed(configure);
  host.Feed(host.Open(4));
  for (int i = 0; i < 4; ++i) host.Feed(Tool(10 + i, "cicc", ""));
  host.available = MiB(1);
  host.Wait(Sec(1));
  host.Look();
  host.Wait(Sec(1));
  host.Look();
  CHECK(All<Freeze>(host.Take()).empty());
}

TEST_CASE("a lane that is closed leaves nothing frozen") {
  Growing build(6, GiB(4));
  build.Run(20);
  REQUIRE(build.frozen.size() == 5);
  build.host.Feed(LaneClosed{kLane});
  CHECK(All<Thaw>(build.host.Take()).size() == 5);
}

}  // namespace
}  // namespace headroom::policy
