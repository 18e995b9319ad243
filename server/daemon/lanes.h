// Lane folders on disk: fifo, the `minted` count, what `run` attached with; made, found again after
// a restart, removed when their build is gone.
//
//   <runtime>/<uid>/shared/           of all builds of one user that exported MAKEFLAGS; never
//   removed <runtime>/<uid>/run-<pid>-<n>/    of one `headroom run`
//     fifo      0600, the lane's user; never unlinked while the lane may be used: a client that
//               misses it runs unthrottled
//     minted    8 bytes, little-endian: tokens that exist, as the policy's ledger has it. Written
//               after every change; a crash between a write to the fifo and one here leaves it off
//               by that step, which the policy finds as a leak or a surplus
//     attach    the AttachRequest (own lanes): what a restarted daemon must know
//     slots/    of the lane's user: lock files of gated tools that have lost their daemon
//     gate.sock the gate's listener, see gate_server
//
// A system daemon (root) keeps the folders root's own, readable by all: so no user can put a
// symlink or another file into root's way, nor unlink the fifo under his own build.
//
// Threading: one thread. Errors: Status with the path, the value and the remedy.
#ifndef HEADROOM_SERVER_DAEMON_LANES_H_
#define HEADROOM_SERVER_DAEMON_LANES_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "headroom/v1/control.pb.h"
#include "server/policy/event.h"
#include "server/policy/types.h"
#include "server/sys/fifo.h"
#include "server/sys/file.h"

namespace headroom::daemon {

// One lane's folder, open.
class LaneFolder {
 public:
  LaneFolder(LaneFolder&&) = default;
  LaneFolder& operator=(LaneFolder&&) = default;

  uid_t uid() const { return uid_; }
  policy::LaneKind kind() const { return kind_; }
  const std::string& name() const { return name_; }  // "shared" or "run-<pid>-<n>"
  const std::string& dir() const { return dir_; }    // absolute
  const sys::Fifo& fifo() const { return fifo_; }
  // What the lane was attached with; unset for a shared one.
  const std::optional<v1::AttachRequest>& attach() const { return attach_; }

  // The `minted` file. A text that isn't 8 bytes reads as what lies in the fifo.
  int ReadMinted() const;
  absl::Status WriteMinted(int count);
  // Replaces `attach`.
  absl::Status WriteAttach(const v1::AttachRequest& request);

 private:
  friend class LaneFolders;
  LaneFolder(uid_t uid, policy::LaneKind kind, std::string name, std::string dir,
             sys::UniqueFd folder, sys::Fifo fifo)
      : uid_(uid),
        kind_(kind),
        name_(std::move(name)),
        dir_(std::move(dir)),
        folder_(std::move(folder)),
        fifo_(std::move(fifo)) {}

  uid_t uid_ = 0;
  policy::LaneKind kind_ = policy::LaneKind::kOwn;
  std::string name_, dir_;
  sys::UniqueFd folder_;
  sys::Fifo fifo_;
  sys::UniqueFd minted_;
  std::optional<v1::AttachRequest> attach_;
};

class LaneFolders {
 public:
  // `runtime_dir` exists and is ours (EnsureFolder).
  static absl::StatusOr<LaneFolders> Open(const std::string& runtime_dir);

  absl::StatusOr<LaneFolder> OpenShared(uid_t uid);
  // A new one for `run` with process id `pid`.
  absl::StatusOr<LaneFolder> CreateOwn(uid_t uid, pid_t pid, const v1::AttachRequest& request);
  // All that an earlier daemon left. A folder that can't be used (no fifo, another's) is skipped,
  // and named in `problems`.
  std::vector<LaneFolder> FindLeft(std::vector<std::string>* problems);
  // The folder and what it holds. Only for own lanes whose processes are gone.
  absl::Status Remove(const LaneFolder& lane);

  const std::string& runtime_dir() const { return runtime_dir_; }

 private:
  LaneFolders(std::string runtime_dir, sys::UniqueFd folder)
      : runtime_dir_(std::move(runtime_dir)), folder_(std::move(folder)) {}

  absl::StatusOr<sys::UniqueFd> UserFolder(uid_t uid);
  absl::StatusOr<LaneFolder> OpenLane(uid_t uid, const std::string& name, bool create);

  std::string runtime_dir_;
  sys::UniqueFd folder_;
};

// "run-<pid>-<n>" → kOwn, "shared" → kShared, all else is no lane.
std::optional<policy::LaneKind> LaneKindOf(std::string_view name);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_LANES_H_
