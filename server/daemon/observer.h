// Looks at the machine and tells the policy: processes, jobs, memory, tokens; as often as it
// matters and no more often.
//
//   fast  (10 to 250 ms, as the policy's SetSampling says)  what is left in the lanes' domains, and
//         the memory of tool processes that grow, by one pread each on files kept open; idle tokens
//   glance  (more often, where the policy wants it)  what is left in the domains alone; where much
//         of it is gone, a fast look at once
//   scan  (5 times the fast period, 50 to 250 ms; up to 500 ms where no process of a lane has come
//         or gone for a while)  processes that came and went, jobs, what clients' children explain;
//         next to nothing where none came or went
//   slow  (1 s)                                            everything else: limits, kill counters,
//         pressure, processes that don't grow
//   idle  (5 s)  where no lane has a client or a tool process. A client that opens a lane's fifo
//         (inotify) or asks over a socket ends that at once.
//
// A client's end is noticed at once, through its pidfd.
//
// Threading: one thread, the io_context's, but for build files, which a thread of their own reads.
#ifndef HEADROOM_SERVER_DAEMON_OBSERVER_H_
#define HEADROOM_SERVER_DAEMON_OBSERVER_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/daemon/catalog.h"
#include "server/daemon/domains.h"
#include "server/daemon/gate_server.h"
#include "server/daemon/temp_space.h"
#include "server/daemon/tree.h"
#include "server/policy/event.h"
#include "server/policy/types.h"
#include "server/sys/fifo.h"
#include "server/sys/fifo_watch.h"
#include "server/sys/pidfd.h"
#include "server/sys/roots.h"

namespace headroom::daemon {

// What a lane's build looks like at this moment.
struct LaneFigures {
  int members = 0;  // processes, `run` itself not counted
  int clients = 0;
  int running_jobs = 0;    // not frozen
  int running_tools = 0;   // not frozen
  int64_t anon_bytes = 0;  // of its tool processes
};

// A tool process that has ended, for who wants to know what the kernel killed.
struct EndedTool {
  policy::ProcId proc;
  policy::LaneId lane = policy::LaneId::kNone;
  std::string tool;
  std::string source;
  int64_t anon_bytes = 0;  // as last seen
  policy::Time at{};
};

class ObserverHost {
 public:
  virtual ~ObserverHost() = default;
  virtual void Emit(policy::Event event) = 0;
  // Whether what the domains have left now is reason enough to look at all.
  virtual bool NeedsLook(const std::vector<policy::DomainSample>& glance) = 0;
  virtual policy::Time Now() = 0;
  virtual bool IsFrozen(const policy::ProcId& proc) = 0;
  // What lies in the lane's fifo now, with all that was moved up to now in the books.
  virtual int ReadIdle(policy::LaneId lane) = 0;
  // Tokens that the daemon has put in, less those it took out, since the lane was opened.
  virtual int64_t Moved(policy::LaneId lane) = 0;
  // Tokens held by clients, as the policy's ledger has it but with this many in the fifo.
  virtual int Out(policy::LaneId lane, int idle) = 0;
  // The lane's clients live in another domain than before.
  virtual void OnDomain(policy::LaneId lane, policy::DomainId domain) = 0;
  virtual void OnEnded(const EndedTool& tool) = 0;
  // Whether the policy is to be told of this tool process, which it doesn't know yet.
  enum class Claim : uint8_t {
    kTell,   // as any other
    kLater,  // it may be on its way to the gate
    kTaken,  // the gate tells of it
  };
  virtual Claim OnFound(const KnownProcess& process, policy::LaneId lane,
                        const policy::ProcSeen& seen) = 0;
  // A process that the gate speaks for is not there any more.
  virtual void OnGatedGone(const EndedTool& tool) = 0;
  // After every scan.
  virtual void OnScanned() = 0;
};

class Observer {
 public:
  struct Options {
    std::chrono::milliseconds fast_min{10};
    std::chrono::milliseconds fast_max{250};
    std::chrono::milliseconds slow{1000};
    std::vector<std::string> extra_tools;
    // The kernel's counters lag by some 100 KiB a CPU: less than this is no growth.
    int64_t growth_bytes = int64_t{1} << 20;
  };
  struct Lane {
    policy::LaneId id = policy::LaneId::kNone;
    policy::LaneKind kind = policy::LaneKind::kOwn;
    uint32_t uid = 0;
    std::string dir;
    const sys::Fifo* fifo = nullptr;  // outlives the lane here
    policy::ProcId root;
  };

  Observer(boost::asio::io_context& io, ObserverHost& host, const sys::Roots& roots,
           Domains domains, Options options);
  ~Observer();

  // Tells of the host's domain and finds the processes that there are, before the first lane is
  // added: for Lives and IsOpen.
  void Survey(std::set<uint32_t> uids);
  void Start();
  void Stop();
  void SetOptions(Options options);
  // What the policy wants of the fast tier; 0: nothing in particular, and of glances; 0: none.
  void SetFast(policy::Duration period, policy::Duration glance);

  void AddLane(Lane lane);
  void RemoveLane(policy::LaneId lane);
  void SetRoot(policy::LaneId lane, const policy::ProcId& root);
  // The domain of `pid` for a lane that is about to be opened; the policy has it with what is left
  // in it when this returns, as the lane's first tokens are decided on at once.
  policy::DomainId Hold(policy::LaneId lane, pid_t pid);

  // Looks as soon as the present handler is through: something has happened.
  void LookSoon();
  // Looks now.
  void Look();
  // The same with all that is due once a second.
  void LookAtAll();

  LaneFigures figures(policy::LaneId lane) const;
  // Of a tool process that is a lane's member: whether a signal may be sent to it for this lane.
  bool MayTouch(policy::LaneId lane, const policy::ProcId& proc) const;
  // Whether any process has this folder as its lane, or is `root`.
  bool Lives(const std::string& dir, const policy::ProcId& root);
  // Whether somebody besides the daemon has the fifo open.
  bool IsOpen(const sys::Fifo& fifo, uint32_t uid) const;
  // Where a process stands, read now.
  Placement PlaceOf(policy::LaneId lane, pid_t pid) const;
  policy::DomainId DomainOf(policy::LaneId lane, pid_t pid) {
    return domains_.HoldAgain(lane, pid);
  }
  // All that domains have at this moment, kill counters included.
  policy::Sample SampleDomains();
  // A process of the gate that runs: looked at from now on, its end told by OnGatedGone alone.
  // False: it is gone.
  bool Follow(const policy::ProcId& proc, const policy::ProcId& job);
  // The gate doesn't speak for it any more. Its resident files, as last seen.
  std::optional<int64_t> Unfollow(const policy::ProcId& proc);
  // It waits at the gate: what a scan told of it before is void.
  void Retract(const policy::ProcId& proc);

  const Domains& domains() const { return domains_; }
  bool idle() const { return idle_; }
  const Catalog& catalog() const { return catalog_; }

 private:
  struct LaneEntry {
    Lane lane;
    TreeLane tree;
    LaneFigures figures;
    std::vector<policy::ProcId> domain_of;  // whose domain it is
    policy::DomainId domain = policy::DomainId::kNone;
    policy::Time domain_at{};
    int idle = 0;               // as read when the scan began, and
    int64_t moved = 0;          // what had been moved by then
    policy::Time openers_at{};  // the last look at who has the fifo open
    std::optional<bool> opened;
    std::map<policy::ProcId, std::vector<policy::LaneHint::Edges>> hints;  // by live client
    std::unique_ptr<sys::FifoWatch> watch;
    std::unique_ptr<boost::asio::posix::stream_descriptor> watch_descriptor;
  };
  struct ToldJob {
    policy::LaneId lane = policy::LaneId::kNone;
    std::string driver;
    std::string source;
    int fan_out = 1;
  };
  struct ToldTool {
    policy::ProcId job;               // unset: none
    KnownProcess* process = nullptr;  // in the catalog, as long as it is here
  };
  struct Watched {
    sys::PidFd pidfd;
    std::unique_ptr<boost::asio::posix::stream_descriptor> descriptor;
  };

  void Arm();
  void OnTimer();
  void Fast(policy::Time now);
  void Glance(policy::Time now);
  void Scan(policy::Time now);
  void Derive();
  // Whether it has changed what the lanes look like.
  bool FindTokenTakers(policy::Time now);
  int IdleOf(const LaneEntry& entry) const;
  void TellGone(const std::vector<KnownProcess>& gone, policy::Time now);
  void TellJobs();
  void TellProcs(policy::Time now);
  void FollowDomains(policy::Time now);
  void FollowClients();
  void ReadHints(LaneEntry& entry, const KnownProcess& client);
  void Begin(KnownProcess& process, sys::AnonReader reader, const policy::ProcId& job,
             policy::Time now);
  // False: it has ended.
  bool SampleProcess(KnownProcess& process, policy::Time now,
                     std::vector<policy::ProcSample>* samples);
  void Count();
  void SetIdle(bool idle);
  std::vector<pid_t> Openers(const sys::Fifo& fifo, uint32_t uid) const;
  std::string Relative(const std::string& source, const std::string& cwd) const;
  policy::Duration StillPeriod() const;
  std::chrono::nanoseconds FastPeriod() const;
  std::chrono::nanoseconds ScanPeriod() const;

  boost::asio::io_context& io_;
  ObserverHost& host_;
  sys::Roots roots_;
  Domains domains_;
  TempSpace temp_space_;
  Options options_;
  Catalog catalog_;
  boost::asio::steady_timer timer_;
  boost::asio::thread_pool readers_{1};
  std::map<policy::LaneId, LaneEntry> lanes_;
  // Something besides the catalog has changed since the lanes were looked at, or somebody has to be
  // asked about again.
  bool stale_ = true;
  TreeView view_;
  std::vector<policy::ProcId> view_ids_;  // by the indices of view_
  std::set<policy::ProcId> members_;      // of all lanes
  std::map<policy::ProcId, ToldJob> told_jobs_;
  std::map<policy::ProcId, ToldTool> tools_;  // that the policy knows of
  std::set<pid_t> roots_of_lanes_;
  std::map<policy::ProcId, Watched> clients_;
  std::set<policy::ProcId> hinted_;
  policy::Duration fast_{0};
  policy::Duration glance_{0};
  policy::Time glance_due_{}, fast_due_{}, scan_due_{}, slow_due_{};
  policy::Time changed_at_{};  // the last scan that found anything new
  bool running_ = false;
  bool idle_ = false;
  bool look_posted_ = false;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_OBSERVER_H_
