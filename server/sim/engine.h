// A build host in virtual time: build tools, their jobs, the tool processes of those with their
// memory over CPU time, cores, memory, and the kernel's OOM killer. A Scheduler (a fixed -j, an
// oracle, Headroom's own policy) decides what the engine leaves open.
//
// What is modelled
// - A job is one command: its front processes one after another, then cicc -> ptxas once for each
//   arch (up to --threads at once), then its back processes. The driver's own time between
//   processes, as measured, passes without a core.
// - A process advances in CPU seconds along its curve. All that run share the cores equally: beyond
//   that many, every one is slowed by the same factor.
// - Memory is the sum of the curves and of other load. When it exceeds the machine's, the kernel
//   kills the largest tool process, and its memory is back at once (whoever allocates waits for it
//   in the kernel). What is not modelled: swap, page cache, thrashing before the kill.
// - A build tool whose job fails starts no other job, waits for those that run, and has failed.
//
// How: event-driven between the knots of the curves. All running processes advance at the same
// rate, so one clock of "service" (CPU seconds given to each) orders their knots, and memory is
// linear in it in between: the moment of an OOM kill is computed, not searched for.
//
// Threading: none. Deterministic: the same configuration and scheduler give the same run, bit for
// bit, on machines with the same floating point.
#ifndef HEADROOM_SERVER_SIM_ENGINE_H_
#define HEADROOM_SERVER_SIM_ENGINE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <vector>

#include "server/sim/curves.h"
#include "server/sim/rng.h"

namespace headroom::sim {

enum class ClientKind : uint8_t {
  kFixed,      // a build tool with -jN, no jobserver client
  kNinjaHead,  // takes tokens as soon as they are there
  kNinja113,   // ninja 1.13.x: looks for tokens only when it starts and when one of its jobs ends
  kMake,       // as kNinjaHead, in what matters here
};

struct BuildSpec {
  const std::vector<Command>* commands = nullptr;
  std::vector<int> order;  // indexes into commands; empty: as they are
  int archs = 1;           // 0: those that were recorded
  int threads = 1;
  ClientKind client = ClientKind::kFixed;
  int jobs = 1;            // kFixed: -jN
  double starts_at_s = 0;  // virtual time
  double parse_s = 0;      // from its start to its first job
};

// Memory and cores that something else on the machine takes from `at_s` on.
struct LoadStep {
  double at_s = 0;
  double bytes = 0;
  double cores = 0;
};

struct EngineConfig {
  double cores = 1;
  double mem_bytes = 0;
  std::vector<BuildSpec> builds;
  std::vector<LoadStep> load;  // sorted by at_s
  // Every process's memory is scaled by a draw from [1 - noise, 1 + noise].
  double noise = 0;
  uint64_t seed = 0;
  bool stop_on_failure = false;  // for searches that only ask whether a build passes
  double idle_limit_s = 600;     // nothing has run for so long: it has hung
};

enum class ProcState : uint8_t {
  kWaiting,  // before main(): held, takes nothing
  kRunning,
  kFrozen,
  kDying,  // killed by the scheduler, its memory not yet back
  kDone,
};

enum class ProcEnd : uint8_t {
  kExit,
  kOomKilled,  // by the kernel
  kEvicted,    // by the scheduler; told when its memory is back
};

struct Proc {
  int build = 0;
  int job = 0;
  int command = 0;
  int shape_index = 0;
  int copy = -1;  // which arch's chain, or -1
  const Shape* shape = nullptr;
  double scale = 1;
  ProcState state = ProcState::kWaiting;
  int attempt = 1;
  double ready_at = 0;
  double started_at = 0;
  double peak_seen = 0;  // over all attempts
  // The engine's own:
  size_t next_knot = 0;
  double base = 0;   // service clock at which its CPU time was 0
  double cpu = 0;    // CPU seconds, when it does not run
  double slope = 0;  // bytes a CPU second, on this part of the curve
  double held = 0;   // bytes of a frozen or dying one
  uint32_t generation = 0;
};

struct Job {
  int build = 0;
  int command = 0;
  double started_at = 0;
  bool has_token = false;  // else it runs in the implicit slot
  bool done = false;
  bool failed = false;
  // The engine's own:
  int part = 0;   // 0 front, 1 chains, 2 back
  int stage = 0;  // of front or back
  int live = 0;   // processes and gaps that it waits for
  int chains_started = 0;
  int chains_done = 0;
  std::vector<int> chain_stage;
  std::vector<int> procs;  // all that it has started
};

struct Build {
  BuildSpec spec;
  int next = 0;  // of the order
  int running = 0;
  int done = 0;
  bool started = false;
  bool failed = false;
  bool finished = false;
  double finished_at = 0;
  double failed_at = 0;
  bool implicit_used = false;
  // Its fifo.
  int minted = 0;
  int idle = 0;
  int held = 0;  // out, by the client
  int debt = 0;
  int client_wakes = 0;  // it will look for tokens, or start jobs
};

struct RunResult {
  double seconds = 0;  // until the last build has ended; of a failed run, until the first failure
  double first_oom_s = 0;  // 0: none
  int oom_kills = 0;       // of the builds' tool processes, by the kernel
  int foreign_kills = 0;   // of anything else, by the kernel
  bool failed = false;     // some build failed or hung
  bool hung = false;
  int evictions = 0;
  int freezes = 0;
  double wasted_cpu_s = 0;  // CPU seconds of attempts that were killed
  double cpu_s = 0;         // all CPU seconds
  double peak_bytes = 0;    // largest sum of the builds' memory and other load
};

class Engine;

// What a policy does in the simulator. Called by the engine in the order of events; it acts through
// the engine's methods, also from within the calls.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void Begin(Engine&) {}
  // A tool process stands before main(). It runs when engine.Start() is called for it.
  virtual void OnReady(Engine& engine, int proc) = 0;
  virtual void OnEnd(Engine&, int /*proc*/, ProcEnd) {}
  // The kernel killed it. True: the scheduler will run it again; it waits before main() from now
  // on. False: its job fails.
  virtual bool Retries(Engine&, int /*proc*/) { return false; }
  virtual void OnJobStarted(Engine&, int /*job*/) {}
  virtual void OnJobEnded(Engine&, int /*job*/) {}
  virtual void OnCollected(Engine&, int /*build*/, int /*count*/) {}
  virtual void OnBuildStarted(Engine&, int /*build*/) {}
  virtual void OnBuildEnded(Engine&, int /*build*/) {}
  // After every moment in which something happened.
  virtual void Decide(Engine&) {}
};

class Engine {
 public:
  Engine(EngineConfig config, Scheduler& scheduler);

  RunResult Run();

  // --- What a scheduler may see -----------------------------------------------------------------
  double now() const { return now_; }
  double service() const { return service_; }  // CPU seconds given to each running process so far
  const EngineConfig& config() const { return config_; }
  double memory_used() const { return used_ + load_bytes_; }
  double memory_free() const { return config_.mem_bytes - memory_used(); }
  double load_bytes() const { return load_bytes_; }
  double load_cores() const { return load_cores_; }
  int running() const { return running_; }
  const std::vector<Proc>& procs() const { return procs_; }
  const Proc& proc(int id) const { return procs_[Index(id)]; }
  const Job& job(int id) const { return jobs_[Index(id)]; }
  const std::vector<Job>& jobs() const { return jobs_; }
  const Build& build(int id) const { return builds_[Index(id)]; }
  int build_count() const { return static_cast<int>(builds_.size()); }
  double CpuOf(int proc) const;
  double BytesOf(int proc) const;
  int oom_kills() const { return result_.oom_kills; }

  // --- What it may do ---------------------------------------------------------------------------
  void Start(int proc);
  // Kills a running or frozen process; it waits before main() again once its memory is back.
  void Evict(int proc);
  void Freeze(int proc);
  void Thaw(int proc);
  void Mint(int build, int count);
  // Sets the debt and takes what lies in the fifo; gives the number taken at once.
  int Collect(int build, int debt);
  // Calls `what` at virtual time `at`. Calls for the same time run in the order they were asked.
  void At(double at, std::function<void()> what);

 private:
  struct Knotted {
    double service;
    int proc;
    uint32_t generation;
    bool operator<(const Knotted& other) const {
      // The first to come on top of std::priority_queue; ids break ties.
      return service != other.service ? service > other.service : proc > other.proc;
    }
  };
  struct Timer {
    double at;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Timer& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  static size_t Index(int id) { return static_cast<size_t>(id); }
  double Rate() const;
  void Settle();
  void ClientStarts(int build);
  void StartJob(int build, bool with_token);
  void NextStage(int job);
  void StartStage(int job, const Stage& stage, int copy);
  void Spawn(int job, int shape, int copy);
  void ProcEnded(int proc);
  void Advanced(int job, int copy);
  void EndJob(int job);
  void ReturnToken(int build);
  void FinishBuild(int build);
  void Arm(int proc);
  double Leave(int proc);  // off the cores: gives the bytes it had
  void KernelKills();
  void Advance(double dt);

  EngineConfig config_;
  Scheduler& scheduler_;
  std::vector<Build> builds_;
  std::vector<Job> jobs_;
  std::vector<Proc> procs_;
  std::priority_queue<Knotted> knots_;
  std::priority_queue<Timer> timers_;
  uint64_t timer_order_ = 0;
  double now_ = 0;
  double service_ = 0;
  double used_ = 0;   // bytes of all tool processes
  double slope_ = 0;  // bytes a second of service, of all running
  double load_bytes_ = 0;
  double load_cores_ = 0;
  int running_ = 0;
  int finished_ = 0;
  double ran_at_ = 0;  // when a process ran last, or a build was yet to start
  RunResult result_;
  Rng race_;
};

}  // namespace headroom::sim

#endif  // HEADROOM_SERVER_SIM_ENGINE_H_
