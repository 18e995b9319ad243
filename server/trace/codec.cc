#include "server/trace/codec.h"

#include <absl/strings/str_cat.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "server/trace/fields.h"

namespace headroom::trace {
namespace {

using policy::Bytes;
using policy::DomainId;
using policy::Duration;
using policy::GateId;
using policy::LaneId;
using policy::Permyriad;
using policy::ProcId;

// --- Parts --------------------------------------------------------------------------------------

template <typename Enum>
constexpr auto Number(Enum value) {
  return static_cast<std::underlying_type_t<Enum>>(value);
}

void Encode(const ProcId& proc, v1::TraceProc* out) {
  out->set_pid(proc.pid);
  out->set_start(proc.start);
}
ProcId Decode(const v1::TraceProc& in) {
  return {in.pid(), in.start()};
}

void Encode(const policy::Reserve& reserve, v1::TraceReserve* out) {
  if (reserve.bytes) out->set_bytes(reserve.bytes->count);
  if (reserve.share) out->set_permyriad(reserve.share->count);
}
policy::Reserve Decode(const v1::TraceReserve& in) {
  policy::Reserve reserve;
  if (in.has_bytes()) reserve.bytes = Bytes{in.bytes()};
  if (in.has_permyriad()) reserve.share = Permyriad{in.permyriad()};
  return reserve;
}

void Encode(const policy::ToolInfo& info, v1::TraceTool* out) {
  out->set_tool(info.tool);
  out->set_source(info.source);
  out->set_flags_hash(info.flags_hash);
  out->set_input_bytes(info.input_bytes);
}
policy::ToolInfo Decode(const v1::TraceTool& in) {
  return {in.tool(), in.source(), in.flags_hash(), in.input_bytes()};
}

void Encode(const policy::Reason& reason, v1::TraceReason* out) {
  out->set_code(Number(reason.code));
  for (const policy::Reason::Value& value : reason.inputs) {
    out->add_input(Number(value.input));
    out->add_value(value.value);
  }
}

absl::Status OutOfRange(const char* what, uint64_t value) {
  return absl::InvalidArgumentError(
      absl::StrCat("trace: ", what, " ", value, " is not one that this version knows"));
}

// Switches, so that the compiler asks for a new value.
bool Known(policy::LaneKind kind) {
  switch (kind) {
    case policy::LaneKind::kOwn:
    case policy::LaneKind::kShared:
      return true;
  }
  return false;
}
bool Known(policy::GateEnd end) {
  switch (end) {
    case policy::GateEnd::kExit:
    case policy::GateEnd::kSignal:
    case policy::GateEnd::kKilled:
    case policy::GateEnd::kEvicted:
      return true;
  }
  return false;
}

template <typename Enum>
std::optional<Enum> Value(uint32_t number) {
  if (number > std::numeric_limits<std::underlying_type_t<Enum>>::max()) return std::nullopt;
  return static_cast<Enum>(number);
}

// Codes and inputs are only compared and printed: one that this version has no name for yet is
// carried along.
absl::StatusOr<policy::Reason> Decode(const v1::TraceReason& in) {
  if (in.input_size() != in.value_size())
    return absl::InvalidArgumentError("trace: a reason's inputs and values are not as many");
  const auto code = Value<policy::ReasonCode>(in.code());
  if (!code) return OutOfRange("reason", in.code());
  policy::Reason reason{*code, {}};
  reason.inputs.reserve(static_cast<size_t>(in.input_size()));
  for (int i = 0; i < in.input_size(); ++i) {
    const auto input = Value<policy::Input>(in.input(i));
    if (!input) return OutOfRange("a reason's input", in.input(i));
    reason.inputs.push_back({*input, in.value(i)});
  }
  return reason;
}

// --- Events -------------------------------------------------------------------------------------

void Encode(const policy::Configure& event, v1::TraceEvent& out) {
  auto* to = out.mutable_configure();
  Encode(event.reserve, to->mutable_reserve());
  to->set_prediction(event.prediction);
  if (event.spoiled_peak) to->set_spoiled_peak(event.spoiled_peak->count);
}
policy::Event Decode(const v1::TraceEvent::Configure& in) {
  policy::Configure event{
      .reserve = Decode(in.reserve()), .prediction = in.prediction(), .spoiled_peak = std::nullopt};
  if (in.has_spoiled_peak()) event.spoiled_peak = Bytes{in.spoiled_peak()};
  return event;
}

void Encode(const policy::DomainSeen& event, v1::TraceEvent& out) {
  auto* to = out.mutable_domain_seen();
  to->set_id(Number(event.id));
  to->set_parent(Number(event.parent));
  to->set_name(event.name);
  to->set_limit(event.limit.count);
  to->set_swap_possible(event.swap_possible);
  to->set_kills_group(event.kills_group);
}
policy::Event Decode(const v1::TraceEvent::DomainSeen& in) {
  return policy::DomainSeen{.id = DomainId{in.id()},
                            .parent = DomainId{in.parent()},
                            .name = in.name(),
                            .limit = Bytes{in.limit()},
                            .swap_possible = in.swap_possible(),
                            .kills_group = in.kills_group()};
}

void Encode(const policy::DomainGone& event, v1::TraceEvent& out) {
  out.mutable_domain_gone()->set_id(Number(event.id));
}
policy::Event Decode(const v1::TraceEvent::DomainGone& in) {
  return policy::DomainGone{DomainId{in.id()}};
}

void Encode(const policy::LaneOpened& event, v1::TraceEvent& out) {
  auto* to = out.mutable_lane_opened();
  to->set_id(Number(event.id));
  to->set_kind(Number(event.kind));
  to->set_uid(event.uid);
  to->set_name(event.name);
  to->set_domain(Number(event.domain));
  to->set_cores(event.cores);
  if (event.jobs_cap) to->set_jobs_cap(*event.jobs_cap);
  Encode(event.reserve, to->mutable_reserve());
  to->set_gated(event.gated);
  to->set_minted(event.minted);
  to->set_idle(event.idle);
}
absl::StatusOr<policy::Event> Decode(const v1::TraceEvent::LaneOpened& in) {
  const auto kind = Value<policy::LaneKind>(in.kind());
  if (!kind || !Known(*kind)) return OutOfRange("lane kind", in.kind());
  policy::LaneOpened event{.id = LaneId{in.id()},
                           .kind = *kind,
                           .uid = in.uid(),
                           .name = in.name(),
                           .domain = DomainId{in.domain()},
                           .cores = in.cores(),
                           .jobs_cap = std::nullopt,
                           .reserve = Decode(in.reserve()),
                           .gated = in.gated(),
                           .minted = in.minted(),
                           .idle = in.idle()};
  if (in.has_jobs_cap()) event.jobs_cap = in.jobs_cap();
  return event;
}

void Encode(const policy::LaneClosed& event, v1::TraceEvent& out) {
  out.mutable_lane_closed()->set_id(Number(event.id));
}
policy::Event Decode(const v1::TraceEvent::LaneClosed& in) {
  return policy::LaneClosed{LaneId{in.id()}};
}

void Encode(const policy::LaneHint& event, v1::TraceEvent& out) {
  auto* to = out.mutable_lane_hint();
  to->set_id(Number(event.id));
  for (const policy::LaneHint::Edges& edges : event.edges) {
    auto* item = to->add_edges();
    item->set_driver(edges.driver);
    item->set_count(edges.count);
    item->set_fan_out(edges.fan_out);
  }
}
policy::Event Decode(const v1::TraceEvent::LaneHint& in) {
  policy::LaneHint event{.id = LaneId{in.id()}, .edges = {}};
  for (const auto& item : in.edges())
    event.edges.push_back({item.driver(), item.count(), item.fan_out()});
  return event;
}

void Encode(const policy::TokensMoved& event, v1::TraceEvent& out) {
  auto* to = out.mutable_tokens_moved();
  to->set_id(Number(event.id));
  to->set_minted(event.minted);
  to->set_collected(event.collected);
  to->set_idle(event.idle);
}
policy::Event Decode(const v1::TraceEvent::TokensMoved& in) {
  return policy::TokensMoved{LaneId{in.id()}, in.minted(), in.collected(), in.idle()};
}

void Encode(const policy::JobSeen& event, v1::TraceEvent& out) {
  auto* to = out.mutable_job_seen();
  Encode(event.job, to->mutable_job());
  to->set_lane(Number(event.lane));
  Encode(event.client, to->mutable_client());
  to->set_driver(event.driver);
  to->set_source(event.source);
  to->set_fan_out(event.fan_out);
}
policy::Event Decode(const v1::TraceEvent::JobSeen& in) {
  return policy::JobSeen{.job = Decode(in.job()),
                         .lane = LaneId{in.lane()},
                         .client = Decode(in.client()),
                         .driver = in.driver(),
                         .source = in.source(),
                         .fan_out = in.fan_out()};
}

void Encode(const policy::JobGone& event, v1::TraceEvent& out) {
  Encode(event.job, out.mutable_job_gone()->mutable_job());
}
policy::Event Decode(const v1::TraceEvent::JobGone& in) {
  return policy::JobGone{Decode(in.job())};
}

void Encode(const policy::ProcSeen& event, v1::TraceEvent& out) {
  auto* to = out.mutable_proc_seen();
  Encode(event.proc, to->mutable_proc());
  Encode(event.job, to->mutable_job());
  to->set_lane(Number(event.lane));
  to->set_domain(Number(event.domain));
  Encode(event.info, to->mutable_info());
  to->set_gate(Number(event.gate));
  to->set_uid(event.uid);
}
policy::Event Decode(const v1::TraceEvent::ProcSeen& in) {
  return policy::ProcSeen{.proc = Decode(in.proc()),
                          .job = Decode(in.job()),
                          .lane = LaneId{in.lane()},
                          .domain = DomainId{in.domain()},
                          .info = Decode(in.info()),
                          .gate = GateId{in.gate()},
                          .uid = in.uid()};
}

void Encode(const policy::ProcGone& event, v1::TraceEvent& out) {
  Encode(event.proc, out.mutable_proc_gone()->mutable_proc());
}
policy::Event Decode(const v1::TraceEvent::ProcGone& in) {
  return policy::ProcGone{Decode(in.proc())};
}

// Differences of neighbours, in arithmetic that wraps: every pair of values has one.
int64_t Minus(uint64_t a, uint64_t b) {
  return static_cast<int64_t>(a - b);
}

void Encode(const policy::Sample& event, v1::TraceEvent& out) {
  auto* to = out.mutable_sample();
  for (const policy::DomainSample& domain : event.domains) {
    auto* item = to->add_domains();
    item->set_id(Number(domain.id));
    item->set_available(domain.available.count);
    item->set_oom_kills(domain.oom_kills);
    if (domain.psi_full_avg10) item->set_psi_full_avg10(domain.psi_full_avg10->count);
    item->set_swap_in_pages(domain.swap_in_pages);
  }
  for (const policy::LaneSample& lane : event.lanes) {
    auto* item = to->add_lanes();
    item->set_id(Number(lane.id));
    item->set_idle(lane.idle);
    item->set_clients(lane.clients);
    if (lane.explained) item->set_explained(*lane.explained);
    if (lane.opened) item->set_opened(*lane.opened);
  }
  for (const policy::TempSample& temp : event.temps) {
    auto* item = to->add_temps();
    item->set_id(Number(temp.id));
    item->set_free(temp.free.count);
  }
  ProcId before;
  for (const policy::ProcSample& sample : event.procs) {
    to->add_proc_pid(int64_t{sample.proc.pid} - before.pid);
    to->add_proc_start(Minus(sample.proc.start, before.start));
    to->add_proc_anon(sample.anon.count);
    to->add_proc_cpu_ns(sample.cpu.count());
    before = sample.proc;
  }
}
absl::StatusOr<policy::Event> Decode(const v1::TraceEvent::Sample& in) {
  policy::Sample event;
  for (const auto& item : in.domains()) {
    policy::DomainSample domain{.id = DomainId{item.id()},
                                .available = Bytes{item.available()},
                                .oom_kills = item.oom_kills(),
                                .psi_full_avg10 = std::nullopt,
                                .swap_in_pages = item.swap_in_pages()};
    if (item.has_psi_full_avg10()) domain.psi_full_avg10 = Permyriad{item.psi_full_avg10()};
    event.domains.push_back(domain);
  }
  for (const auto& item : in.lanes()) {
    policy::LaneSample lane{.id = LaneId{item.id()},
                            .idle = item.idle(),
                            .clients = item.clients(),
                            .explained = std::nullopt,
                            .opened = std::nullopt};
    if (item.has_explained()) lane.explained = item.explained();
    if (item.has_opened()) lane.opened = item.opened();
    event.lanes.push_back(lane);
  }
  for (const auto& item : in.temps())
    event.temps.push_back(policy::TempSample{.id = LaneId{item.id()}, .free = Bytes{item.free()}});
  const int count = in.proc_pid_size();
  if (in.proc_start_size() != count || in.proc_anon_size() != count ||
      in.proc_cpu_ns_size() != count)
    return absl::InvalidArgumentError(
        "trace: the columns of a sample's processes differ in length");
  event.procs.reserve(static_cast<size_t>(count));
  int64_t pid = 0;
  uint64_t start = 0;
  for (int i = 0; i < count; ++i) {
    if (__builtin_add_overflow(pid, in.proc_pid(i), &pid) ||
        pid < std::numeric_limits<int32_t>::min() || pid > std::numeric_limits<int32_t>::max())
      return absl::InvalidArgumentError("trace: a sample's pid is out of range");
    start += static_cast<uint64_t>(in.proc_start(i));
    event.procs.push_back(
        {{static_cast<int32_t>(pid), start}, Bytes{in.proc_anon(i)}, Duration(in.proc_cpu_ns(i))});
  }
  return event;
}

void Encode(const policy::GateRequest& event, v1::TraceEvent& out) {
  auto* to = out.mutable_gate_request();
  to->set_gate(Number(event.gate));
  to->set_lane(Number(event.lane));
  to->set_domain(Number(event.domain));
  Encode(event.keeper, to->mutable_keeper());
  to->set_under(Number(event.under));
  Encode(event.info, to->mutable_info());
  to->set_replayable(event.replayable);
  to->set_attempt(event.attempt);
  to->set_floor(event.floor.count);
  Encode(event.worker, to->mutable_worker());
  to->set_evictions(event.evictions);
  to->set_oom_kills(event.oom_kills);
  to->set_other_kills(event.other_kills);
  Encode(event.job, to->mutable_job());
}
policy::Event Decode(const v1::TraceEvent::GateRequest& in) {
  return policy::GateRequest{.gate = GateId{in.gate()},
                             .lane = LaneId{in.lane()},
                             .domain = DomainId{in.domain()},
                             .keeper = Decode(in.keeper()),
                             .under = GateId{in.under()},
                             .info = Decode(in.info()),
                             .replayable = in.replayable(),
                             .attempt = in.attempt(),
                             .floor = Bytes{in.floor()},
                             .worker = Decode(in.worker()),
                             .evictions = in.evictions(),
                             .oom_kills = in.oom_kills(),
                             .other_kills = in.other_kills(),
                             .job = Decode(in.job())};
}

void Encode(const policy::GateStarted& event, v1::TraceEvent& out) {
  auto* to = out.mutable_gate_started();
  to->set_gate(Number(event.gate));
  Encode(event.worker, to->mutable_worker());
}
policy::Event Decode(const v1::TraceEvent::GateStarted& in) {
  return policy::GateStarted{GateId{in.gate()}, Decode(in.worker())};
}

void Encode(const policy::GateEnded& event, v1::TraceEvent& out) {
  auto* to = out.mutable_gate_ended();
  to->set_gate(Number(event.gate));
  to->set_end(Number(event.end));
  to->set_code(event.code);
  to->set_peak(event.peak.count);
  to->set_cpu_ns(event.cpu.count());
}
absl::StatusOr<policy::Event> Decode(const v1::TraceEvent::GateEnded& in) {
  const auto end = Value<policy::GateEnd>(in.end());
  if (!end || !Known(*end)) return OutOfRange("gate end", in.end());
  return policy::GateEnded{.gate = GateId{in.gate()},
                           .end = *end,
                           .code = in.code(),
                           .peak = Bytes{in.peak()},
                           .cpu = Duration(in.cpu_ns())};
}

void Encode(const policy::GateGone& event, v1::TraceEvent& out) {
  out.mutable_gate_gone()->set_gate(Number(event.gate));
}
policy::Event Decode(const v1::TraceEvent::GateGone& in) {
  return policy::GateGone{GateId{in.gate()}};
}

void Encode(const policy::Recalled& event, v1::TraceEvent& out) {
  out.set_recalled(EncodeFields(event));
}

void Encode(const policy::Tick&, v1::TraceEvent& out) {
  out.mutable_tick();
}

// --- Actions ------------------------------------------------------------------------------------

void Encode(const policy::Mint& action, v1::TraceAction& out) {
  out.mutable_mint()->set_lane(Number(action.lane));
  out.mutable_mint()->set_count(action.count);
}
void Encode(const policy::Collect& action, v1::TraceAction& out) {
  out.mutable_collect()->set_lane(Number(action.lane));
  out.mutable_collect()->set_count(action.debt);
}
void Encode(const policy::Freeze& action, v1::TraceAction& out) {
  Encode(action.proc, out.mutable_freeze()->mutable_proc());
  out.mutable_freeze()->set_lane(Number(action.lane));
}
void Encode(const policy::Thaw& action, v1::TraceAction& out) {
  Encode(action.proc, out.mutable_thaw()->mutable_proc());
  out.mutable_thaw()->set_lane(Number(action.lane));
}
void Encode(const policy::Admit& action, v1::TraceAction& out) {
  out.mutable_admit()->set_gate(Number(action.gate));
  out.mutable_admit()->set_predicted_peak(action.predicted_peak.count);
}
void Encode(const policy::Evict& action, v1::TraceAction& out) {
  out.mutable_evict()->set_gate(Number(action.gate));
  out.mutable_evict()->set_floor(action.floor.count);
}
void Encode(const policy::Verdict& action, v1::TraceAction& out) {
  auto* to = out.mutable_verdict();
  to->set_gate(Number(action.gate));
  to->set_again(action.again);
  to->set_floor(action.floor.count);
  to->set_alone(action.alone);
}
void Encode(const policy::SetSampling& action, v1::TraceAction& out) {
  out.mutable_set_sampling()->set_fast_ns(action.fast.count());
  out.mutable_set_sampling()->set_glance_ns(action.glance.count());
}

}  // namespace

void EncodeEvent(const policy::Event& event, v1::TraceEvent& out) {
  out.Clear();
  std::visit([&out](const auto& value) { Encode(value, out); }, event);
}

absl::StatusOr<policy::Event> DecodeEvent(const v1::TraceEvent& in) {
  switch (in.event_case()) {
    case v1::TraceEvent::kConfigure:
      return Decode(in.configure());
    case v1::TraceEvent::kDomainSeen:
      return Decode(in.domain_seen());
    case v1::TraceEvent::kDomainGone:
      return Decode(in.domain_gone());
    case v1::TraceEvent::kLaneOpened:
      return Decode(in.lane_opened());
    case v1::TraceEvent::kLaneClosed:
      return Decode(in.lane_closed());
    case v1::TraceEvent::kLaneHint:
      return Decode(in.lane_hint());
    case v1::TraceEvent::kTokensMoved:
      return Decode(in.tokens_moved());
    case v1::TraceEvent::kJobSeen:
      return Decode(in.job_seen());
    case v1::TraceEvent::kJobGone:
      return Decode(in.job_gone());
    case v1::TraceEvent::kProcSeen:
      return Decode(in.proc_seen());
    case v1::TraceEvent::kProcGone:
      return Decode(in.proc_gone());
    case v1::TraceEvent::kSample:
      return Decode(in.sample());
    case v1::TraceEvent::kGateRequest:
      return Decode(in.gate_request());
    case v1::TraceEvent::kGateStarted:
      return Decode(in.gate_started());
    case v1::TraceEvent::kGateEnded:
      return Decode(in.gate_ended());
    case v1::TraceEvent::kGateGone:
      return Decode(in.gate_gone());
    case v1::TraceEvent::kTick:
      return policy::Event(policy::Tick{});
    case v1::TraceEvent::kRecalled: {
      auto recalled = DecodeFields<policy::Recalled>(in.recalled());
      if (!recalled) return absl::InvalidArgumentError("trace: what the history told is damaged");
      return policy::Event(*std::move(recalled));
    }
    case v1::TraceEvent::EVENT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("trace: an event of a kind that this version does not know");
}

void EncodeAction(const policy::Action& action, v1::TraceAction& out) {
  out.Clear();
  std::visit(
      [&out](const auto& value) {
        if constexpr (requires { value.reason; }) Encode(value.reason, out.mutable_reason());
        Encode(value, out);
      },
      action);
}

absl::StatusOr<policy::Action> DecodeAction(const v1::TraceAction& in) {
  absl::StatusOr<policy::Reason> decoded = Decode(in.reason());
  if (!decoded.ok()) return decoded.status();
  policy::Reason reason = *std::move(decoded);
  switch (in.action_case()) {
    case v1::TraceAction::kMint:
      return policy::Mint{LaneId{in.mint().lane()}, in.mint().count(), std::move(reason)};
    case v1::TraceAction::kCollect:
      return policy::Collect{LaneId{in.collect().lane()}, in.collect().count(), std::move(reason)};
    case v1::TraceAction::kFreeze:
      return policy::Freeze{Decode(in.freeze().proc()), LaneId{in.freeze().lane()},
                            std::move(reason)};
    case v1::TraceAction::kThaw:
      return policy::Thaw{Decode(in.thaw().proc()), LaneId{in.thaw().lane()}, std::move(reason)};
    case v1::TraceAction::kAdmit:
      return policy::Admit{GateId{in.admit().gate()}, Bytes{in.admit().predicted_peak()},
                           std::move(reason)};
    case v1::TraceAction::kEvict:
      return policy::Evict{GateId{in.evict().gate()}, Bytes{in.evict().floor()}, std::move(reason)};
    case v1::TraceAction::kVerdict:
      return policy::Verdict{.gate = GateId{in.verdict().gate()},
                             .again = in.verdict().again(),
                             .floor = Bytes{in.verdict().floor()},
                             .alone = in.verdict().alone(),
                             .reason = std::move(reason)};
    case v1::TraceAction::kSetSampling:
      return policy::Action(policy::SetSampling{Duration(in.set_sampling().fast_ns()),
                                                Duration(in.set_sampling().glance_ns())});
    case v1::TraceAction::ACTION_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("trace: an action of a kind that this version does not know");
}

std::string EncodeState(const policy::State& state) {
  return EncodeFields(state);
}

absl::StatusOr<policy::State> DecodeState(std::string_view bytes) {
  auto state = DecodeFields<policy::State>(bytes);
  if (!state)
    return absl::InvalidArgumentError(
        "trace: the snapshot is damaged or of another layout of the policy's state: replay it with "
        "the version that recorded it");
  return *std::move(state);
}

std::string StateLayout() {
  // FNV-1a: stable everywhere, and nobody gains by a collision.
  uint64_t hash = 14695981039346656037U;
  for (const char c : DescribeFields<policy::State>()) {
    hash ^= static_cast<uint8_t>(c);
    hash *= 1099511628211U;
  }
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

}  // namespace headroom::trace
