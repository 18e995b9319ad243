// What the files of this folder that call the kernel share. Private to server/trace.
#ifndef HEADROOM_SERVER_TRACE_POSIX_H_
#define HEADROOM_SERVER_TRACE_POSIX_H_

#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

namespace headroom::trace {

inline std::string ErrnoText(int error) {
  return std::system_category().message(error);
}

// Owns a descriptor; negative: none.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace headroom::trace

#endif  // HEADROOM_SERVER_TRACE_POSIX_H_
