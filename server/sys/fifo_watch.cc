#include "server/sys/fifo_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace headroom::sys {

FifoHints ParseFifoEvents(std::string_view bytes) {
  FifoHints hints;
  while (bytes.size() >= sizeof(inotify_event)) {
    inotify_event event = {};
    memcpy(&event, bytes.data(), sizeof event);
    bytes.remove_prefix(sizeof event);
    if (event.len > bytes.size()) break;
    bytes.remove_prefix(event.len);
    const bool all = (event.mask & IN_Q_OVERFLOW) != 0;
    hints.read |= all || (event.mask & IN_ACCESS) != 0;
    hints.written |= all || (event.mask & IN_MODIFY) != 0;
    hints.opened |= all || (event.mask & IN_OPEN) != 0;
    hints.closed |= all || (event.mask & IN_CLOSE) != 0;
    hints.unlinked |= all || (event.mask & (IN_ATTRIB | IN_DELETE_SELF | IN_IGNORED)) != 0;
  }
  return hints;
}

absl::StatusOr<FifoWatch> FifoWatch::Open(const Fifo& fifo) {
  UniqueFd fd(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!fd) {
    return ErrnoStatus(errno,
                       "inotify for " + fifo.path() + " (raise fs.inotify.max_user_instances)");
  }
  // By descriptor: the very fifo that is open, not what its name leads to by now.
  const std::string link = "/proc/self/fd/" + std::to_string(fifo.fd());
  if (inotify_add_watch(fd.get(), link.c_str(),
                        IN_ACCESS | IN_MODIFY | IN_OPEN | IN_CLOSE | IN_ATTRIB | IN_DELETE_SELF) <
      0) {
    return ErrnoStatus(errno, "watch " + fifo.path() + " (raise fs.inotify.max_user_watches)");
  }
  return FifoWatch(std::move(fd));
}

FifoHints FifoWatch::Drain() const {
  FifoHints hints;
  alignas(inotify_event) char buffer[4096];
  // Bounded: a busy fifo must not keep the caller here. What is left keeps the descriptor readable.
  for (int i = 0; i < 64; ++i) {
    const ssize_t got = read(fd_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const FifoHints more = ParseFifoEvents(std::string_view(buffer, static_cast<size_t>(got)));
    hints.read |= more.read;
    hints.written |= more.written;
    hints.opened |= more.opened;
    hints.closed |= more.closed;
    hints.unlinked |= more.unlinked;
  }
  return hints;
}

}  // namespace headroom::sys
