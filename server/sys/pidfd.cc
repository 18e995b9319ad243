#include "server/sys/pidfd.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace headroom::sys {

absl::StatusOr<PidFd> PidFd::Open(const Roots& roots, const ProcessId& id) {
  UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, id.pid, 0)));
  const std::string who = "process " + std::to_string(id.pid);
  if (!fd) return ErrnoStatus(errno, "pidfd of " + who);
  // Checked after the descriptor was opened: the process that started then was there at that time.
  const std::optional<ProcessId> present = ReadProcessId(roots, id.pid);
  if (!present || *present != id) return absl::NotFoundError(who + " has ended");
  return PidFd(std::move(fd), id);
}

bool PidFd::Exited() const {
  pollfd poll_fd = {fd_.get(), POLLIN, 0};
  return poll(&poll_fd, 1, 0) == 1;
}

absl::Status PidFd::Send(int signal) const {
  if (syscall(SYS_pidfd_send_signal, fd_.get(), signal, nullptr, 0) != 0) {
    return ErrnoStatus(
        errno, "signal " + std::to_string(signal) + " to process " + std::to_string(id_.pid));
  }
  return absl::OkStatus();
}

}  // namespace headroom::sys
