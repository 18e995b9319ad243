// The ledger: tokens are conserved, lost ones made good, forged ones taken out.
#include "server/policy/ledger.h"

#include "tests/unit/policy/fixture.h"

namespace headroom::policy {
namespace {

LaneSample Fifo(int idle, int clients, std::optional<int> explained = {},
                std::optional<bool> opened = {}) {
  return LaneSample{kLane, idle, clients, explained, opened};
}

// A lane of eight cores whose seven tokens lie in the fifo.
Host Started(LaneKind kind = LaneKind::kOwn) {
  Host host;
  LaneOpened lane = host.Open(8);
  lane.kind = kind;
  host.Feed(lane);
  LaneHint hint;
  hint.id = kLane;
  hint.edges = {{"other", 100, 1}};
  host.Feed(hint);
  host.ObeyAll();
  REQUIRE(host.Lane().minted == 7);
  REQUIRE(host.Lane().idle == 7);
  host.Look({Fifo(7, 1)});
  host.done.clear();
  return host;
}

TEST_CASE("a lane gets its tokens once") {
  Host host = Started();
  CHECK(host.Lane().debt == 0);
  for (int i = 0; i < 20; ++i) {
    host.Wait(Sec(1));
    host.Look({Fifo(i % 8, 1, 7 - i % 8)});
  }
  CHECK(All<Mint>(host.actions).empty());
  CHECK(All<Collect>(host.actions).empty());
}

TEST_CASE("a mint that was only partly done is asked for again") {
  Host host;
  host.Feed(host.Open(4));
  const std::vector<Mint> asked = All<Mint>(host.Take());
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].count == 3);
  host.Wait(Sec(0.1));
  host.Feed(TokensMoved{kLane, 1, 0, 1});
  REQUIRE(All<Mint>(host.actions).size() == 1);
  CHECK(All<Mint>(host.actions)[0].count == 2);
  CHECK(host.Lane().minted == 1);
}

TEST_CASE("own lane, nobody has the fifo open: what is out is made good at once") {
  Host host = Started();
  host.Look({Fifo(2, 1, 5, true)});
  REQUIRE(Out(host.Lane()) == 5);
  host.Wait(Sec(0.2));
  host.Look({Fifo(2, 0, {}, false)});
  const std::vector<Mint> mints = All<Mint>(host.actions);
  REQUIRE(mints.size() == 1);
  CHECK(mints[0].count == 5);
  CHECK(mints[0].reason.code == ReasonCode::kClientsGone);
  host.ObeyAll();
  CHECK(host.Lane().minted == 7);
  CHECK(Out(host.Lane()) == 0);
}

TEST_CASE("own lane, the last client is gone: made good within a second") {
  Host host = Started();
  host.Look({Fifo(0, 1, 7)});
  for (int i = 0; i < 10; ++i) {
    host.Wait(Sec(0.1));
    host.Look({Fifo(0, 0)});
  }
  host.ObeyAll();
  CHECK(host.Lane().minted == 7);
  CHECK(host.Lane().idle == 7);
}

TEST_CASE("shared lane: what stays unexplained for three seconds is lost") {
  Host host = Started(LaneKind::kShared);
  // Seven out, five explained: two were taken by a client that was killed.
  double waited = 0;
  while (All<Mint>(host.actions).empty() && waited < 10) {
    host.Wait(Sec(0.5));
    waited += 0.5;
    host.Look({Fifo(0, 1, 5)});
  }
  CHECK(waited <= 5);
  CHECK(waited >= 3);
  const std::vector<Mint> mints = All<Mint>(host.actions);
  REQUIRE(mints.size() == 1);
  CHECK(mints[0].count == 2);
  CHECK(mints[0].reason.code == ReasonCode::kLeak);
  host.ObeyAll();
  CHECK(host.Lane().minted == 7);
}

TEST_CASE("a count that only lags behind is no leak") {
  Host host = Started(LaneKind::kShared);
  for (int i = 0; i < 40; ++i) {
    host.Wait(Sec(0.5));
    // Short jobs: each second look sees fewer children than tokens.
    host.Look({Fifo(0, 1, i % 2 == 0 ? 3 : 7)});
  }
  CHECK(All<Mint>(host.actions).empty());
}

TEST_CASE("the smallest gap of the window is what is lost, not the largest") {
  Host host = Started(LaneKind::kShared);
  for (int i = 0; i < 8; ++i) {
    host.Wait(Sec(0.5));
    host.Look({Fifo(0, 1, i % 2 == 0 ? 2 : 6)});
  }
  REQUIRE(All<Mint>(host.actions).size() == 1);
  CHECK(All<Mint>(host.actions)[0].count == 1);
}

TEST_CASE("forged tokens are taken out (K13)") {
  Host host = Started();
  host.Wait(Sec(0.1));
  host.Look({Fifo(57, 1)});
  const std::vector<Collect> collects = All<Collect>(host.actions);
  REQUIRE(collects.size() == 1);
  CHECK(collects[0].debt == 50);
  CHECK(collects[0].reason.code == ReasonCode::kSurplus);
  host.ObeyAll();
  CHECK(host.Lane().minted == 7);
  CHECK(host.Lane().idle == 7);
  CHECK(host.Lane().debt == 0);
}

TEST_CASE("a restarted daemon goes on with what the lane has") {
  Host host;
  LaneOpened lane = host.Open(8);
  lane.minted = 7;
  lane.idle = 3;
  host.Feed(lane);
  CHECK(All<Mint>(host.actions).empty());
  CHECK(Out(host.Lane()) == 4);
  // A file that says less than the fifo holds errs to too low.
  LaneOpened torn = host.Open(8, LaneId{2});
  torn.minted = 1;
  torn.idle = 4;
  host.Feed(torn);
  CHECK(host.Lane(LaneId{2}).minted >= 4);
}

TEST_CASE("debt follows the target, and is cancelled when it rises again") {
  LaneState lane;
  lane.minted = 7;
  lane.target = 4;
  std::vector<Action> actions;
  Settle(lane, Reason{ReasonCode::kMemoryTight, {}}, actions);
  REQUIRE(All<Collect>(actions).size() == 1);
  CHECK(All<Collect>(actions)[0].debt == 3);
  actions.clear();
  Settle(lane, Reason{ReasonCode::kMemoryTight, {}}, actions);
  CHECK(actions.empty());
  Book(lane, TokensMoved{kLane, 0, 1, 0});
  CHECK(lane.debt == 2);
  Settle(lane, Reason{ReasonCode::kMemoryTight, {}}, actions);
  CHECK(actions.empty());
  lane.target = 8;
  Settle(lane, Reason{ReasonCode::kMemoryFits, {}}, actions);
  REQUIRE(actions.size() == 2);
  CHECK(std::get<Collect>(actions[0]).debt == 0);
  CHECK(std::get<Mint>(actions[1]).count == 2);
}

TEST_CASE("nonsense from outside does not break the books") {
  Host host = Started();
  host.Feed(TokensMoved{kLane, -5, 100, -3});
  host.Feed(TokensMoved{LaneId{99}, 5, 0, 5});
  host.Look({Fifo(-4, -2, -7, true), LaneSample{LaneId{99}, 1, 1, {}, {}}});
  host.Look({Fifo(1 << 20, 1)});
  CHECK(host.Lane().idle >= 0);
}

}  // namespace
}  // namespace headroom::policy
