// inotify(7) on a fifo: tells that somebody read, wrote, opened or closed it, p50 28 us later
// (measured). Events are merged and include our own reads and writes: a hint to look at
// Fifo::Idle(), never a count.
#ifndef HEADROOM_SERVER_SYS_FIFO_WATCH_H_
#define HEADROOM_SERVER_SYS_FIFO_WATCH_H_

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/sys/fifo.h"
#include "server/sys/file.h"

namespace headroom::sys {

struct FifoHints {
  bool read = false;
  bool written = false;
  bool opened = false;
  bool closed = false;    // kill -9 of the holder, too
  bool unlinked = false;  // its last name was removed; or its attributes changed: look
  bool any() const { return read || written || opened || closed || unlinked; }
};

// What a read(2) from an inotify descriptor returned. Bytes that aren't whole events are left out.
// An overflow of the kernel's queue sets every hint.
FifoHints ParseFifoEvents(std::string_view bytes);

class FifoWatch {
 public:
  static absl::StatusOr<FifoWatch> Open(const Fifo& fifo);
  // Readable when there are hints; for epoll or asio.
  int fd() const { return fd_.get(); }
  // All hints since the last call. Never blocks.
  FifoHints Drain() const;

 private:
  explicit FifoWatch(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_FIFO_WATCH_H_
