// Memory limits that builds live in: the host, and each cgroup above a lane's processes that has a
// limit. Tells the policy of them (DomainSeen, DomainGone) and reads them.
//
// A cgroup without a limit is no domain, but is looked at again, as a limit may be set later. A
// cgroup is known by its folder's inode: one that is removed and made again is a new domain.
//
// Threading: one thread. Errors: what can't be read is left out and named in notes().
#ifndef HEADROOM_SERVER_DAEMON_DOMAINS_H_
#define HEADROOM_SERVER_DAEMON_DOMAINS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/policy/event.h"
#include "server/policy/types.h"
#include "server/sys/cgroup.h"
#include "server/sys/meminfo.h"
#include "server/sys/mountinfo.h"
#include "server/sys/roots.h"

namespace headroom::daemon {

// How much of ZFS's cache is counted as available. It is given back only as fast as ZFS likes
// (pytorch/pytorch#124018: "not shrinking fast enough" under four compilers), so never more than a
// slice is counted; as it shrinks, the kernel's own figure grows and the next slice moves up.
int64_t ArcCredit(int64_t reclaimable_bytes, int64_t total_bytes);

class Domains {
 public:
  using Emit = std::function<void(policy::Event)>;

  static absl::StatusOr<Domains> Open(const sys::Roots& roots);
  Domains(Domains&&) = default;

  // Emits the host's DomainSeen; `emit` is used from then on.
  void Start(Emit emit);

  policy::DomainId host() const { return kHost; }

  // Makes domains of all limits above `pid`, held for `lane` until Drop(lane), besides what was
  // held before. Returns the innermost; the host where there is none or `pid` is gone.
  policy::DomainId Hold(policy::LaneId lane, pid_t pid);
  void Drop(policy::LaneId lane);
  // The same where the cgroup is held already, which is nearly always so: one small file is read.
  policy::DomainId HoldAgain(policy::LaneId lane, pid_t pid);
  // The innermost known domain of `pid`; makes none.
  policy::DomainId Lookup(pid_t pid) const;
  // Of several domains the one with the least left, as last read.
  policy::DomainId Tightest(const std::vector<policy::DomainId>& domains) const;

  // Everything, limits that changed and cgroups that are gone included. Emits those.
  std::vector<policy::DomainSample> ReadAll();
  // What is left alone; kill counters and pressure as last read by ReadAll.
  std::vector<policy::DomainSample> ReadFast();
  // The same but cheaper: file pages and limits of cgroups as last read, where none can have been
  // reclaimed.
  std::vector<policy::DomainSample> Glance();

  // The kernel's OOM kills in this domain and what is held below it, read now. (v1 counts a kill in
  // the victim's own cgroup, whichever limit it was for; v2 in all above it, too.)
  std::optional<uint64_t> OomKills(policy::DomainId domain);

  struct HostExtras {
    int64_t shmem_bytes = 0;
    int64_t arc_credit_bytes = 0;
  };
  HostExtras host_extras() const { return extras_; }
  // Probes that are missing, and what stands in for them.
  std::vector<std::string> notes() const;

 private:
  static constexpr policy::DomainId kHost{1};

  struct Node {
    sys::MemoryCgroup cgroup;
    std::optional<sys::FileId> parent;
    policy::DomainId id = policy::DomainId::kNone;  // kNone: no limit at present
    policy::DomainSeen told;                        // what the policy knows
    policy::DomainSample last;
    sys::CgroupMemory read;                 // what that is from
    std::optional<uint64_t> own_oom_kills;  // as its own counter said last
    // Its own and, on v1, those of cgroups below it since they are known; never less than before.
    uint64_t oom_kills = 0;
    bool kills_group = false;  // memory.oom.group
    std::map<policy::LaneId, int> holders;
  };

  explicit Domains(const sys::Roots& roots, sys::MemInfoReader meminfo)
      : roots_(roots), meminfo_(std::move(meminfo)) {}

  std::optional<sys::CgroupLocation> Locate(pid_t pid) const;
  void RefreshMounts();
  policy::DomainId NearestFrom(std::optional<sys::FileId> at) const;
  void Tell(Node& node, const sys::CgroupMemory& reading);
  void Forget(std::map<sys::FileId, Node>::iterator node);
  void CountOomKills(Node& node, const sys::CgroupMemory& reading);
  // Whether an OOM kill at this limit may end a whole group: memory.oom.group counts at the limit's
  // own cgroup and at all between it and the victim (mem_cgroup_get_oom_group in mm/memcontrol.c).
  bool KillsGroup(const Node& node) const;
  void ReadHost(bool all, policy::DomainSample* sample);

  sys::Roots roots_;
  sys::MemInfoReader meminfo_;
  std::vector<sys::Mount> mounts_;
  Emit emit_;
  std::map<sys::FileId, Node> nodes_;
  std::map<std::string, sys::FileId> leaf_of_path_;  // of held cgroups, by path
  uint32_t next_id_ = 2;
  policy::DomainSample host_last_;
  policy::DomainSeen host_told_;
  HostExtras extras_;
  bool has_psi_ = true;
  bool has_oom_counter_ = true;
  bool available_is_estimate_ = false;
  int reads_ = 0;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_DOMAINS_H_
