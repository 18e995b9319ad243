// Starts a private headroomd that outlives this process if other builds need it.
#ifndef HEADROOM_CLIENT_CLI_LAUNCHER_H_
#define HEADROOM_CLIENT_CLI_LAUNCHER_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <string>

namespace headroom::cli {

// A started daemon, held by a pidfd (pidfd_open(2)), which can't be mistaken for a later process.
class DaemonProcess {
 public:
  DaemonProcess() = default;
  DaemonProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  DaemonProcess(DaemonProcess&& other) noexcept;
  DaemonProcess& operator=(DaemonProcess&& other) noexcept;
  ~DaemonProcess();
  pid_t pid() const { return pid_; }
  bool Ended() const;
  void Kill() const;  // SIGKILL

 private:
  pid_t pid_ = 0;
  int pidfd_ = -1;
};

// Runs `program --private --runtime-dir DIR` in a session of its own (so that the terminal's ^C and
// hang-up don't reach it), as no child of ours (so that it doesn't count as part of the build),
// with none of our descriptors, in "/". What it says goes to DIR/headroomd.log.
//
// Two of them at once are no harm: the second one finds the first one's lock and ends.
absl::StatusOr<DaemonProcess> StartPrivateDaemon(const std::string& program,
                                                 const std::string& runtime_dir);

std::string LogPath(const std::string& runtime_dir);
// The last line that the daemon wrote to its log, to be shown where it did not come up.
std::string LastLogLine(const std::string& runtime_dir);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_LAUNCHER_H_
