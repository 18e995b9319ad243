// Who of the host's processes belongs to which lane, who takes tokens there, what each client's
// jobs are, and how many tokens they explain. Pure: a snapshot in, an answer out.
//
// A process belongs to a lane by HEADROOM_LANE in its environment, else by its nearest ancestor
// that does (`run` is a child subreaper, so what its build leaves behind stays below it). Only
// processes of the lane's own user are members: with another user's name for a lane nobody can put
// himself, or somebody else, under its daemon's signals. Sharing a cgroup with a build makes no
// member either: in a login session that would be every build of the user. Such a process still
// counts as expected growth of its domain.
//
// A client is who takes tokens: a known one by its name (ninja, make, cargo), and a process that
// has the fifo open and children in the lane, but no known client below it (a wrapper that only
// passes descriptors on isn't one, nor is a sleeper that inherited them, K16). A job is a client's
// child with all below it, as far as no further client is below; that one's children then are jobs,
// and it uses its parent's token as its implicit slot.
#ifndef HEADROOM_SERVER_DAEMON_TREE_H_
#define HEADROOM_SERVER_DAEMON_TREE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/policy/tool.h"
#include "server/policy/types.h"

namespace headroom::daemon {

// One process of the host, as far as it is known.
struct TreeProcess {
  policy::ProcId id;
  int32_t ppid = 0;
  uint32_t uid = 0;
  bool dead = false;  // ended, its parent has not waited for it: it still holds its token
  int threads = 1;
  policy::LaneId env_lane = policy::LaneId::kNone;  // by HEADROOM_LANE
  policy::Role role = policy::Role::kOther;
  std::string name;           // canonical: "ninja", "cicc", ...
  bool opener = false;        // seen with the lane's fifo open
  bool is_shell = false;      // sh, bash, ...: passes tokens on and takes none
  bool takes_tokens = false;  // says so itself: nvcc --jobserver
};

struct TreeRoot {
  policy::LaneId lane = policy::LaneId::kNone;
  uint32_t uid = 0;
  policy::ProcId root;  // `headroom run`; unset for a shared lane. Itself no member.
};

struct TreeJob {
  policy::ProcId job;
  policy::ProcId client;
  friend bool operator==(const TreeJob&, const TreeJob&) = default;
};

struct TreeLane {
  std::vector<policy::ProcId> members;  // by pid
  std::vector<policy::ProcId> clients;  // top-level ones: each has an implicit slot of its own
  std::vector<policy::ProcId> nested;   // clients below clients
  std::vector<TreeJob> jobs;            // that run; a dead one is none
  int explained = 0;                    // tokens that the clients' children account for
};

struct TreeView {
  std::map<policy::LaneId, TreeLane> lanes;  // every lane of `roots`
  // Of each process, by its index in the input: its lane, and the index of the job it is in or is,
  // -1 for none.
  std::vector<policy::LaneId> lane_of;
  std::vector<int32_t> job_of;
};

// `processes`: sorted by pid, each pid once. The same input gives the same answer.
TreeView DeriveTree(const std::vector<TreeProcess>& processes, const std::vector<TreeRoot>& roots);

// Tools that spend a token on each further thread.
bool UsesTokensForThreads(std::string_view name);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_TREE_H_
