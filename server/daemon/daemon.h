// The daemon: puts the parts together. Lanes come and go by the control socket and by what the
// observer sees; the core's actions are carried out here; nothing is decided here.
//
// Threading: one thread runs the io_context. Others belong to the token collector and to the reader
// of build files.
#ifndef HEADROOM_SERVER_DAEMON_DAEMON_H_
#define HEADROOM_SERVER_DAEMON_DAEMON_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/daemon/accounting.h"
#include "server/daemon/config.h"
#include "server/daemon/control_server.h"
#include "server/daemon/core.h"
#include "server/daemon/gate_server.h"
#include "server/daemon/history_writer.h"
#include "server/daemon/lanes.h"
#include "server/daemon/lens.h"
#include "server/daemon/notify.h"
#include "server/daemon/observer.h"
#include "server/daemon/thawer.h"
#include "server/sys/lock_file.h"
#include "server/sys/proc_connector.h"
#include "server/sys/token_collector.h"
#include "server/trace/recorder.h"
#include "server/trace/storage.h"

namespace headroom::daemon {

struct DaemonOptions {
  std::string runtime_dir;
  std::string trace_dir;
  std::string history_path;  // empty: none
  std::string config_path;
  bool without_prediction = false;  // a test's: tokens for all cores, whatever memory is left
  // Tests': the build is acted out by stand-ins so many times smaller (lens.h; 1: it is not), on a
  // machine of so many cores (0: as many as there are).
  int memory_scale = 1;
  int cores = 0;
  bool private_daemon = false;  // started by `headroom run`: ends with its last lane
  Config config;
  sys::Roots roots;
};

class Daemon : public ControlHandler, private Interpreter, private ObserverHost, private GateHost {
 public:
  // Takes the runtime folder's lock. AlreadyExists: another daemon has it, named with its pid.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(boost::asio::io_context& io,
                                                       DaemonOptions options);
  ~Daemon() override;

  // Returns when the daemon has ended in order: all thawed, fifos left with their tokens.
  void Run();

  // ControlHandler.
  absl::StatusOr<v1::Status> OnStatus(const Peer& peer) override;
  absl::StatusOr<v1::Explanation> OnExplain(const Peer& peer,
                                            const v1::ExplainRequest& request) override;
  absl::StatusOr<v1::Attached> OnAttach(const Peer& peer,
                                        const v1::AttachRequest& request) override;
  absl::StatusOr<v1::LaneSummary> OnDetach(const Peer& peer,
                                           const v1::DetachRequest& request) override;
  absl::StatusOr<v1::Environment> OnEnv(const Peer& peer) override;
  absl::Status OnReload(const Peer& peer) override;
  absl::Status OnSet(const Peer& peer, const v1::SetRequest& request) override;
  absl::StatusOr<std::vector<std::string>> OnTrace(const Peer& peer) override;
  void OnDropped(const Peer& peer) override;

 private:
  absl::StatusOr<sys::ProcessId> Identify(pid_t pid) const;
  struct Lane {
    Lane(policy::LaneId lane_id, LaneFolder lane_folder, policy::Time now)
        : id(lane_id), folder(std::move(lane_folder)), account(now) {}

    policy::LaneId id;
    LaneFolder folder;
    policy::ProcId root;
    policy::DomainId domain = policy::DomainId::kNone;
    int cores = 1;
    std::optional<int> jobs;  // --jobs or `set`
    policy::Reserve reserve;
    bool gated = false;
    bool attached = false;  // its `run` holds a connection
    uint64_t connection = 0;
    bool restarted = false;  // an earlier daemon opened it
    LaneAccount account;
    std::optional<policy::ReasonCode> last_reason;
    std::optional<uint64_t> oom_kills_seen;
    int64_t moved = 0;  // tokens put in less those taken out
    // Kills that the counter tells of and a gate's end names come in either order.
    int oom_named = 0;                      // named, and not yet seen in the counter
    std::vector<policy::Time> oom_unnamed;  // seen in the counter, at these moments
    int gone_scans = 0;                     // scans in a row without a process of its build
  };

  // A tool process out of the gate's reach, held and released by signals.
  struct Held {
    policy::GateId gate = policy::GateId::kNone;
    policy::LaneId lane = policy::LaneId::kNone;
    policy::ProcId job;
    std::vector<Awaited> awaited;
    bool running = false;
  };

  Daemon(boost::asio::io_context& io, DaemonOptions options, sys::LockFile lock,
         LaneFolders folders, Domains domains, std::unique_ptr<sys::TokenCollector> collector);

  absl::Status Begin();
  void AdoptLanes();
  void Configure();
  policy::LaneOpened Describe(const Lane& lane) const;
  absl::StatusOr<Lane*> OpenLane(LaneFolder folder, const policy::ProcId& root, bool restarted);
  void UpdateLane(Lane& lane);
  void CloseLane(policy::LaneId id);
  void EndIfDone();
  void WaitForTokens();
  void TakeTokens();
  bool TakeTokens(Lane& lane);
  void WaitForSignals();
  absl::Status Reload();
  void Housekeep();
  void End();
  Lane* Find(policy::LaneId id);
  Lane* FindByConnection(uint64_t connection);
  int JobsOf(const Lane& lane) const;
  Observer::Options ObserverOptions() const;
  void Thaw(const policy::ProcId& proc);
  void NoteFreeze(Lane& lane, const policy::ProcId& frozen);
  bool CountsAllMachine(const Lane& lane) const;
  void LookForOomKills(Lane& lane, bool at_end);
  void AddGateIncident(v1::Incident::Kind kind, const GateServer::Tool& tool, int64_t bytes,
                       bool with_limit);
  std::string TightestName(policy::DomainId domain, int64_t* limit_bytes) const;
  bool TryHold(Lane& lane, const KnownProcess& process, const policy::ProcSeen& seen);
  void LetGo(const policy::ProcId& proc);
  void TendHeld();
  void WatchExecs();
  void WaitForExecs();
  void TakeExecs();

  // Interpreter.
  void Carry(const policy::Action& action) override;
  void Do(const policy::Mint& action);
  void Do(const policy::Collect& action);
  void Do(const policy::Freeze& action);
  void Do(const policy::Thaw& action);
  void Do(const policy::Admit& action);
  void Do(const policy::Evict& action);
  void Do(const policy::Verdict& action);
  void Do(const policy::SetSampling& action);

  // ObserverHost, GateHost.
  void Emit(policy::Event event) override;
  bool NeedsLook(const std::vector<policy::DomainSample>& glance) override;
  policy::Time Now() override;
  bool IsFrozen(const policy::ProcId& proc) override;
  int ReadIdle(policy::LaneId lane) override;
  int64_t Moved(policy::LaneId lane) override;
  int Out(policy::LaneId lane, int idle) override;
  void OnDomain(policy::LaneId lane, policy::DomainId domain) override;
  void OnEnded(const EndedTool& tool) override;
  Claim OnFound(const KnownProcess& process, policy::LaneId lane,
                const policy::ProcSeen& seen) override;
  void OnGatedGone(const EndedTool& tool) override;
  void OnScanned() override;

  // GateHost.
  policy::DomainId DomainOf(policy::LaneId lane, pid_t pid) override;
  Placement PlaceOf(policy::LaneId lane, pid_t pid) override;
  void SampleDomains() override;
  void OnWaits(const policy::ProcId& keeper) override;
  void OnWorker(policy::LaneId lane, const policy::ProcId& worker,
                const policy::ProcId& job) override;
  std::optional<int64_t> OnWorkerGone(const policy::ProcId& worker) override;
  void OnUnsupervised(const policy::ProcId& proc) override;

  boost::asio::io_context& io_;
  DaemonOptions options_;
  sys::LockFile lock_;
  LaneFolders folders_;
  std::unique_ptr<trace::Storage> storage_;
  std::unique_ptr<trace::Recorder> recorder_;
  Core core_;
  HistoryWriter history_;
  Thawer thawer_;
  std::unique_ptr<sys::TokenCollector> collector_;
  boost::asio::posix::stream_descriptor collected_;
  Observer observer_;
  GateServer gate_;
  std::map<policy::ProcId, Held> held_;
  policy::Time told_to_end_at_{};
  std::set<policy::ProcId> out_of_reach_;  // counted; those that live
  std::unique_ptr<sys::ProcConnector> execs_;
  std::unique_ptr<boost::asio::posix::stream_descriptor> execs_descriptor_;
  boost::asio::steady_timer execs_timer_;
  bool execs_tried_ = false;
  policy::Time forsaken_at_{};  // last look at who waits for nobody
  std::unique_ptr<ControlServer> control_;
  Notifier notifier_;
  std::unique_ptr<Watchdog> watchdog_;
  boost::asio::signal_set signals_;
  boost::asio::steady_timer housekeeping_;
  std::map<policy::LaneId, Lane> lanes_;
  uint32_t next_lane_ = 1;
  policy::Time started_{};
  bool without_prediction_ = false;
  std::optional<policy::Bytes> spoiled_peak_;
  policy::Reserve reserve_;   // of the configuration, or `set`
  std::optional<Lens> lens_;  // tests alone
  std::vector<EndedTool> ended_;
  bool had_lane_ = false;
  policy::Time last_lane_closed_{};
  bool ending_ = false;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_DAEMON_H_
