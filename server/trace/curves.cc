#include "server/trace/curves.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "server/policy/event.h"
#include "server/trace/codec.h"

namespace headroom::trace {
namespace {

using policy::Duration;
using policy::GateId;
using policy::LaneId;
using policy::ProcId;
using policy::Time;

// Points nearer than this in time are left out, unless memory moved by a tenth of the peak: a curve
// is linear between its points.
constexpr Duration kPointEvery = std::chrono::milliseconds(100);

struct Point {
  Time at;
  int64_t bytes = 0;
  Duration cpu{0};
};

struct Proc {
  LaneId lane = LaneId::kNone;
  ProcId job;
  ProcId keeper;  // unset: no gate
  GateId gate = GateId::kNone;
  policy::ToolInfo info;
  Time began;
  std::optional<Time> ended;
  bool ran_to_end = true;
  int64_t peak = 0;
  Duration cpu{0};
  std::vector<Point> points;
};

struct Job {
  LaneId lane = LaneId::kNone;
  std::string source;
  Time began;
};

struct Gate {
  Time since;  // asked for the first time
  LaneId lane = LaneId::kNone;
  ProcId job;
  ProcId keeper;
  policy::ToolInfo info;
  ProcId worker;  // of the present attempt
};

struct Interval {
  Time from;
  Time to;
};

// Sorted, without overlaps.
std::vector<Interval> Union(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(),
            [](const Interval& a, const Interval& b) { return a.from < b.from; });
  std::vector<Interval> merged;
  for (const Interval& one : all) {
    if (!merged.empty() && one.from <= merged.back().to) {
      merged.back().to = std::max(merged.back().to, one.to);
    } else {
      merged.push_back(one);
    }
  }
  return merged;
}

// The parts of `held` in which nothing of `busy` is; both as Union gives them.
std::vector<Interval> Without(const std::vector<Interval>& held,
                              const std::vector<Interval>& busy) {
  std::vector<Interval> left;
  for (Interval one : held) {
    for (const Interval& cut : busy) {
      if (cut.to <= one.from || cut.from >= one.to) continue;
      if (cut.from > one.from) left.push_back({one.from, cut.from});
      one.from = std::min(one.to, cut.to);
    }
    if (one.from < one.to) left.push_back(one);
  }
  return left;
}

double Seconds(Duration duration) {
  // Microseconds are more than the kernel's clock ticks tell.
  return std::round(std::chrono::duration<double>(duration).count() * 1e6) / 1e6;
}

// Names come from outside, and JSON is UTF-8.
std::string Utf8(const std::string& text) {
  return nlohmann::json::parse(
             nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
      .get<std::string>();
}

struct Command {
  Time began;
  std::string source;
  std::vector<const Proc*> procs;
  std::vector<Interval> waited;  // at the gate

  nlohmann::ordered_json Line() const;
};

nlohmann::ordered_json Command::Line() const {
  std::vector<Interval> busy;
  for (const Proc* proc : procs) busy.push_back({proc->began, *proc->ended});
  const std::vector<Interval> held = Without(Union(waited), Union(busy));
  const auto since = [&](Time at) {
    Duration length = at - began;
    for (const Interval& one : held)
      if (one.from < at) length -= std::min(one.to, at) - one.from;
    return std::max(0.0, Seconds(length));
  };
  double wall = 0;
  nlohmann::ordered_json line;
  line["source"] = Utf8(source);
  line["wall_s"] = 0;
  line["procs"] = nlohmann::ordered_json::array();
  for (const Proc* proc : procs) {
    nlohmann::ordered_json one;
    one["tool"] = Utf8(proc->info.tool);
    one["start_s"] = since(proc->began);
    one["end_s"] = since(*proc->ended);
    wall = std::max(wall, since(*proc->ended));
    one["cpu_s"] = Seconds(proc->cpu);
    one["peak_rss_bytes"] = proc->peak;
    one["input_bytes"] = nlohmann::ordered_json::object();
    if (proc->info.input_bytes > 0) one["input_bytes"]["input"] = proc->info.input_bytes;
    nlohmann::ordered_json curve = nlohmann::ordered_json::array();
    for (const Point& point : proc->points)
      curve.push_back({since(point.at), point.bytes, Seconds(point.cpu)});
    one["curve"] = std::move(curve);
    line["procs"].push_back(std::move(one));
  }
  line["wall_s"] = wall;
  return line;
}

}  // namespace

struct CurvesOfTrace::Impl {
  explicit Impl(std::string name) : lane_name(std::move(name)) {}

  void On(const policy::LaneOpened& event) {
    if (!lane_name.empty() && event.name != lane_name) return;
    if (lanes.insert(event.id).second) result.complete = true;
  }
  void On(const policy::JobSeen& event) {
    const auto [at, fresh] = jobs.try_emplace(event.job);
    if (fresh) at->second.began = now;
    at->second.lane = event.lane;
    if (!event.source.empty()) at->second.source = event.source;
  }
  void On(const policy::GateRequest& event) {
    Gate& gate = gates.try_emplace(event.gate, Gate{now, {}, {}, {}, {}, {}}).first->second;
    gate.lane = event.lane;
    gate.job = event.job;
    gate.keeper = event.keeper;
    gate.info = event.info;
    // A scan may have seen it before it asked: it has run nothing.
    procs.erase(event.keeper);
    if (event.worker) OnWorker(event.gate, gate, event.worker);
  }
  void On(const policy::ProcSeen& event) {
    const auto [at, fresh] = procs.try_emplace(event.proc);
    Proc& proc = at->second;
    if (fresh) proc.began = now;
    proc.lane = event.lane;
    if (event.job) proc.job = event.job;
    proc.info = event.info;
  }
  void On(const policy::GateStarted& event) {
    const auto gate = gates.find(event.gate);
    if (gate != gates.end()) OnWorker(event.gate, gate->second, event.worker);
  }
  void On(const policy::GateEnded& event) {
    const auto gate = gates.find(event.gate);
    if (gate == gates.end()) return;
    const auto at = procs.find(gate->second.worker);
    if (at == procs.end()) return;
    Proc& proc = at->second;
    proc.ended = now;
    proc.ran_to_end = event.end == policy::GateEnd::kExit;
    proc.peak = std::max(proc.peak, event.peak.count);
    proc.cpu = std::max(proc.cpu, event.cpu);
  }
  void On(const policy::ProcGone& event) {
    const auto at = procs.find(event.proc);
    if (at != procs.end() && !at->second.ended) at->second.ended = now;
  }
  void On(const policy::Sample& event) {
    for (const policy::ProcSample& sample : event.procs) {
      const auto at = procs.find(sample.proc);
      if (at == procs.end() || sample.cpu < at->second.cpu) continue;
      Proc& proc = at->second;
      proc.peak = std::max(proc.peak, sample.anon.count);
      proc.cpu = sample.cpu;
      if (!proc.points.empty()) {
        const Point& last = proc.points.back();
        if (now - last.at < kPointEvery &&
            std::abs(sample.anon.count - last.bytes) < proc.peak / 10)
          continue;
      }
      proc.points.push_back({now, sample.anon.count, sample.cpu});
    }
  }
  template <typename Other>
  void On(const Other&) {}

  void OnWorker(GateId id, Gate& gate, ProcId worker) {
    gate.worker = worker;
    Proc& proc = procs[worker];
    proc = Proc{};
    proc.began = now;
    proc.lane = gate.lane;
    proc.job = gate.job;
    proc.keeper = gate.keeper;
    proc.gate = id;
    proc.info = gate.info;
  }

  // What is known of the present run of the daemon becomes lines: another one counts its lanes and
  // gates anew.
  void Flush();

  std::string lane_name;
  CurvesWritten result;
  std::optional<uint64_t> run;
  std::set<LaneId> lanes;
  std::map<ProcId, Job> jobs;
  std::map<ProcId, Proc> procs;
  std::map<GateId, Gate> gates;
  Time now;
  Time segment_at;
};

CurvesOfTrace::CurvesOfTrace(std::string lane_name)
    : impl_(std::make_unique<Impl>(std::move(lane_name))) {}
CurvesOfTrace::~CurvesOfTrace() = default;

absl::Status CurvesOfTrace::Add(const v1::TraceRecord& record) {
  Impl& impl = *impl_;
  if (record.has_segment()) {
    const v1::TraceSegment& segment = record.segment();
    if (impl.run != segment.run()) impl.Flush();
    impl.run = segment.run();
    impl.segment_at = Time(Duration(segment.at_ns()));
    // Lanes that were open before the segment: where that is the first of the trace, their earlier
    // processes are unknown. (A State of another version: its lanes stay unknown as well.)
    if (const auto state = DecodeState(segment.state()); state.ok()) {
      for (const auto& [id, lane] : state->lanes)
        if (impl.lane_name.empty() || lane.name == impl.lane_name) impl.lanes.insert(id);
    }
    if (segment.after_gap() && !impl.lanes.empty()) impl.result.complete = false;
    return absl::OkStatus();
  }
  impl.now = impl.segment_at + Duration(record.step().since_ns());
  const auto event = DecodeEvent(record.step().event());
  if (!event.ok()) return event.status();
  std::visit([&impl](const auto& one) { impl.On(one); }, *event);
  return absl::OkStatus();
}

void CurvesOfTrace::Impl::Flush() {
  // By job; by source, where there is none; by process, where there is neither.
  std::map<std::pair<ProcId, std::string>, Command> commands;
  for (const auto& [id, proc] : procs) {
    if (lanes.count(proc.lane) == 0 || !proc.ran_to_end || !proc.ended) continue;
    if (proc.peak <= 0) {
      ++result.left_out;
      continue;
    }
    auto job = jobs.find(proc.job);
    // The build tool's own child, seen as a job only after it had asked.
    if (job == jobs.end()) job = jobs.find(proc.keeper);
    // Processes of no job: those of one source (nvcc's) belong together.
    const bool alone = job == jobs.end();
    std::string source = !alone ? job->second.source : std::string();
    if (source.empty()) source = proc.info.source;
    const ProcId key = !alone ? job->first : source.empty() ? id : ProcId{};
    Command& command = commands[{key, alone ? source : std::string()}];
    if (source.empty()) source = proc.info.tool;
    if (command.procs.empty()) {
      command.began = alone ? proc.began : job->second.began;
      command.source = source;
    }
    command.began = std::min(command.began, proc.began);
    command.procs.push_back(&proc);
    const auto gate = gates.find(proc.gate);
    if (gate != gates.end() && gate->second.since < proc.began)
      command.waited.push_back({gate->second.since, proc.began});
  }

  std::vector<Command*> in_order;
  for (auto& [key, command] : commands) in_order.push_back(&command);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const Command* a, const Command* b) { return a->began < b->began; });
  for (Command* command : in_order) {
    std::stable_sort(command->procs.begin(), command->procs.end(),
                     [](const Proc* a, const Proc* b) { return a->began < b->began; });
    absl::StrAppend(&result.text, command->Line().dump(), "\n");
    result.processes += static_cast<int>(command->procs.size());
    ++result.commands;
  }
  lanes.clear();
  jobs.clear();
  procs.clear();
  gates.clear();
}

CurvesWritten CurvesOfTrace::Finish() {
  impl_->Flush();
  return std::move(impl_->result);
}

}  // namespace headroom::trace
