// pidfd_open(2): a process held by descriptor, so that a signal can't hit a later one with its pid.
#ifndef HEADROOM_SERVER_SYS_PIDFD_H_
#define HEADROOM_SERVER_SYS_PIDFD_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/sys/file.h"
#include "server/sys/process.h"
#include "server/sys/roots.h"

namespace headroom::sys {

class PidFd {
 public:
  // NotFound: gone, or the pid belongs to another process by now. Unimplemented: before Linux 5.3.
  static absl::StatusOr<PidFd> Open(const Roots& roots, const ProcessId& id);

  // Readable (poll, epoll, asio) once the process has ended.
  int fd() const { return fd_.get(); }
  const ProcessId& id() const { return id_; }
  bool Exited() const;
  // NotFound: it has ended. PermissionDenied: another user's.
  absl::Status Send(int signal) const;

 private:
  PidFd(UniqueFd fd, const ProcessId& id) : fd_(std::move(fd)), id_(id) {}
  UniqueFd fd_;
  ProcessId id_;
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_PIDFD_H_
