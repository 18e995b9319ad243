// What the policy is told: one Event a step. Events are facts that the daemon observed, or results
// of actions that it carried out; none is a decision. All are plain values that the recorder can
// write and a replay can feed again.
#ifndef HEADROOM_SERVER_POLICY_EVENT_H_
#define HEADROOM_SERVER_POLICY_EVENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "server/policy/profile.h"
#include "server/policy/types.h"

namespace headroom::policy {

// --- Settings -----------------------------------------------------------------------------------

// How much of a domain is never planned with. Unset fields: the default of design.md, that is
// max(3 %, min(7 %, 512 MiB)) of the domain.
struct Reserve {
  std::optional<Bytes> bytes;      // a fixed size
  std::optional<Permyriad> share;  // or a share of the domain's limit
  friend bool operator==(const Reserve&, const Reserve&) = default;
};

struct Configure {
  Reserve reserve;
  // Off only in tests: shows that a bar depends on prediction. Every job is then expected to take
  // nothing more than it has, and nothing is braked.
  bool prediction = true;
  // A test's way to spoil prediction: every predicted peak is this. Brake and recovery still work.
  std::optional<Bytes> spoiled_peak;
  friend bool operator==(const Configure&, const Configure&) = default;
};

// What the history knows of these classes: their sums are set to it, unknown ones are added.
// Stats::parent is a position in this list, always a smaller one. What does not fit (another kind
// of class of that name, impossible numbers: the file is from outside) is passed over.
struct Recalled {
  std::vector<Stats> classes;
  static constexpr auto Fields() { return std::tuple(&Recalled::classes); }
  friend bool operator==(const Recalled&, const Recalled&) = default;
};

// --- Domains ------------------------------------------------------------------------------------

// A memory limit: the host, or a cgroup. Sent when first seen; repeated when a constant changes.
struct DomainSeen {
  DomainId id = DomainId::kNone;
  DomainId parent = DomainId::kNone;  // kNone: the host
  std::string name;                   // "host", or the cgroup's path
  Bytes limit;                        // MemTotal, or the cgroup's limit
  bool swap_possible = false;         // said in reasons; swap is never planned with
  // One OOM kill here ends all of a build at once (memory.oom.group of it or of a cgroup below).
  bool kills_group = false;
  friend bool operator==(const DomainSeen&, const DomainSeen&) = default;
};

// The domain's cgroup is gone. Lanes in it fall back to its parent.
struct DomainGone {
  DomainId id = DomainId::kNone;
  friend bool operator==(const DomainGone&, const DomainGone&) = default;
};

// What a domain has at this moment.
struct DomainSample {
  DomainId id = DomainId::kNone;
  // MemAvailable (ARC credited, see sys/meminfo.h), or limit - usage + reclaimable file pages.
  Bytes available;
  uint64_t oom_kills = 0;                   // the kernel's counter, since the domain exists
  std::optional<Permyriad> psi_full_avg10;  // unset where the kernel has no PSI
  uint64_t swap_in_pages = 0;               // pswpin, since boot
  friend bool operator==(const DomainSample&, const DomainSample&) = default;
};

// --- Lanes and tokens ---------------------------------------------------------------------------

enum class LaneKind : uint8_t {
  kOwn,     // of one `headroom run`
  kShared,  // of all builds of one user that exported MAKEFLAGS
};

// For a lane that is open already: domain, cores, cap, reserve and gate have changed; its books and
// all that was learned of it stay.
struct LaneOpened {
  LaneId id = LaneId::kNone;
  LaneKind kind = LaneKind::kOwn;
  uint32_t uid = 0;
  std::string name;                   // the lane's folder name, for people
  DomainId domain = DomainId::kNone;  // the innermost one of the lane's root process
  int cores = 1;  // affinity, cpuset and quota; what the lane may run at once by itself
  std::optional<int> jobs_cap;  // --jobs N: replaces cores, also above the machine's
  Reserve reserve;              // --reserve SIZE, for this lane's share of the decision
  bool gated = false;  // tool processes stop at the gate: tokens need not carry the memory plan
  // After a daemon restart: what the lane's `minted` file and its fifo said.
  int minted = 0;
  int idle = 0;
  friend bool operator==(const LaneOpened&, const LaneOpened&) = default;
};

struct LaneClosed {
  LaneId id = LaneId::kNone;
  friend bool operator==(const LaneClosed&, const LaneClosed&) = default;
};

// What the client is about to run, read from the build file in its folder: edges by driver.
struct LaneHint {
  struct Edges {
    std::string driver;  // "nvcc", "c++", "ld", or "other"
    int count = 0;
    int fan_out = 1;  // tool processes one edge runs at once (archs, capped by --threads)
    friend bool operator==(const Edges&, const Edges&) = default;
  };
  LaneId id = LaneId::kNone;
  std::vector<Edges> edges;
  friend bool operator==(const LaneHint&, const LaneHint&) = default;
};

// The fifo as it is now, and what the lane's clients are seen to use.
struct LaneSample {
  LaneId id = LaneId::kNone;
  int idle = 0;  // FIONREAD
  // Live clients that have an implicit slot of their own (top-level ones).
  int clients = 0;
  // Tokens that the clients' children explain: for each top-level client, the leaves of its
  // process tree less the implicit slot (threads for tools that use tokens for threads). Unset when
  // this sample did not look.
  std::optional<int> explained;
  // Some process other than the daemon and `run` has the fifo open. Unset when not looked at.
  std::optional<bool> opened;
  friend bool operator==(const LaneSample&, const LaneSample&) = default;
};

// The file system that a lane's TMPDIR lies on. Lanes of which nothing is known have none.
struct TempSample {
  LaneId id = LaneId::kNone;
  Bytes free;
  friend bool operator==(const TempSample&, const TempSample&) = default;
};

// The daemon wrote (minted > 0) or took back (collected > 0) tokens, as an action asked. It may
// have done less than asked; what it collects later for a standing debt is reported as it comes.
struct TokensMoved {
  LaneId id = LaneId::kNone;
  int minted = 0;
  int collected = 0;
  int idle = 0;  // FIONREAD after it
  friend bool operator==(const TokensMoved&, const TokensMoved&) = default;
};

// --- Jobs and processes -------------------------------------------------------------------------

// A process under a client that is a whole command of the build tool. Sent again when more is known
// of it: a shell, say, has started its compiler.
struct JobSeen {
  ProcId job;
  LaneId lane = LaneId::kNone;
  ProcId client;
  std::string driver;  // "nvcc", "c++", "ld", "other": see policy/tool.h
  std::string source;  // relative path, or empty
  int fan_out = 1;
  friend bool operator==(const JobSeen&, const JobSeen&) = default;
};

struct JobGone {
  ProcId job;
  friend bool operator==(const JobGone&, const JobGone&) = default;
};

// What is known of a tool process before it runs.
struct ToolInfo {
  std::string tool;         // "cicc", "ptxas", "cc1plus", ...
  std::string source;       // relative to the build folder where it can be told, or empty
  uint64_t flags_hash = 0;  // of the arguments that shape the result, paths and outputs left out
  int64_t input_bytes = 0;  // size of its input file; 0: unknown
  friend bool operator==(const ToolInfo&, const ToolInfo&) = default;
};

// A tool process of a lane, or a foreign one (lane kNone): growth is expected of both.
struct ProcSeen {
  ProcId proc;
  ProcId job;  // unset for foreign processes and outside of any job
  LaneId lane = LaneId::kNone;
  DomainId domain = DomainId::kNone;
  ToolInfo info;
  GateId gate = GateId::kNone;  // set: the worker of this gated process
  uint32_t uid = 0;
  friend bool operator==(const ProcSeen&, const ProcSeen&) = default;
};

struct ProcSample {
  ProcId proc;
  Bytes anon;       // resident - shared, see sys/process.h
  Duration cpu{0};  // user + system, since its start
  friend bool operator==(const ProcSample&, const ProcSample&) = default;
};

struct ProcGone {
  ProcId proc;
  friend bool operator==(const ProcGone&, const ProcGone&) = default;
};

// One round of the sampler: everything that it read at one moment, then one decision.
struct Sample {
  std::vector<DomainSample> domains;
  std::vector<LaneSample> lanes;
  std::vector<ProcSample> procs;
  std::vector<TempSample> temps = {};
  friend bool operator==(const Sample&, const Sample&) = default;
};

// --- The gate -----------------------------------------------------------------------------------

struct GateRequest {
  GateId gate = GateId::kNone;
  LaneId lane = LaneId::kNone;
  DomainId domain = DomainId::kNone;
  ProcId keeper;
  GateId under = GateId::kNone;  // an admitted process that waits for this one
  ToolInfo info;
  bool replayable = false;
  int attempt = 1;  // 1 for the first
  Bytes floor;      // it is known to need at least this (an eviction, an OOM kill)
  // Set when a keeper registers again after a daemon restart with a worker that already runs.
  ProcId worker;
  // How its earlier attempts ended, as the keeper counts them: an earlier daemon may have seen
  // them.
  int evictions = 0;
  int oom_kills = 0;
  int other_kills = 0;
  ProcId job;  // the job that it belongs to; unset: not known
  friend bool operator==(const GateRequest&, const GateRequest&) = default;
};

// The worker runs.
struct GateStarted {
  GateId gate = GateId::kNone;
  ProcId worker;
  friend bool operator==(const GateStarted&, const GateStarted&) = default;
};

enum class GateEnd : uint8_t {
  kExit,     // exit code, any
  kSignal,   // a signal other than those below, or one that its own process group got
  kKilled,   // SIGKILL or SIGTERM to the worker alone
  kEvicted,  // the daemon's Evict was carried out
};

struct GateEnded {
  GateId gate = GateId::kNone;
  GateEnd end = GateEnd::kExit;
  int code = 0;  // exit code or signal
  Bytes peak;    // largest anonymous memory seen, or the keeper's rusage
  Duration cpu{0};
  friend bool operator==(const GateEnded&, const GateEnded&) = default;
};

// The keeper is gone without an end (killed), or the waiter gave up.
struct GateGone {
  GateId gate = GateId::kNone;
  friend bool operator==(const GateGone&, const GateGone&) = default;
};

// --- Time ---------------------------------------------------------------------------------------

// Nothing new, but time has passed: deadlines and ramps are looked at.
struct Tick {
  friend bool operator==(const Tick&, const Tick&) = default;
};

using Event = std::variant<Configure, DomainSeen, DomainGone, LaneOpened, LaneClosed, LaneHint,
                           TokensMoved, JobSeen, JobGone, ProcSeen, ProcGone, Sample, GateRequest,
                           GateStarted, GateEnded, GateGone, Tick, Recalled>;

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_EVENT_H_
