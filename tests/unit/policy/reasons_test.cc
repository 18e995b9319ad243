// Every reason that the policy can give is given by some course of events: a code that nothing
// leads to would be a promise to `explain` that is never kept. A code without a scenario here does
// not compile.
#include <algorithm>
#include <functional>
#include <optional>
#include <variant>

#include "tests/unit/policy/fixture.h"

namespace headroom::policy::reasons_test {
namespace {

GateRequest Ask(uint64_t gate, bool replayable = true) {
  GateRequest request;
  request.gate = GateId{gate};
  request.lane = kLane;
  request.domain = kHost;
  request.keeper = {static_cast<int>(1000 + gate), 1};
  request.info.tool = "cicc";
  request.replayable = replayable;
  return request;
}

// A gated lane with one process that was let go and runs.
Host Gated(Bytes limit = GiB(64), const GateRequest& request = Ask(1)) {
  Host host(limit);
  LaneOpened lane = host.Open(4);
  lane.gated = true;
  host.Feed(lane);
  host.Feed(request);
  host.Feed(GateStarted{request.gate, ProcId{2001, 1}});
  return host;
}

// The end of its worker; with a kill of the kernel's in between, or without.
void End(Host& host, GateEnd end, bool oom) {
  if (oom) {
    ++host.oom_kills;
    host.Look();
  }
  GateEnded ended;
  ended.gate = GateId{1};
  ended.end = end;
  ended.code = 9;
  ended.peak = GiB(1);
  host.Feed(ended);
}

// It asks again, is let go and runs.
void Again(Host& host, int attempt) {
  GateRequest request = Ask(1);
  request.attempt = attempt;
  host.Feed(request);
  host.Feed(GateStarted{GateId{1}, ProcId{2000 + attempt, 1}});
}

// A lane whose tokens lie in its fifo.
Host Tokens(int cores, Bytes limit = GiB(256), LaneKind kind = LaneKind::kOwn,
            const char* driver = "other") {
  Host host(limit);
  LaneOpened lane = host.Open(cores);
  lane.kind = kind;
  host.Feed(lane);
  LaneHint hint;
  hint.id = kLane;
  hint.edges = {{driver, 1000, 1}};
  host.Feed(hint);
  host.ObeyAll();
  host.Look({LaneSample{kLane, host.Lane().minted, 1, {}, {}}});
  return host;
}

// Tools without a gate that grow until most of them stand still.
Host Short(Bytes limit = GiB(4)) {
  Host host(limit);
  host.Feed(host.Open(4));
  for (int i = 0; i < 4; ++i) {
    host.Feed(Tool(10 + i, "cicc", ""));
    host.Wait(Sec(1));
  }
  for (int t = 1; t <= 100 && All<Freeze>(host.actions).empty(); ++t) {
    host.Wait(Sec(0.1));
    std::vector<ProcSample> samples;
    for (int i = 0; i < 4; ++i) samples.push_back({ProcId{10 + i, 1}, MiB(10 * t), Sec(0.1 * t)});
    host.available = limit - MiB(40 * t);
    host.Look({}, samples);
  }
  return host;
}

// A course of events after which some action has this reason.
std::optional<Host> Scenario(ReasonCode code) {
  switch (code) {
    case ReasonCode::kMemoryFits:
      return Tokens(8);
    case ReasonCode::kMemoryTight: {
      Host host = Tokens(16, GiB(64), LaneKind::kOwn, "c++");
      host.available = GiB(4);
      host.Wait(Sec(1));
      host.Look({LaneSample{kLane, host.Lane().idle, 1, {}, {}}});
      return host;
    }
    case ReasonCode::kCoresFull: {
      // `headroom set --jobs 2`, in mid-build.
      Host host = Tokens(8);
      LaneOpened fewer = host.Open(8);
      fewer.jobs_cap = 2;
      host.Feed(fewer);
      return host;
    }
    case ReasonCode::kFloor:
      return Gated(MiB(600));
    case ReasonCode::kFairShare: {
      Host host = Tokens(16);
      host.Feed(host.Open(16, LaneId{2}));
      host.ObeyAll();
      host.Look({LaneSample{kLane, host.Lane().idle, 1, {}, {}},
                 LaneSample{LaneId{2}, host.Lane(LaneId{2}).idle, 1, {}, {}}});
      return host;
    }
    case ReasonCode::kSlowStart: {
      Host host;
      host.Feed(host.Open(32));
      return host;
    }
    case ReasonCode::kLeak: {
      Host host = Tokens(8, GiB(64), LaneKind::kShared);
      for (int i = 0; i < 10; ++i) {
        host.Wait(Sec(0.5));
        host.Look({LaneSample{kLane, 0, 1, 5, {}}});
      }
      return host;
    }
    case ReasonCode::kClientsGone: {
      Host host = Tokens(8);
      host.Look({LaneSample{kLane, 3, 1, {}, true}});
      host.Wait(Sec(0.1));
      host.Look({LaneSample{kLane, 3, 0, {}, false}});
      return host;
    }
    case ReasonCode::kSurplus: {
      Host host = Tokens(8);
      host.Wait(Sec(0.1));
      host.Look({LaneSample{kLane, 57, 1, {}, {}}});
      return host;
    }
    case ReasonCode::kBrake:
      return Short();
    case ReasonCode::kRoomAgain: {
      Host host = Short(GiB(8));
      host.Feed(ProcGone{ProcId{10, 1}});
      host.Feed(ProcGone{ProcId{11, 1}});
      host.available = GiB(8);
      for (int i = 0; i < 4; ++i) {
        host.Wait(Sec(1));
        host.Look();
      }
      return host;
    }
    case ReasonCode::kWaitsForGate: {
      Host host = Gated();
      GateRequest below = Ask(2);
      below.under = GateId{1};
      host.Feed(below);
      return host;
    }
    case ReasonCode::kRetryEvicted: {
      Host host = Gated();
      End(host, GateEnd::kEvicted, false);
      return host;
    }
    case ReasonCode::kRetryOomKill: {
      Host host = Gated();
      End(host, GateEnd::kKilled, true);
      return host;
    }
    case ReasonCode::kRetryKilled: {
      Host host = Gated();
      End(host, GateEnd::kKilled, false);
      return host;
    }
    case ReasonCode::kTriesUsedUp: {
      Host host = Gated();
      for (int attempt = 2; attempt <= 3; ++attempt) {
        End(host, GateEnd::kKilled, false);
        Again(host, attempt);
      }
      End(host, GateEnd::kKilled, false);
      return host;
    }
    case ReasonCode::kNotReplayable: {
      Host host = Gated(GiB(64), Ask(1, false));
      End(host, GateEnd::kKilled, true);
      return host;
    }
    case ReasonCode::kOwnEnd: {
      Host host = Gated();
      End(host, GateEnd::kSignal, false);
      return host;
    }
    case ReasonCode::kTooBig: {
      Host host = Gated();
      End(host, GateEnd::kKilled, true);
      Again(host, 2);
      End(host, GateEnd::kKilled, true);
      return host;
    }
    case ReasonCode::kPredictionOff: {
      Host host = Gated();
      Configure configure;
      configure.prediction = false;
      host.Feed(configure);
      host.Feed(Ask(2));
      return host;
    }
  }
  return std::nullopt;
}

std::vector<ReasonCode> Codes(Host& host) {
  host.Take();
  std::vector<ReasonCode> codes;
  for (const Action& action : host.done) {
    std::visit(
        [&](const auto& one) {
          if constexpr (requires { one.reason; }) codes.push_back(one.reason.code);
        },
        action);
  }
  return codes;
}

TEST_CASE("every reason is given in some course of events") {
  int scenarios = 0;
  for (uint8_t i = 0; i < 255; ++i) {
    const ReasonCode code{i};
    std::optional<Host> host = Scenario(code);
    if (!host) break;
    ++scenarios;
    const std::vector<ReasonCode> codes = Codes(*host);
    INFO("reason " << static_cast<int>(i));
    CHECK(std::count(codes.begin(), codes.end(), code) > 0);
  }
  CHECK(scenarios > static_cast<int>(ReasonCode::kPredictionOff));
}

}  // namespace
}  // namespace headroom::policy::reasons_test
