#include "server/daemon/lens.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <variant>

using headroom::daemon::Lens;
using namespace headroom::policy;
using namespace std::chrono_literals;

namespace {

constexpr ProcId kWorker{100, 7};
constexpr GateId kGate{3};

Time At(std::chrono::milliseconds since) {
  return Time{} + 1000s + since;
}

Sample SampleOf(const ProcId& proc, int64_t anon) {
  Sample sample;
  sample.procs.push_back({proc, Bytes{anon}, 5ms});
  return sample;
}

}  // namespace

TEST_CASE("A lens shows memory as many times as large") {
  Lens lens(32, [](const ProcId&) { return false; });
  DomainSeen domain;
  domain.limit = Bytes{1000};
  CHECK(std::get<DomainSeen>(lens.Through(domain, At(0ms))).limit == Bytes{32000});
  Sample sample = SampleOf(kWorker, 10);
  sample.domains.push_back({DomainId{1}, Bytes{7}, 0, {}, 0});
  sample.temps.push_back({LaneId{1}, Bytes{9}});
  const Sample shown = std::get<Sample>(lens.Through(sample, At(0ms)));
  CHECK(shown.domains[0].available == Bytes{224});
  CHECK(shown.procs[0].anon == Bytes{320});
  // Files are what they are, and floors were the policy's own words.
  CHECK(shown.temps[0].free == Bytes{9});
  GateRequest request;
  request.floor = Bytes{11};
  request.info.input_bytes = 12;
  CHECK(std::get<GateRequest>(lens.Through(request, At(0ms))) == request);
}

TEST_CASE("Through a lens a process's CPU time is the time that it ran, from start to end") {
  std::set<ProcId> frozen;
  Lens lens(2, [&](const ProcId& proc) { return frozen.contains(proc); });
  const auto cpu = [&](std::chrono::milliseconds at) {
    return std::get<Sample>(lens.Through(SampleOf(kWorker, 1), At(at))).procs[0].cpu;
  };
  CHECK(cpu(0ms) == 0ms);  // nothing is known of it
  lens.Through(GateStarted{kGate, kWorker}, At(100ms));
  ProcSeen seen;
  seen.proc = kWorker;
  lens.Through(seen, At(150ms));  // told of twice: it began at the first
  CHECK(cpu(300ms) == 200ms);
  frozen.insert(kWorker);
  CHECK(cpu(700ms) == 200ms);
  frozen.clear();
  CHECK(cpu(800ms) == 300ms);
  GateEnded ended;
  ended.gate = kGate;
  ended.peak = Bytes{6};
  ended.cpu = 1ms;
  const auto shown = std::get<GateEnded>(lens.Through(ended, At(900ms)));
  CHECK(shown.cpu == 400ms);
  CHECK(shown.peak == Bytes{12});
  CHECK(lens.clocks() == 0);
}

TEST_CASE("A lens forgets who is gone") {
  Lens lens(2, [](const ProcId&) { return false; });
  lens.Through(GateStarted{kGate, kWorker}, At(0ms));
  ProcSeen seen;
  seen.proc = {200, 8};
  lens.Through(seen, At(0ms));
  CHECK(lens.clocks() == 2);
  lens.Through(GateGone{kGate}, At(1ms));
  lens.Through(ProcGone{seen.proc}, At(1ms));
  CHECK(lens.clocks() == 0);
}
