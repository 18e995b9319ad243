// The processes of the host as the daemon knows them: found by listing /proc, looked into once,
// kept until they are gone. What a build's processes are costs some 30 us each, once; that a known
// one still lives costs next to nothing.
// Where no process came or went at all, which one read tells, it isn't even listed.
//
// Why listing and not the kernel's process events: those cost 5 % of a core at 3,000 spawns/s,
// however little there is to decide; a listing costs 1 us a process and is due only as often as the
// memory that is left demands (the caller's choice). Short-lived processes between two listings are
// never seen, nor do they matter.
//
// Threading: one thread. Errors: none; what can't be read is not known.
#ifndef HEADROOM_SERVER_DAEMON_CATALOG_H_
#define HEADROOM_SERVER_DAEMON_CATALOG_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/daemon/command_line.h"
#include "server/daemon/tree.h"
#include "server/policy/event.h"
#include "server/policy/types.h"
#include "server/sys/anon_reader.h"
#include "server/sys/process_table.h"
#include "server/sys/roots.h"

namespace headroom::daemon {

struct KnownProcess {
  policy::ProcId id;
  int32_t ppid = 0;
  uint32_t uid = 0;
  std::string comm;
  bool dead = false;
  int threads = 1;
  bool takes_tokens = false;
  bool opener = false;
  policy::Time first_seen{};
  policy::Time looked_at{};   // its stat
  policy::Time openers_at{};  // whether it has a lane's fifo open
  policy::Time changed_at{};  // started, or became another program
  bool environ_read = false;
  std::string lane_dir;  // HEADROOM_LANE
  Recognised what;
  std::vector<std::string> argv;  // of clients and tools alone
  std::string cwd;                // of clients alone

  // Tool processes.
  bool told = false;     // the policy knows of it
  bool gated = false;    // a worker of the gate, or held like one: its end is told by others
  bool counted = false;  // as one out of the gate's reach
  int64_t files = 0;     // resident, not anonymous
  std::optional<sys::AnonReader> reader;
  int64_t anon = 0;
  policy::Duration cpu{0};
  policy::Time cpu_at{};
  policy::Time sampled_at{};
  policy::Time grew_at{};
};

class Catalog {
 public:
  explicit Catalog(const sys::Roots& roots);

  // Program names that count as tools besides the known ones.
  void SetExtraTools(std::vector<std::string> names) { extra_tools_ = std::move(names); }
  // Environments are read for these users' processes only.
  void SetUsers(std::set<uint32_t> uids) {
    if (uids == uids_) return;
    uids_ = std::move(uids);
    users_changed_ = true;
  }

  struct Changes {
    // Those that have ended (or became another under the same pid).
    std::vector<KnownProcess> gone;
    // Whether anything is another than after the last Refresh that a lane or the policy may have to
    // do with: a tool process, a process of a lane, a child of one. All else comes and goes
    // unheard.
    bool any = false;
  };
  // Lists /proc, unless nothing can have come or gone. New processes are looked into; young ones,
  // members of lanes and others are looked at again as they are due. `roots`: pids whose children
  // are members.
  Changes Refresh(policy::Time now, const std::set<policy::ProcId>& members,
                  const std::set<pid_t>& roots = {});

  // By pid.
  std::map<pid_t, KnownProcess>& processes() { return processes_; }
  const std::map<pid_t, KnownProcess>& processes() const { return processes_; }
  KnownProcess* Find(const policy::ProcId& id);
  // The same for one that no listing has shown yet. nullptr: gone, or another by now.
  KnownProcess* Learn(const policy::ProcId& id, policy::Time now);

  // It seems to have ended, or may soon be another: the next Refresh looks at it.
  void LookSoon(pid_t pid);

  // For DeriveTree; `lane_of_dir` knows the lanes by their folder.
  std::vector<TreeProcess> ForTree(const std::map<std::string, policy::LaneId>& lane_of_dir) const;

 private:
  // When a known process is to be looked at again. Apart from what is known of it: a walk over all
  // must not touch them all.
  struct Due {
    pid_t pid = 0;
    policy::Time at{};
  };

  // What is remembered of a process that was just seen for the first time.
  KnownProcess Meet(pid_t pid, sys::ProcessInfo info, policy::Time now);
  // Whether it is another than before in anything that matters.
  bool LookAgain(KnownProcess& process, sys::ProcessInfo info, policy::Time now);
  void LookInto(KnownProcess& process);
  void ReadEnviron(KnownProcess& process);

  sys::Roots roots_;
  sys::ProcessLister lister_;
  policy::Time listed_at_{};
  std::vector<pid_t> pids_;  // as last listed
  std::vector<Due> due_;     // one for each of processes_, by pid
  bool users_changed_ = false;
  std::vector<std::string> extra_tools_;
  std::set<uint32_t> uids_;
  std::map<pid_t, KnownProcess> processes_;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_CATALOG_H_
