#include "tests/replay/random_build.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <variant>

namespace headroom::testing {
namespace {

using namespace policy;  // the vocabulary of the events, all of it

constexpr std::array<const char*, 5> kTools = {"cicc", "ptxas", "cc1plus", "cudafe++", "ld"};
constexpr std::array<const char*, 3> kDrivers = {"nvcc", "c++", "other"};

}  // namespace

RandomBuild::RandomBuild(uint64_t seed) : rng_(seed) {
  now_ = Time(std::chrono::hours(1 + Draw(1000)));
  const DomainSeen host{.id = DomainId{++last_domain_},
                        .parent = DomainId::kNone,
                        .name = "host",
                        .limit = GiB(static_cast<int64_t>(8 + Draw(500))),
                        .swap_possible = Chance(50),
                        .kills_group = Chance(20)};
  domains_[host.id] = host;
  Configure configure;
  if (Chance(30)) configure.reserve.share = Permyriad{static_cast<int32_t>(Draw(2000))};
  if (Chance(20)) configure.reserve.bytes = MiB(static_cast<int64_t>(Draw(2048)));
  configure.prediction = !Chance(10);
  pending_.push_back(configure);
  pending_.push_back(host);
}

ProcId RandomBuild::NewProc() {
  last_pid_ += static_cast<int32_t>(1 + Draw(3));
  return {last_pid_,
          1'000'000 + static_cast<uint64_t>(now_.time_since_epoch().count() / 10'000'000)};
}

template <typename Map>
auto RandomBuild::Pick(Map& map) {
  return std::next(map.begin(), static_cast<std::ptrdiff_t>(Draw(map.size())));
}

Event RandomBuild::OpenLane() {
  const LaneId id{++last_lane_};
  Lane lane;
  lane.gated = Chance(40);
  lane.domain = Pick(domains_)->first;
  for (uint64_t i = Draw(3); i > 0; --i) lane.clients.push_back(NewProc());
  LaneOpened event{.id = id,
                   .kind = Chance(30) ? LaneKind::kShared : LaneKind::kOwn,
                   .uid = static_cast<uint32_t>(Draw(3) * 1000),
                   .name = "run-" + std::to_string(last_pid_) + "-1",
                   .domain = lane.domain,
                   .cores = static_cast<int>(1 + Draw(64)),
                   .jobs_cap = std::nullopt,
                   .reserve = {},
                   .gated = lane.gated,
                   .minted = 0,
                   .idle = 0};
  if (Chance(30)) event.jobs_cap = static_cast<int>(1 + Draw(100));
  if (Chance(10)) event.reserve.bytes = MiB(static_cast<int64_t>(Draw(4096)));
  if (Chance(10)) {
    // As after a restart.
    lane.minted = static_cast<int>(Draw(8));
    lane.idle = lane.minted == 0 ? 0 : static_cast<int>(Draw(static_cast<uint64_t>(lane.minted)));
    event.minted = lane.minted;
    event.idle = lane.idle;
  }
  lanes_[id] = lane;
  if (Chance(50)) {
    pending_.push_back(
        LaneHint{id,
                 {{"nvcc", static_cast<int>(Draw(90)), static_cast<int>(1 + Draw(4))},
                  {"c++", static_cast<int>(Draw(90)), 1}}});
  }
  return event;
}

Event RandomBuild::CloseLane(LaneId id) {
  for (auto& [proc, what] : procs_) {
    if (what.lane == id) pending_.push_back(ProcGone{proc});
  }
  for (auto& [job, what] : jobs_) {
    if (what.lane == id) pending_.push_back(JobGone{job});
  }
  for (auto& [gate, what] : gates_) {
    if (what.request.lane == id) pending_.push_back(GateGone{gate});
  }
  std::erase_if(procs_, [id](const auto& entry) { return entry.second.lane == id; });
  std::erase_if(jobs_, [id](const auto& entry) { return entry.second.lane == id; });
  std::erase_if(gates_, [id](const auto& entry) { return entry.second.request.lane == id; });
  lanes_.erase(id);
  return LaneClosed{id};
}

Event RandomBuild::LookAround() {
  Sample sample;
  const bool slow = Chance(30);
  int64_t used = 0;
  for (auto& [id, proc] : procs_) {
    if (!proc.frozen) {
      // Some 30 ms went by.
      proc.bytes = std::max<int64_t>(proc.bytes + proc.rate / 32, 0);
      proc.cpu += std::chrono::milliseconds(Draw(40));
      if (Chance(5)) proc.rate = static_cast<int64_t>(Draw(400U << 20)) - (20 << 20);
    }
    used += proc.bytes;
    if (slow || Chance(50)) sample.procs.push_back({id, Bytes{proc.bytes}, proc.cpu});
  }
  for (const auto& [id, domain] : domains_) {
    if (Chance(2)) oom_kills_ += 1;
    DomainSample of{.id = id,
                    .available = std::max(domain.limit - Bytes{used} - MiB(200), Bytes{0}),
                    .oom_kills = oom_kills_,
                    .psi_full_avg10 = std::nullopt,
                    .swap_in_pages = 0};
    if (Chance(50)) of.psi_full_avg10 = Permyriad{static_cast<int32_t>(Draw(500))};
    sample.domains.push_back(of);
  }
  for (auto& [id, lane] : lanes_) {
    LaneSample of{.id = id,
                  .idle = lane.idle,
                  .clients = static_cast<int>(lane.clients.size()),
                  .explained = std::nullopt,
                  .opened = std::nullopt};
    if (slow) {
      of.explained =
          static_cast<int>(std::count_if(jobs_.begin(), jobs_.end(), [id = id](const auto& entry) {
            return entry.second.lane == id && entry.second.token;
          }));
      of.opened = !lane.clients.empty();
    }
    sample.lanes.push_back(of);
    if (slow && Chance(50)) sample.temps.push_back({id, MiB(static_cast<int64_t>(Draw(2000)))});
  }
  return sample;
}

Event RandomBuild::StartJob(LaneId id) {
  Lane& lane = lanes_[id];
  Job job{.lane = id, .token = false};
  const bool implicit_free = std::none_of(jobs_.begin(), jobs_.end(), [id](const auto& entry) {
    return entry.second.lane == id && !entry.second.token;
  });
  if (!implicit_free) {
    if (lane.idle == 0) return Tick{};
    --lane.idle;
    job.token = true;
  }
  if (lane.clients.empty()) lane.clients.push_back(NewProc());
  const ProcId proc = NewProc();
  jobs_[proc] = job;
  return JobSeen{.job = proc,
                 .lane = id,
                 .client = lane.clients.front(),
                 .driver = kDrivers[Draw(kDrivers.size())],
                 .source = "src/kernel_" + std::to_string(Draw(30)) + "_bwd.cu",
                 .fan_out = static_cast<int>(1 + Draw(4))};
}

Event RandomBuild::EndJob(ProcId id) {
  const Job job = jobs_[id];
  for (auto& [proc, what] : procs_) {
    if (what.job == id) pending_.push_back(ProcGone{proc});
  }
  std::erase_if(procs_, [id](const auto& entry) { return entry.second.job == id; });
  jobs_.erase(id);
  // Some tokens are lost with their holder.
  if (job.token && !Chance(3)) ++lanes_[job.lane].idle;
  return JobGone{id};
}

Event RandomBuild::StartProc(ProcId job) {
  const ProcId id = NewProc();
  const LaneId lane = job ? jobs_[job].lane : LaneId::kNone;
  Proc proc;
  proc.lane = lane;
  proc.job = job;
  proc.rate = static_cast<int64_t>(Draw(300U << 20));
  procs_[id] = proc;
  return ProcSeen{.proc = id,
                  .job = job,
                  .lane = lane,
                  .domain = job ? lanes_[lane].domain : domains_.begin()->first,
                  .info = {.tool = kTools[Draw(kTools.size())],
                           .source = "src/kernel_" + std::to_string(Draw(30)) + "_bwd.cu",
                           .flags_hash = rng_(),
                           .input_bytes = static_cast<int64_t>(Draw(10U << 20))},
                  .gate = GateId::kNone,
                  .uid = static_cast<uint32_t>(Draw(3) * 1000)};
}

Event RandomBuild::AskGate(ProcId job) {
  const LaneId lane = jobs_[job].lane;
  GateRequest request;
  request.gate = GateId{++last_gate_};
  request.lane = lane;
  request.domain = lanes_[lane].domain;
  request.keeper = NewProc();
  request.info.tool = kTools[Draw(kTools.size())];
  request.info.source = "src/kernel_" + std::to_string(Draw(30)) + "_bwd.cu";
  request.replayable = Chance(80);
  gates_[request.gate] = {request, {}};
  return request;
}

Event RandomBuild::TooLate() {
  switch (Draw(6)) {
    case 0:
      return ProcGone{NewProc()};
    case 1:
      return JobGone{NewProc()};
    case 2:
      return LaneClosed{LaneId{last_lane_ + 7}};
    case 3:
      return TokensMoved{LaneId{last_lane_ + 7}, 3, 0, 3};
    case 4:
      return GateEnded{.gate = GateId{last_gate_ + 7},
                       .end = GateEnd::kExit,
                       .code = 0,
                       .peak = MiB(1),
                       .cpu = {}};
    default:
      return Sample{.domains = {{.id = DomainId{99},
                                 .available = {},
                                 .oom_kills = 0,
                                 .psi_full_avg10 = {},
                                 .swap_in_pages = 0}},
                    .lanes = {},
                    .procs = {{NewProc(), MiB(5), {}}},
                    .temps = {{LaneId{last_lane_ + 7}, MiB(5)}}};
  }
}

Event RandomBuild::RandomEvent() {
  const uint64_t dice = Draw(100);
  if (lanes_.empty() || (dice < 2 && lanes_.size() < 8)) return OpenLane();
  if (dice < 45) return LookAround();
  if (dice < 65) return StartJob(Pick(lanes_)->first);
  if (dice < 66) return CloseLane(Pick(lanes_)->first);
  if (dice < 67 && domains_.size() < 5) {
    const DomainSeen domain{.id = DomainId{++last_domain_},
                            .parent = Pick(domains_)->first,
                            .name = "/build/" + std::to_string(last_domain_),
                            .limit = MiB(static_cast<int64_t>(500 + Draw(8000))),
                            .swap_possible = false,
                            .kills_group = false};
    domains_[domain.id] = domain;
    return domain;
  }
  if (dice < 68 && domains_.size() > 1) {
    // The last one: nothing lies in it.
    const auto last = std::prev(domains_.end());
    const DomainId gone = last->first;
    for (auto& [id, lane] : lanes_) {
      if (lane.domain == gone) lane.domain = last->second.parent;
    }
    domains_.erase(last);
    return DomainGone{gone};
  }
  if (dice < 70) return StartProc({});
  if (dice < 72) return TooLate();
  if (dice < 74) {
    // A client is killed with its tokens.
    Lane& lane = Pick(lanes_)->second;
    if (!lane.clients.empty()) lane.clients.pop_back();
    return Tick{};
  }
  if (!jobs_.empty()) {
    const auto job = Pick(jobs_);
    if (dice < 82) return EndJob(job->first);
    if (lanes_[job->second.lane].gated && dice < 92) return AskGate(job->first);
    if (dice < 96) return StartProc(job->first);
  }
  if (!gates_.empty() && dice < 98) {
    const auto gate = Pick(gates_);
    if (gate->second.worker) {
      return GateEnded{.gate = gate->first,
                       .end = Chance(80) ? GateEnd::kExit : GateEnd::kKilled,
                       .code = 0,
                       .peak = Chance(2) ? Bytes{static_cast<int64_t>(rng_())}
                                         : MiB(static_cast<int64_t>(Draw(4000))),
                       .cpu = std::chrono::seconds(Draw(60))};
    }
    const GateId gone = gate->first;
    gates_.erase(gate);
    return GateGone{gone};
  }
  return Tick{};
}

Event RandomBuild::Next() {
  now_ += std::chrono::microseconds(1 + Draw(Chance(10) ? 2'000'000 : 50'000));
  if (!pending_.empty()) {
    Event event = std::move(pending_.front());
    pending_.pop_front();
    return event;
  }
  // What is owed is taken as it lies there.
  for (auto& [id, lane] : lanes_) {
    if (lane.debt == 0 || lane.idle == 0 || Chance(50)) continue;
    const int taken = std::min(lane.debt, lane.idle);
    lane.debt -= taken;
    lane.idle -= taken;
    lane.minted -= taken;
    return TokensMoved{.id = id, .minted = 0, .collected = taken, .idle = lane.idle};
  }
  return RandomEvent();
}

void RandomBuild::Answer(std::span<const Action> actions) {
  for (const Action& action : actions) {
    if (const auto* mint = std::get_if<Mint>(&action)) {
      const auto lane = lanes_.find(mint->lane);
      if (lane == lanes_.end()) continue;
      lane->second.minted += mint->count;
      lane->second.idle += mint->count;
      pending_.push_back(TokensMoved{
          .id = mint->lane, .minted = mint->count, .collected = 0, .idle = lane->second.idle});
    } else if (const auto* collect = std::get_if<Collect>(&action)) {
      if (const auto lane = lanes_.find(collect->lane); lane != lanes_.end())
        lane->second.debt = collect->debt;
    } else if (const auto* freeze = std::get_if<Freeze>(&action)) {
      if (const auto proc = procs_.find(freeze->proc); proc != procs_.end())
        proc->second.frozen = true;
    } else if (const auto* thaw = std::get_if<Thaw>(&action)) {
      if (const auto proc = procs_.find(thaw->proc); proc != procs_.end())
        proc->second.frozen = false;
    } else if (const auto* admit = std::get_if<Admit>(&action)) {
      const auto gate = gates_.find(admit->gate);
      if (gate == gates_.end()) continue;
      gate->second.worker = NewProc();
      pending_.push_back(GateStarted{admit->gate, gate->second.worker});
      pending_.push_back(ProcSeen{.proc = gate->second.worker,
                                  .job = {},
                                  .lane = gate->second.request.lane,
                                  .domain = gate->second.request.domain,
                                  .info = gate->second.request.info,
                                  .gate = admit->gate,
                                  .uid = 0});
      Proc proc;
      proc.lane = gate->second.request.lane;
      proc.gate = admit->gate;
      proc.rate = static_cast<int64_t>(Draw(300U << 20));
      procs_[gate->second.worker] = proc;
    } else if (const auto* evict = std::get_if<Evict>(&action)) {
      const auto gate = gates_.find(evict->gate);
      if (gate == gates_.end()) continue;
      const int64_t reached = procs_[gate->second.worker].bytes;
      procs_.erase(gate->second.worker);
      pending_.push_back(ProcGone{gate->second.worker});
      gate->second.worker = {};
      // Some keepers lie.
      pending_.push_back(
          GateEnded{.gate = evict->gate,
                    .end = GateEnd::kEvicted,
                    .code = 9,
                    .peak = Chance(2) ? Bytes{static_cast<int64_t>(rng_())} : Bytes{reached},
                    .cpu = std::chrono::seconds(1)});
    } else if (const auto* verdict = std::get_if<Verdict>(&action)) {
      const auto gate = gates_.find(verdict->gate);
      if (gate == gates_.end()) continue;
      if (gate->second.worker) {
        procs_.erase(gate->second.worker);
        pending_.push_back(ProcGone{gate->second.worker});
        gate->second.worker = {};
      }
      if (verdict->again) {
        gate->second.request.attempt += 1;
        gate->second.request.floor = verdict->floor;
        pending_.push_back(gate->second.request);
      } else {
        pending_.push_back(GateGone{verdict->gate});
        gates_.erase(gate);
      }
    }
  }
}

}  // namespace headroom::testing
