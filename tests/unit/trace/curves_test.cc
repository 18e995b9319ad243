#include "server/trace/curves.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/sim/curves.h"
#include "server/trace/codec.h"

using namespace headroom;
using nlohmann::json;
using policy::GateId;
using policy::LaneId;
using policy::MiB;
using policy::ProcId;

namespace {

constexpr LaneId kOurs{1}, kOthers{2};

// A trace as the recorder writes it, at times in milliseconds.
class Tape {
 public:
  explicit Tape(std::string lane) : curves_(std::move(lane)) { Segment(1); }

  void Segment(uint64_t run, const policy::State& state = {}, bool after_gap = false) {
    v1::TraceRecord record;
    auto& segment = *record.mutable_segment();
    segment.set_run(run);
    segment.set_state(trace::EncodeState(state));
    segment.set_after_gap(after_gap);
    REQUIRE(curves_.Add(record).ok());
  }
  void At(int ms, const policy::Event& event) {
    v1::TraceRecord record;
    record.mutable_step()->set_since_ns(int64_t{ms} * 1'000'000);
    trace::EncodeEvent(event, *record.mutable_step()->mutable_event());
    REQUIRE(curves_.Add(record).ok());
  }
  void Open(int ms, LaneId id, const std::string& name) {
    policy::LaneOpened lane;
    lane.id = id;
    lane.name = name;
    At(ms, lane);
  }
  void Job(int ms, int pid, LaneId lane, const std::string& source) {
    policy::JobSeen job;
    job.job = Id(pid);
    job.lane = lane;
    job.driver = "nvcc";
    job.source = source;
    At(ms, job);
  }
  void Wait(int ms, int gate, int job, LaneId lane, const std::string& tool,
            const std::string& source = "a.cu") {
    policy::GateRequest request;
    request.gate = GateId{static_cast<uint64_t>(gate)};
    request.lane = lane;
    request.keeper = Id(1000 + gate);
    if (job != 0) request.job = Id(job);
    request.info = {tool, source, 0, 1234};
    At(ms, request);
  }
  void Start(int ms, int pid, int gate) {
    At(ms, policy::GateStarted{GateId{static_cast<uint64_t>(gate)}, Id(pid)});
  }
  // One without a gate.
  void See(int ms, int pid, int job, LaneId lane, const std::string& tool) {
    policy::ProcSeen seen;
    seen.proc = Id(pid);
    if (job != 0) seen.job = Id(job);
    seen.lane = lane;
    seen.info = {tool, "a.cu", 0, 1234};
    At(ms, seen);
  }
  void Look(int ms, int pid, int mib, int cpu_ms) {
    policy::Sample sample;
    sample.procs.push_back({Id(pid), MiB(mib), std::chrono::milliseconds(cpu_ms)});
    At(ms, sample);
  }
  void End(int ms, int gate, int mib, int cpu_ms, policy::GateEnd end = policy::GateEnd::kExit) {
    policy::GateEnded ended;
    ended.gate = GateId{static_cast<uint64_t>(gate)};
    ended.end = end;
    ended.peak = MiB(mib);
    ended.cpu = std::chrono::milliseconds(cpu_ms);
    At(ms, ended);
  }
  trace::CurvesWritten Finish() { return curves_.Finish(); }

  static ProcId Id(int pid) { return {pid, static_cast<uint64_t>(pid) * 10}; }

 private:
  trace::CurvesOfTrace curves_;
};

std::vector<json> Lines(const std::string& text) {
  std::vector<json> lines;
  size_t at = 0;
  for (size_t end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(json::parse(text.substr(at, end - at)));
  CHECK(at == text.size());
  return lines;
}

TEST_CASE("A command's curves are those of its processes, without what the gate held") {
  Tape tape("run-7-0");
  tape.Open(0, kOurs, "run-7-0");
  tape.Open(0, kOthers, "run-8-0");
  tape.Job(1000, 10, kOurs, "a.cu");
  tape.Job(1000, 20, kOthers, "b.cu");
  tape.See(1400, 1001, 10, kOurs, "cicc");  // its keeper, seen before it asked
  tape.Look(1450, 1001, 1, 1);
  tape.Wait(1500, 1, 10, kOurs, "cicc");
  tape.Start(4500, 11, 1);  // waited 3 s
  tape.Look(4600, 11, 100, 90);
  tape.Look(4610, 11, 101, 100);  // too near to tell more
  tape.Look(4620, 11, 300, 110);  // a jump tells
  tape.Look(6000, 11, 200, 1000);
  tape.End(6500, 1, 350, 1400);
  tape.Wait(6600, 2, 10, kOurs, "ptxas");
  tape.Start(6600, 12, 2);
  tape.Look(6800, 12, 50, 200);
  tape.End(7600, 2, 60, 900);
  tape.See(1100, 21, 20, kOthers, "cicc");
  tape.Look(1200, 21, 999, 50);

  const trace::CurvesWritten written = tape.Finish();
  CHECK(written.complete);
  CHECK(written.commands == 1);
  CHECK(written.processes == 2);
  CHECK(written.left_out == 0);
  const std::vector<json> lines = Lines(written.text);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["source"] == "a.cu");
  CHECK(lines[0]["wall_s"] == Approx(3.6));
  const json& cicc = lines[0]["procs"][0];
  CHECK(cicc["tool"] == "cicc");
  CHECK(cicc["start_s"] == Approx(0.5));
  CHECK(cicc["end_s"] == Approx(2.5));
  CHECK(cicc["cpu_s"] == Approx(1.4));
  CHECK(cicc["peak_rss_bytes"] == MiB(350).count);
  REQUIRE(cicc["curve"].size() == 3);
  CHECK(cicc["curve"][1][1] == MiB(300).count);
  CHECK(cicc["curve"][1][2] == Approx(0.11));
  CHECK(lines[0]["procs"][1]["start_s"] == Approx(2.6));

  // And the simulator takes it.
  const auto commands = sim::ParseCurves(written.text);
  REQUIRE(commands.size() == 1);
  CHECK(commands[0].driver == "nvcc");
  REQUIRE(commands[0].chains.size() == 1);
  CHECK(commands[0].shapes[0].peak == static_cast<double>(MiB(350).count));
  CHECK(commands[0].shapes[0].input_bytes == 1234);
}

TEST_CASE("Attempts that were evicted are no part of the curves") {
  Tape tape("run-7-0");
  tape.Open(0, kOurs, "run-7-0");
  tape.Job(0, 10, kOurs, "a.cu");
  tape.Wait(0, 1, 10, kOurs, "cicc");
  tape.Start(0, 11, 1);
  tape.Look(900, 11, 800, 900);
  tape.End(1000, 1, 800, 950, policy::GateEnd::kEvicted);
  tape.Wait(1000, 1, 10, kOurs, "cicc");
  tape.Start(5000, 12, 1);
  tape.Look(5500, 12, 700, 500);
  tape.End(7000, 1, 900, 2000);
  const std::vector<json> lines = Lines(tape.Finish().text);
  REQUIRE(lines.size() == 1);
  REQUIRE(lines[0]["procs"].size() == 1);
  CHECK(lines[0]["procs"][0]["start_s"] == Approx(0));
  CHECK(lines[0]["wall_s"] == Approx(2));
  CHECK(lines[0]["procs"][0]["cpu_s"] == Approx(2));
}

TEST_CASE("Processes without a gate or a job are told as far as they were measured") {
  Tape tape("");
  tape.Open(0, kOurs, "shared");
  tape.See(100, 11, 0, kOurs, "cc1plus");
  tape.Look(300, 11, 40, 200);
  tape.At(400, policy::ProcGone{Tape::Id(11)});
  tape.See(500, 12, 0, kOurs, "cc1plus");
  tape.At(510, policy::ProcGone{Tape::Id(12)});  // never measured
  tape.See(600, 13, 0, kOurs, "cc1plus");        // still runs
  tape.Look(700, 13, 40, 100);
  const trace::CurvesWritten written = tape.Finish();
  CHECK(written.commands == 1);
  CHECK(written.processes == 1);
  CHECK(written.left_out == 1);
}

TEST_CASE("A gated process belongs to the job that its keeper is, or to none but itself") {
  Tape tape("");
  tape.Open(0, kOurs, "shared");
  tape.Wait(0, 1, 0, kOurs, "cc1plus");
  tape.Job(50, 1001, kOurs, "b.cc");  // the keeper of gate 1, told of after it asked
  tape.Start(100, 11, 1);
  tape.End(900, 1, 40, 500);
  tape.Wait(0, 2, 0, kOurs, "ld", "");
  tape.Start(100, 12, 2);
  tape.End(800, 2, 40, 500);
  tape.Wait(0, 3, 0, kOurs, "ld", "");
  tape.Start(100, 13, 3);
  tape.End(700, 3, 40, 500);
  const trace::CurvesWritten written = tape.Finish();
  CHECK(written.commands == 3);
  CHECK(written.processes == 3);
  CHECK(written.text.find("\"b.cc\"") != std::string::npos);
}

TEST_CASE("Another run of the daemon counts anew, and a trace that begins late says so") {
  Tape tape("run-7-0");
  tape.Open(0, kOurs, "run-6-0");  // an earlier build
  tape.See(0, 11, 0, kOurs, "cc1plus");
  tape.Look(100, 11, 40, 100);
  tape.At(200, policy::ProcGone{Tape::Id(11)});
  policy::State state;
  policy::LaneState lane;
  lane.id = kOurs;
  lane.name = "run-7-0";
  state.lanes.emplace(kOurs, lane);
  tape.Segment(2, state);
  tape.See(1000, 11, 0, kOurs, "cicc");
  tape.Look(1100, 11, 80, 100);
  tape.At(1200, policy::ProcGone{Tape::Id(11)});
  const trace::CurvesWritten written = tape.Finish();
  CHECK_FALSE(written.complete);
  const std::vector<json> lines = Lines(written.text);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["procs"][0]["tool"] == "cicc");
}

}  // namespace
