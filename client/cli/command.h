// CMD of `headroom run`: started as a shell would have started it, with signals and job control as
// if we were not there.
//
// CMD stays in our process group, so that the terminal treats both alike: ^C and ^Z reach CMD from
// the kernel. What is sent to us alone (kill, a supervisor) is passed on, once. Whether a signal
// went to the whole group is asked of a witness: a process of ours in the same group, in which all
// signals are blocked; what is pending there was sent to the group. (si_code tells the terminal's
// signals alone: kill(-pgid) looks like a kill of us.)
//
// When CMD stops by a terminal's stop signal, we stop by the same, so that the shell sees the whole
// job stopped. SIGSTOP is not mirrored: the daemon uses it, and a shell must not notice that.
//
// Threading: one thread, the io_context's; no other thread may exist at the start.
#ifndef HEADROOM_CLIENT_CLI_COMMAND_H_
#define HEADROOM_CLIENT_CLI_COMMAND_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <signal.h>
#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/sys/file.h"

namespace headroom::cli {

// The witness; see above.
class Witness {
 public:
  static absl::StatusOr<Witness> Start();

  // Whether the signal went to the whole process group; it counts as dealt with from then on.
  bool WasForAll(int signal);
  pid_t pid() const { return pid_; }

 private:
  Witness(pid_t pid, sys::UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  // Whether the signal is pending there; unset: it doesn't answer.
  std::optional<bool> Ask(int signal);

  pid_t pid_ = 0;
  sys::UniqueFd socket_;  // its end closes with us, and that ends the witness
  unsigned char sequence_ = 0;
};

class Command {
 public:
  struct Options {
    std::string program;            // a path
    std::vector<std::string> argv;  // argv[0] as the user wrote it
    std::vector<std::string> environment;
    std::vector<int> inherit;  // descriptors that CMD gets besides what it would have anyway
  };
  explicit Command(boost::asio::io_context& io);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // From here on this process is a child subreaper, and signals wait for Wait(). NotFound,
  // PermissionDenied: what execve(2) says of the program.
  absl::Status Start(const Options& options);
  // Until CMD has ended; its wait status.
  boost::asio::awaitable<int> Wait();
  pid_t pid() const { return pid_; }
  // To CMD, where it still runs.
  void Kill(int signal) const;

 private:
  void OnSignal(int signal, int code, pid_t sender);
  void Reap();
  void StopLikeIt(int signal);

  boost::asio::posix::stream_descriptor signals_;
  std::unique_ptr<Witness> witness_;
  sigset_t mask_before_{};
  struct sigaction sigchld_before_ {};
  pid_t pid_ = 0;
  bool ended_ = false;
  int status_ = 0;
};

// Ends this process as CMD ended: with its exit code, or by the same signal (without a core of our
// own), so that whoever waits for us sees the same.
[[noreturn]] void EndLike(int wait_status);

// What a shell calls it: the exit code, or 128 and the signal.
int ExitCodeOf(int wait_status);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_COMMAND_H_
