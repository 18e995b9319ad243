// All that the policy knows: facts from events, what it decided, and what it has learned. One plain
// value, comparable and serialisable, so that a trace can begin with a snapshot of it and a replay
// from there takes the same decisions.
//
// What can be derived from these fields is not stored (out = minted - idle; sums of a domain). No
// hash containers: every iteration is in the order of keys, the same in each run.
//
// Serialisation: every struct names its members in Fields(), a tuple of member pointers. A codec
// that walks Fields() (see server/trace) needs no change when a member is added here. The kinds of
// members are: bool, integers, enums, double, std::string, Bytes, Permyriad, Duration, Time,
// ProcId, structs with Fields(), and std::optional, std::array, std::vector, std::map of these.
//
// Threading: belongs to one thread. Errors: none.
#ifndef HEADROOM_SERVER_POLICY_STATE_H_
#define HEADROOM_SERVER_POLICY_STATE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "server/policy/event.h"
#include "server/policy/profile.h"
#include "server/policy/types.h"

namespace headroom::policy {

// --- Domains ------------------------------------------------------------------------------------

struct DomainState {
  DomainId id = DomainId::kNone;
  DomainId parent = DomainId::kNone;
  std::string name;
  Bytes limit;
  bool swap_possible = false;
  bool kills_group = false;
  bool sampled = false;  // nothing is planned in a domain that was never looked at
  Time sampled_at{};
  Bytes available;
  uint64_t oom_kills = 0;
  std::optional<Permyriad> psi_full_avg10;
  uint64_t swap_in_pages = 0;
  double fill_rate = 0;        // bytes a second by which `available` shrinks, smoothed
  double foreign_rate = 0;     // the part of it that our own processes do not explain
  Bytes own_growth;            // of the processes that we see in it, since its last sample
  uint64_t oom_unclaimed = 0;  // kills that no gate's end was put down to
  Time oom_at{};               // when the kernel's counter rose last; Time{}: never
  bool braking = false;
  Time brake_since{};
  Time brake_acted{};      // the last freeze or eviction: its effect must be seen before the next
  Time admitted_at{};      // the last admission at the gate
  Time admissions_hold{};  // none before this moment: what an eviction frees is not back yet
  Time freed_at{};         // the last end of an evicted process: earlier samples do not show it
  static constexpr auto Fields() {
    return std::tuple(&DomainState::id, &DomainState::parent, &DomainState::name,
                      &DomainState::limit, &DomainState::swap_possible, &DomainState::sampled,
                      &DomainState::sampled_at, &DomainState::available, &DomainState::oom_kills,
                      &DomainState::psi_full_avg10, &DomainState::swap_in_pages,
                      &DomainState::fill_rate, &DomainState::foreign_rate, &DomainState::own_growth,
                      &DomainState::oom_unclaimed, &DomainState::oom_at, &DomainState::braking,
                      &DomainState::brake_since, &DomainState::brake_acted,
                      &DomainState::admitted_at, &DomainState::admissions_hold,
                      &DomainState::freed_at, &DomainState::kills_group);
  }
  friend bool operator==(const DomainState&, const DomainState&) = default;
};

// --- Lanes --------------------------------------------------------------------------------------

// A kind of edge that the lane's client has still to run, from LaneHint.
struct HintState {
  std::string driver;
  int fan_out = 1;
  int count = 0;    // all of them
  int started = 0;  // of them, jobs seen so far
  static constexpr auto Fields() {
    return std::tuple(&HintState::driver, &HintState::fan_out, &HintState::count,
                      &HintState::started);
  }
  friend bool operator==(const HintState&, const HintState&) = default;
};

// The file system of a lane's temporary files, see temp.h.
struct TempState {
  bool known = false;
  bool learned = false;  // a job has ended that was seen to write
  Bytes free;            // at the last look
  Bytes most;            // that was free while no job had begun, or since
  Bytes each;            // the most that was missing for each job that has begun
  Time ran_at{};         // when a gated tool of the lane was last seen to run
  static constexpr auto Fields() {
    return std::tuple(&TempState::known, &TempState::learned, &TempState::free, &TempState::most,
                      &TempState::each, &TempState::ran_at);
  }
  friend bool operator==(const TempState&, const TempState&) = default;
};

struct LaneState {
  LaneId id = LaneId::kNone;
  LaneKind kind = LaneKind::kOwn;
  uint32_t uid = 0;
  std::string name;
  DomainId domain = DomainId::kNone;
  int cores = 1;
  std::optional<int> jobs_cap;
  std::optional<Bytes> reserve_bytes;
  std::optional<Permyriad> reserve_share;
  bool gated = false;
  Time opened_at{};

  int minted = 0;         // tokens that exist
  int idle = 0;           // of them in the fifo; out = minted - idle
  int target = 0;         // tokens that should exist
  int asked = 0;          // by Mint actions that no TokensMoved has answered yet
  std::vector<int> asks;  // each of them, oldest first
  int debt = 0;           // what the last Collect asked for, less what came back since

  int clients = 0;
  bool had_client = false;
  std::optional<int> explained;  // as last looked at
  std::optional<bool> opened;
  // The smallest number of tokens out that nothing explained since `leak_since`; 0: none.
  int leak_least = 0;
  Time leak_since{};
  std::vector<HintState> hints;
  int jobs_seen = 0;  // jobs that this lane has started so far
  int jobs_ended = 0;
  int slow_limit = 0;  // slow start's present width; 0: not in use
  Time slow_at{};
  TempState temp;
  static constexpr auto Fields() {
    return std::tuple(
        &LaneState::id, &LaneState::kind, &LaneState::uid, &LaneState::name, &LaneState::domain,
        &LaneState::cores, &LaneState::jobs_cap, &LaneState::reserve_bytes,
        &LaneState::reserve_share, &LaneState::gated, &LaneState::opened_at, &LaneState::minted,
        &LaneState::idle, &LaneState::target, &LaneState::asked, &LaneState::asks, &LaneState::debt,
        &LaneState::clients, &LaneState::had_client, &LaneState::explained, &LaneState::opened,
        &LaneState::leak_least, &LaneState::leak_since, &LaneState::hints, &LaneState::jobs_seen,
        &LaneState::jobs_ended, &LaneState::slow_limit, &LaneState::slow_at, &LaneState::temp);
  }
  friend bool operator==(const LaneState&, const LaneState&) = default;
};

// --- What runs ----------------------------------------------------------------------------------

// Memory and CPU time of a process, or of a whole job, as they went.
struct Usage {
  Time since{};       // first seen
  Time sampled_at{};  // Time{}: not yet
  Bytes anon;
  Bytes peak;
  Duration cpu{0};
  double cpu_rate = 1;  // CPU seconds a second, smoothed
  double growth = 0;    // bytes a CPU second, smoothed
  // Memory in KiB when the CPU time passed each of predict.h's mark ages: the curve so far.
  std::vector<uint32_t> marks;
  static constexpr auto Fields() {
    return std::tuple(&Usage::since, &Usage::sampled_at, &Usage::anon, &Usage::peak, &Usage::cpu,
                      &Usage::cpu_rate, &Usage::growth, &Usage::marks);
  }
  friend bool operator==(const Usage&, const Usage&) = default;
};

struct JobState {
  ProcId job;
  LaneId lane = LaneId::kNone;
  ProcId client;
  std::string driver;
  std::string source;
  int fan_out = 1;
  uint32_t klass = 0;  // a position in Profile::classes
  Usage use;           // the sum over its tool processes, after each sample
  Bytes now_anon;      // the same, as it changes within a sample
  Duration now_cpu{0};
  int procs = 0;  // tool processes that live now
  int procs_seen = 0;
  bool main_seen = false;  // the tool that takes most of its memory has begun
  bool frozen = false;     // its tool processes are
  bool begun = false;      // a gated tool of it was admitted
  static constexpr auto Fields() {
    return std::tuple(&JobState::job, &JobState::lane, &JobState::client, &JobState::driver,
                      &JobState::source, &JobState::fan_out, &JobState::klass, &JobState::use,
                      &JobState::now_anon, &JobState::now_cpu, &JobState::procs,
                      &JobState::procs_seen, &JobState::main_seen, &JobState::frozen,
                      &JobState::begun);
  }
  friend bool operator==(const JobState&, const JobState&) = default;
};

struct ProcState {
  // What each step looks at lies together, at the front: thousands of these pass by.
  ProcId proc;
  ProcId job;
  LaneId lane = LaneId::kNone;
  DomainId domain = DomainId::kNone;
  GateId gate = GateId::kNone;
  uint32_t klass = 0;   // a position in Profile::classes
  bool in_job = false;  // its job is known and planned with as a whole
  bool frozen = false;
  Usage use;
  Time frozen_at{};
  Time thawed_at{};
  uint32_t uid = 0;
  std::string tool;
  std::string source;
  uint64_t flags_hash = 0;
  int64_t input_bytes = 0;
  static constexpr auto Fields() {
    return std::tuple(&ProcState::proc, &ProcState::job, &ProcState::lane, &ProcState::domain,
                      &ProcState::gate, &ProcState::uid, &ProcState::tool, &ProcState::source,
                      &ProcState::flags_hash, &ProcState::input_bytes, &ProcState::klass,
                      &ProcState::in_job, &ProcState::frozen, &ProcState::frozen_at,
                      &ProcState::thawed_at, &ProcState::use);
  }
  friend bool operator==(const ProcState&, const ProcState&) = default;
};

// --- The gate -----------------------------------------------------------------------------------

enum class GatePhase : uint8_t {
  kWaiting,   // held before main()
  kAdmitted,  // let go, its worker not yet heard of
  kRunning,
  kEvicting,  // Evict was sent, its end not yet heard of
  kEnded,     // it will ask again, or be gone
};

struct GateState {
  GateId gate = GateId::kNone;
  LaneId lane = LaneId::kNone;
  DomainId domain = DomainId::kNone;
  ProcId keeper;
  GateId under = GateId::kNone;
  ProcId job;
  std::string tool;
  std::string source;
  uint64_t flags_hash = 0;
  int64_t input_bytes = 0;
  uint32_t klass = 0;
  bool replayable = false;
  GatePhase phase = GatePhase::kWaiting;
  ProcId worker;
  Time asked_at{};
  Time admitted_at{};
  int attempt = 1;
  Bytes floor;
  bool front = false;    // evicted or killed: before others
  bool alone = false;    // only when nothing else runs in its domain
  int oom_ends = 0;      // ends with evidence of the OOM killer
  int killed_ends = 0;   // ends by SIGKILL or SIGTERM without
  Bytes predicted_peak;  // what it was admitted with
  static constexpr auto Fields() {
    return std::tuple(&GateState::gate, &GateState::lane, &GateState::domain, &GateState::keeper,
                      &GateState::under, &GateState::job, &GateState::tool, &GateState::source,
                      &GateState::flags_hash, &GateState::input_bytes, &GateState::klass,
                      &GateState::replayable, &GateState::phase, &GateState::worker,
                      &GateState::asked_at, &GateState::admitted_at, &GateState::attempt,
                      &GateState::floor, &GateState::front, &GateState::alone, &GateState::oom_ends,
                      &GateState::killed_ends, &GateState::predicted_peak);
  }
  friend bool operator==(const GateState&, const GateState&) = default;
};

// --- All of it ----------------------------------------------------------------------------------

// Values derived from the state that are kept between steps because they cost time to make. Not a
// part of the state's value: never compared, never stored, rebuilt where missing.
template <typename T>
struct Derived {
  T value{};
  friend bool operator==(const Derived&, const Derived&) { return true; }
};

// A class's curves, ready to be looked up; see predict.cc.
struct ClassCurves {
  bool made = false;
  double count = 0;      // of Stats, when this was made
  uint64_t version = 0;  // changes when this changes
  uint64_t parent_version = 0;
  double ln_cpu = 0;  // ln of the median CPU seconds from start to end
  double sd_cpu = 0;
  double shape_weight = 0;  // how many ended ones, and the prior's weight, are behind the shape
  std::array<double, kShapePoints> level{};
  std::array<double, kShapePoints> rise_raw{};
  // At 0, 1/16 .. 65/16 of the CPU time. All that is asked for one moment lies side by side: a
  // forecast looks it up in one go, for twelve moments.
  struct alignas(16) Point {
    float rise = 0;   // largest so far / peak; 1 from the peak on
    float level = 0;  // memory / peak
    float alive = 1;  // share that still runs
    float keep = 1;   // expected memory / largest so far
  };
  std::array<Point, 66> points{};
  double trust = 0;  // in the course after the peak
};

struct State {
  std::optional<Bytes> reserve_bytes;  // of Configure
  std::optional<Permyriad> reserve_share;
  bool prediction = true;
  std::optional<Bytes> spoiled_peak;
  Profile profile;
  std::map<DomainId, DomainState> domains;
  std::map<LaneId, LaneState> lanes;
  std::vector<JobState> jobs;    // by job
  std::vector<ProcState> procs;  // by proc
  std::map<GateId, GateState> gates;
  Duration sampling{0};  // what SetSampling said last
  Duration glancing{0};
  Time decided_at{};
  Derived<std::vector<ClassCurves>> curves;  // by class; no part of Fields()
  static constexpr auto Fields() {
    return std::tuple(&State::reserve_bytes, &State::reserve_share, &State::prediction,
                      &State::spoiled_peak, &State::profile, &State::domains, &State::lanes,
                      &State::jobs, &State::procs, &State::gates, &State::sampling,
                      &State::glancing, &State::decided_at);
  }
  friend bool operator==(const State&, const State&) = default;
};

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_STATE_H_
