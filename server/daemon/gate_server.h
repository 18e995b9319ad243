// The daemon's end of the gate: one SOCK_SEQPACKET listener in each lane's folder, one connection
// for each gated tool process. Turns what keepers say (proto/headroom/v1/gate_wire.h) into the
// policy's events, and its actions into messages. Decides nothing.
//
// Who is at the other end is what the kernel says (SO_PEERCRED, and the start time read then); a
// worker's pid counts only where /proc shows the keeper as its parent. A peer that breaks the rules
// ends its own connection and nothing else:
//
//   another size, type or order of messages      closed
//   another version                              Refuse, closed
//   another user than the lane's                 Pass, closed: nobody's to evict
//   a pid namespace that can't be seen from here  Refuse: the fall-back's rule
//   silence before the first message, after Admit, or after an end that asks again   closed
//   messages not read, so that ours don't fit    closed
//   no descriptors left                          Refuse kBusy
//
// Threading: one thread, the io_context's. Errors: Status from Listen with the path and the remedy.
#ifndef HEADROOM_SERVER_DAEMON_GATE_SERVER_H_
#define HEADROOM_SERVER_DAEMON_GATE_SERVER_H_

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/headroom/v1/gate_wire.h"
#include "server/policy/action.h"
#include "server/policy/event.h"
#include "server/policy/types.h"
#include "server/sys/file.h"
#include "server/sys/roots.h"

namespace headroom::daemon {

// A build tool or a driver above a process, which waits for what it runs, and its child on the way
// down to that process (or that process itself).
struct Awaited {
  policy::ProcId by;
  policy::ProcId child;
};

// Where a process stands among others.
struct Placement {
  std::vector<pid_t> ancestors;  // its parent first
  std::vector<Awaited> awaited;  // likewise
  policy::ProcId job;            // unset: below no client that is known yet
  std::string build_dir;         // of that client, else of the lane; may be empty
};

class GateHost {
 public:
  virtual ~GateHost() = default;
  virtual void Emit(policy::Event event) = 0;
  virtual policy::Time Now() = 0;
  virtual policy::DomainId DomainOf(policy::LaneId lane, pid_t pid) = 0;
  virtual Placement PlaceOf(policy::LaneId lane, pid_t pid) = 0;
  // Kill counters are read and told to the policy before this returns.
  virtual void SampleDomains() = 0;
  // This process waits at the gate: it takes no memory.
  virtual void OnWaits(const policy::ProcId& keeper) = 0;
  // This process is a worker: to be looked at often. Its end is told by the keeper.
  virtual void OnWorker(policy::LaneId lane, const policy::ProcId& worker,
                        const policy::ProcId& job) = 0;
  // It is gone, or nobody answers for it any more. Returns how much of its resident memory was
  // files, as last seen.
  virtual std::optional<int64_t> OnWorkerGone(const policy::ProcId& worker) = 0;
  // The keeper could not fork: the process runs on by itself.
  virtual void OnUnsupervised(const policy::ProcId& proc) = 0;
};

class GateServer {
 public:
  // What is known of a gated process, for incidents and messages.
  struct Tool {
    policy::LaneId lane = policy::LaneId::kNone;
    policy::DomainId domain = policy::DomainId::kNone;
    std::string tool;
    std::string source;
    policy::ProcId worker;
  };

  GateServer(boost::asio::io_context& io, GateHost& host, const sys::Roots& roots);
  ~GateServer();

  // Listens in `dir`, the lane's folder, for `uid`. A socket of an earlier daemon is replaced.
  absl::Status Listen(policy::LaneId lane, const std::string& dir, uid_t uid);
  // Closes the listener and all connections of the lane. Feeds nothing: the lane is gone.
  void CloseLane(policy::LaneId lane);
  void Stop();

  // Actions. False: there is no such gate here.
  bool Admit(const policy::Admit& action);
  bool Evict(const policy::Evict& action);
  // `line`: printed by the keeper where the end is passed on.
  bool Verdict(const policy::Verdict& action, bool oom, const std::string& line);
  bool Freeze(const policy::ProcId& worker);
  bool Thaw(const policy::ProcId& worker);

  // For gates that are held without a connection.
  policy::GateId NextId() { return policy::GateId{next_id_++}; }

  std::optional<Tool> Find(policy::GateId gate) const;
  bool IsFrozen(const policy::ProcId& worker) const;
  // Waits here, or keeps a worker.
  bool IsKeeper(const policy::ProcId& proc) const { return keepers_.contains(proc); }
  bool IsWorker(const policy::ProcId& proc) const { return workers_.contains(proc); }

  // The nearest gate above: its worker, or a worker of its keeper, is one of `ancestors`.
  policy::GateId GateAbove(const std::vector<pid_t>& ancestors) const;

  // Ends what has been silent for too long. To be called each second or so.
  void Tend();
  // Ends forsaken waiters (see below): what they would do is for nobody, and may spoil the next
  // build's outputs. SIGTERM, at the next call SIGKILL. To be called twice a second or so.
  void EndForsaken();

  // Connections of one lane. Above it: Refuse.
  static constexpr size_t kMostConnections = 16384;

 private:
  enum class Phase : uint8_t {
    kNew,      // nothing said yet
    kWaiting,  // Request
    kAdmitted,
    kRunning,
    kVerdict,  // Ended, waits for what to do
    kAgain,    // Ended, will ask again
    kOver,     // Ended for good: the keeper closes
  };
  struct Listener {
    policy::LaneId lane = policy::LaneId::kNone;
    uid_t uid = 0;
    std::string path;
    boost::asio::posix::stream_descriptor socket;
    size_t connections = 0;
  };
  struct Connection {
    policy::GateId id = policy::GateId::kNone;
    policy::LaneId lane = policy::LaneId::kNone;
    boost::asio::posix::stream_descriptor socket;
    policy::ProcId keeper;
    Phase phase = Phase::kNew;
    policy::Time since{};  // of the phase
    uint32_t attempt = 1;
    policy::DomainId domain = policy::DomainId::kNone;
    policy::ProcId job{};
    std::vector<pid_t> ancestors{};
    std::vector<Awaited> awaited{};
    policy::GateRequest asked{};  // as told to the policy, while it waits
    bool told_to_end = false;
    policy::ToolInfo info{};
    policy::ProcId worker{};
    bool frozen = false;
    int64_t exe_bytes = 0;
  };

  void WaitForPeers(policy::LaneId lane);
  void Accept(Listener& listener);
  void Wait(Connection& connection);
  void Read(policy::GateId id);
  // False: the connection is to be closed.
  bool Handle(Connection& connection, const void* data, size_t size);
  bool OnRequest(Connection& connection, const gate::Request& request, bool again_running);
  bool OnStarted(Connection& connection, const gate::Started& started);
  bool OnEnded(Connection& connection, const gate::Ended& ended);
  policy::ToolInfo Describe(const gate::Request& request, const std::string& build_dir) const;
  policy::ProcId CheckWorker(const Connection& connection, int32_t pid, uint64_t start) const;
  // A worker has become known: who waits below it, and asked before, does so from now on.
  void PlaceBelow(const Connection& above);
  void SetWorker(Connection& connection, const policy::ProcId& worker);
  std::optional<int64_t> DropWorker(Connection& connection);
  void Enter(Connection& connection, Phase phase);
  template <typename Message>
  bool Send(Connection& connection, Message message, gate::MessageType type);
  static void Refuse(int socket, gate::RefuseReason reason, uint32_t attempt);
  void Close(policy::GateId id);

  boost::asio::io_context& io_;
  GateHost& host_;
  sys::Roots roots_;
  std::map<policy::LaneId, std::unique_ptr<Listener>> listeners_;
  std::map<policy::GateId, std::unique_ptr<Connection>> connections_;
  std::map<policy::ProcId, policy::GateId> keepers_;
  std::map<policy::ProcId, policy::GateId> workers_;
  std::map<pid_t, policy::GateId> worker_pids_;
  sys::UniqueFd spare_;  // given up for a moment where there are no more
  boost::asio::steady_timer retry_;
  std::vector<unsigned char> buffer_;
  uint64_t next_id_ = 1;
};

// Whether one that should be waiting has died (kill -9 of ninja, SIGTERM to make and its nvcc) and
// left its child behind. None that ends by itself does so: what a shell put in the background is
// the shell's child, and shells aren't in the list.
bool IsForsaken(const sys::Roots& roots, const std::vector<Awaited>& awaited);

// The one line for a build's output: tool, source, need, limit.
std::string OutOfMemoryLine(const std::string& tool, const std::string& source,
                            const policy::Reason& reason, const std::string& domain);

// Whether a verdict's end was the kernel's OOM killer, by what the policy says.
bool BlamesMemory(const policy::Reason& reason);
int64_t InputOf(const policy::Reason& reason, policy::Input input);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_GATE_SERVER_H_
