// A jobserver fifo: tokens are bytes in it (GNU make manual, "POSIX Jobserver Interaction").
//
// The daemon opens it for reading and writing, never blocking: so make's client, which opens it for
// reading alone and blocks, finds a writer, and nobody sees the end of file. The bytes live as long
// as any process holds it open, the daemon's death included. It is never unlinked here: a client
// that misses it runs unthrottled.
//
// Threading: the system calls are safe on any thread; moving a Fifo isn't.
#ifndef HEADROOM_SERVER_SYS_FIFO_H_
#define HEADROOM_SERVER_SYS_FIFO_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/sys/file.h"

namespace headroom::sys {

// What our tokens look like. make writes back '+' whatever it read, so there is no use in others.
inline constexpr char kTokenByte = '+';

class Fifo {
 public:
  // Opens the fifo at `path` in a folder of `uid` that only it may write to (EnsureFolder), and
  // makes folder and fifo (0600) where they are missing. What is there already must be a fifo of
  // `uid`, without a symlink: FailedPrecondition otherwise. Tokens in it are kept.
  static absl::StatusOr<Fifo> Create(const std::string& path, uid_t uid);
  // Opens one that exists, as a client or a restarted daemon does. NotFound where it is missing.
  static absl::StatusOr<Fifo> Open(const std::string& path);

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  const FileId& id() const { return id_; }

  // Bytes in the fifo (FIONREAD): exact at the time of the call.
  absl::StatusOr<int64_t> Idle() const;
  // Puts `count` tokens in. Returns how many it could: fewer where the fifo is full.
  absl::StatusOr<int64_t> Put(int64_t count) const;
  // Takes up to `count` out; 0 where it is empty. One that somebody else takes first is not waited
  // for.
  absl::StatusOr<int64_t> Take(int64_t count) const;
  // Makes room for at least `tokens` (F_SETPIPE_SZ; 65,536 by default, a page for a user above
  // fs.pipe-user-pages-soft). Returns the capacity in bytes.
  absl::StatusOr<int64_t> Reserve(int64_t tokens) const;

 private:
  Fifo(UniqueFd fd, std::string path, FileId id)
      : fd_(std::move(fd)), path_(std::move(path)), id_(id) {}
  UniqueFd fd_;
  std::string path_;
  FileId id_;
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_FIFO_H_
