// The kernel's process events over netlink (linux/cn_proc.h): fork, exec and exit of whole
// processes, p50 21 us after the fact; 5 % of a core at 3,000 spawns/s (measured). A socket filter
// drops everything else (threads, uid changes, ..., and what the caller doesn't want) in the
// kernel.
//
// Where it is not to be had the caller polls: PermissionDenied (before Linux 6.6: root only),
// Unimplemented (no CONFIG_PROC_EVENTS, or another pid or network namespace than the first).
#ifndef HEADROOM_SERVER_SYS_PROC_CONNECTOR_H_
#define HEADROOM_SERVER_SYS_PROC_CONNECTOR_H_

#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/sys/file.h"

namespace headroom::sys {

struct ProcEvent {
  enum class Kind {
    kFork,
    kExec,
    kExit,
    kLost,  // the socket overflowed: events are missing, scan /proc
  };
  Kind kind = Kind::kLost;
  pid_t pid = 0;              // kFork: the child
  pid_t parent = 0;           // kFork, kExit (0 where the kernel doesn't say)
  int wait_status = 0;        // kExit, as wait(2) has it
  uint64_t timestamp_ns = 0;  // since boot
};

// The events in one datagram of the connector. Events of threads, other kinds and malformed bytes
// are left out.
std::vector<ProcEvent> ParseProcEvents(std::string_view datagram);

class ProcConnector {
 public:
  enum class Wanted { kAll, kExecs };
  // Waits up to 0.5 s for the kernel's acknowledgement.
  static absl::StatusOr<ProcConnector> Open(Wanted wanted = Wanted::kAll);
  // Readable when there are events; after Hush() not until the next Read(), and nobody who waits
  // for it is woken by them.
  int fd() const { return bell_.get(); }
  // Events that come in now are to be read later, together: each of them would wake an event loop.
  void Hush() const;
  // Events that have come in, at most some thousands a call. Never blocks.
  std::vector<ProcEvent> Read() const;

 private:
  ProcConnector(UniqueFd fd, UniqueFd bell) : fd_(std::move(fd)), bell_(std::move(bell)) {}
  UniqueFd fd_;
  UniqueFd bell_;  // an epoll that has fd_ alone, for one event at a time
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_PROC_CONNECTOR_H_
