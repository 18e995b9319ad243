// A blocking client of the control socket, for tests that have a real headroomd.
#ifndef HEADROOM_TESTS_SUPPORT_CONTROL_CLIENT_H_
#define HEADROOM_TESTS_SUPPORT_CONTROL_CLIENT_H_

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "headroom/v1/control.pb.h"
#include "server/daemon/frame.h"

namespace headroom::testing {

// Throws std::runtime_error where nobody answers, or the connection ends.
class ControlClient {
 public:
  // Waits up to 10 s for the daemon to come up.
  explicit ControlClient(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    for (int i = 0; i < 500; ++i) {
      fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return;
      close(fd_);
      fd_ = -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    throw std::runtime_error("no daemon answers at " + path);
  }
  ~ControlClient() {
    if (fd_ >= 0) close(fd_);
  }
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  v1::Response Ask(const v1::Request& request) {
    std::string frame;
    daemon::AppendFrame(request, frame);
    if (send(fd_, frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size()))
      throw std::runtime_error("the daemon takes no request");
    return Receive();
  }

  v1::Response Receive() {
    char buffer[65536];
    for (;;) {
      auto frame = parser_.Next();
      if (!frame.ok()) throw std::runtime_error(std::string(frame.status().message()));
      if (*frame) {
        v1::Response response;
        if (!response.ParseFromString(**frame)) throw std::runtime_error("no Response");
        return response;
      }
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) throw std::runtime_error("the daemon has ended the connection");
      parser_.Feed({buffer, static_cast<size_t>(n)});
    }
  }

 private:
  int fd_ = -1;
  daemon::FrameParser parser_{size_t{2} << 20};
};

// Field 22 of /proc/PID/stat of this process, see proc(5).
inline uint64_t OwnStart() {
  std::ifstream in("/proc/self/stat");
  std::stringstream text;
  text << in.rdbuf();
  // Behind the last parenthesis: the name may hold blanks. Field 22 is the 20th from there.
  const std::string all = text.str();
  std::istringstream fields(all.substr(all.rfind(')') + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  return std::stoull(field);
}

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_SUPPORT_CONTROL_CLIENT_H_
