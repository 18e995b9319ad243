// Nothing stays frozen without a live daemon: a small helper process that holds a pidfd of all that
// is frozen, and sends SIGCONT to all of it when the daemon is gone (its end of a socket closes
// with it, kill -9 included).
//
// The helper is forked when it is first needed, or by Start() early on, while the daemon is small.
// It holds nothing else of the daemon: no lock, no fifo, no socket. It ignores every signal but
// SIGKILL; should it end all the same, the next Hold() starts another and hands it all that is
// held.
//
// Threading: one thread. The child does nothing that isn't async-signal-safe.
#ifndef HEADROOM_SERVER_DAEMON_THAWER_H_
#define HEADROOM_SERVER_DAEMON_THAWER_H_

#include <sys/types.h>

#include <map>

#include "absl/status/status.h"
#include "server/policy/types.h"
#include "server/sys/file.h"
#include "server/sys/pidfd.h"

namespace headroom::daemon {

class Thawer {
 public:
  Thawer() = default;
  // Ends the helper (which thaws what is still held) and waits for it.
  ~Thawer();
  Thawer(const Thawer&) = delete;
  Thawer& operator=(const Thawer&) = delete;

  absl::Status Start();

  // To be called before SIGSTOP is sent. An error: don't freeze it.
  absl::Status Hold(const policy::ProcId& id, sys::PidFd pidfd);
  // After SIGCONT was sent, or when the process is gone.
  void Release(const policy::ProcId& id);

  // Starts the helper again where it has ended and something is held. To be called now and then.
  void Tend();

  // What is held, with its pidfd.
  const std::map<policy::ProcId, sys::PidFd>& held() const { return held_; }
  pid_t helper() const { return helper_; }

  // Most processes that it can hold at once.
  static constexpr size_t kMost = 4096;

 private:
  absl::Status Send(char what, const policy::ProcId& id, int fd);
  void Reap();

  sys::UniqueFd socket_;
  pid_t helper_ = 0;
  std::map<policy::ProcId, sys::PidFd> held_;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_THAWER_H_
