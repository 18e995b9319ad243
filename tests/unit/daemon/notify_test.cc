#include "server/daemon/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

using namespace headroom;
using namespace std::chrono_literals;
using daemon::Notifier;

namespace {

// What systemd listens on.
class StandIn {
 public:
  StandIn() {
    std::string pattern = "/tmp/headroom-notify-XXXXXX";
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    dir_ = pattern;
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~StandIn() {
    close(fd_);
    std::filesystem::remove_all(dir_);
  }
  std::string path() const { return dir_ + "/notify"; }

  std::vector<std::string> Take() {
    std::vector<std::string> messages;
    char buffer[4096];
    for (;;) {
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n < 0) return messages;
      messages.emplace_back(buffer, static_cast<size_t>(n));
    }
  }

 private:
  std::string dir_;
  int fd_ = -1;
};

struct CleanEnvironment {
  CleanEnvironment() { Clear(); }
  ~CleanEnvironment() { Clear(); }
  static void Clear() {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }
};

}  // namespace

TEST_CASE("systemd hears of each phase of the daemon's life") {
  const CleanEnvironment clean;
  StandIn systemd;
  setenv("NOTIFY_SOCKET", systemd.path().c_str(), 1);
  Notifier notifier = Notifier::FromEnvironment();
  REQUIRE(notifier.enabled());
  CHECK_FALSE(notifier.watchdog_period());
  // No child may speak in the daemon's name.
  CHECK(std::getenv("NOTIFY_SOCKET") == nullptr);

  notifier.Ready("3 lanes");
  CHECK(systemd.Take() == std::vector<std::string>{"READY=1\nSTATUS=3 lanes"});
  CHECK(notifier.last_error().empty());
  CHECK(std::getenv("NOTIFY_SOCKET") == nullptr);
  notifier.Status("two\nlines\nWATCHDOG=1");
  CHECK(systemd.Take() == std::vector<std::string>{"STATUS=two lines WATCHDOG=1"});
  notifier.Reloading();
  const auto reloading = systemd.Take();
  REQUIRE(reloading.size() == 1);
  CHECK(reloading[0].rfind("RELOADING=1\nMONOTONIC_USEC=", 0) == 0);
  notifier.Stopping();
  CHECK(systemd.Take() == std::vector<std::string>{"STOPPING=1\nSTATUS=stopping"});
  notifier.Alive();
  CHECK(systemd.Take() == std::vector<std::string>{"WATCHDOG=1"});
}

TEST_CASE("without systemd nothing is sent, and a socket that is gone is said") {
  const CleanEnvironment clean;
  Notifier none = Notifier::FromEnvironment();
  CHECK_FALSE(none.enabled());
  none.Ready("x");
  CHECK(none.last_error().empty());

  setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
  Notifier broken = Notifier::FromEnvironment();
  broken.Ready("x");
  CHECK(broken.last_error().find("/nonexistent/notify") != std::string::npos);
}

TEST_CASE("the watchdog is fed at half its time, by the loop, while the daemon is well") {
  const CleanEnvironment clean;
  StandIn systemd;
  setenv("NOTIFY_SOCKET", systemd.path().c_str(), 1);
  setenv("WATCHDOG_USEC", "200000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  Notifier notifier = Notifier::FromEnvironment();
  REQUIRE(notifier.watchdog_period() == 100ms);
  CHECK(std::getenv("WATCHDOG_USEC") == nullptr);

  boost::asio::io_context io;
  bool well = true;
  daemon::Watchdog watchdog(io, notifier, [&] { return well; });
  watchdog.Start();
  CHECK(systemd.Take() == std::vector<std::string>{"WATCHDOG=1"});
  // A loop that runs late still feeds it; how often it did shows that it isn't by the call alone.
  io.run_for(550ms);
  const size_t fed = systemd.Take().size();
  CHECK(fed >= 3);
  CHECK(fed <= 6);
  well = false;
  io.restart();
  io.run_for(250ms);
  CHECK(systemd.Take().empty());
  well = true;
  io.restart();
  io.run_for(250ms);
  CHECK_FALSE(systemd.Take().empty());
  watchdog.Stop();
  io.restart();
  io.run();
  CHECK(systemd.Take().empty());
}

TEST_CASE("another process's watchdog is not fed") {
  const CleanEnvironment clean;
  StandIn systemd;
  setenv("NOTIFY_SOCKET", systemd.path().c_str(), 1);
  setenv("WATCHDOG_USEC", "200000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  Notifier notifier = Notifier::FromEnvironment();
  CHECK_FALSE(notifier.watchdog_period());
  boost::asio::io_context io;
  daemon::Watchdog watchdog(io, notifier, [] { return true; });
  watchdog.Start();
  io.run_for(50ms);
  CHECK(systemd.Take().empty());

  setenv("WATCHDOG_USEC", "soon", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  CHECK_FALSE(Notifier::FromEnvironment().watchdog_period());
}
