// Free space on the file systems of lanes' temporary files (TMPDIR of the lane's root process, else
// /tmp), for the policy's second budget.
//
// Only what can't block is looked at: a folder is never walked into. The file system is found in
// mountinfo by the text of the path alone (a link inside of it is not followed), must be of a kind
// that is local to this machine, and in the daemon's own mount namespace, so that no user can put a
// FUSE mount in the way; statfs(2) is then asked of the mount point. Where that can't be told, the
// lane has no such budget.
//
// Threading: one thread.
#ifndef HEADROOM_SERVER_DAEMON_TEMP_SPACE_H_
#define HEADROOM_SERVER_DAEMON_TEMP_SPACE_H_

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "server/policy/event.h"
#include "server/sys/mountinfo.h"
#include "server/sys/roots.h"

namespace headroom::daemon {

// The mount point of the local file system that `path` lies on by its text. nullopt: not local, or
// not an absolute path. Pure.
std::optional<std::string> LocalMountOf(const std::string& path,
                                        const std::vector<sys::Mount>& mounts);

class TempSpace {
 public:
  explicit TempSpace(const sys::Roots& roots) : roots_(roots) {}

  // `pid`: the lane's root process; 0: there is none, and no budget.
  void Hold(policy::LaneId lane, pid_t pid);
  void Drop(policy::LaneId lane) { mounts_.erase(lane); }
  std::vector<policy::TempSample> Read() const;

 private:
  sys::Roots roots_;
  std::map<policy::LaneId, std::string> mounts_;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_TEMP_SPACE_H_
