// Tells systemd how the daemon is: sd_notify(3) and the watchdog, through libsystemd. Without
// NOTIFY_SOCKET in the environment everything here does nothing.
//
// Threading: one thread. Errors: a message that can't be sent is dropped (systemd then sees a
// missing READY or WATCHDOG, which is what it is for); Last() says why, for the log.
#ifndef HEADROOM_SERVER_DAEMON_NOTIFY_H_
#define HEADROOM_SERVER_DAEMON_NOTIFY_H_

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::daemon {

class Notifier {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, and removes them from the environment, so
  // that no child of the daemon speaks in its name.
  static Notifier FromEnvironment();

  bool enabled() const { return !socket_.empty(); }
  // How often Alive must be called: half of what the unit's WatchdogSec allows. Unset: no watchdog.
  std::optional<std::chrono::microseconds> watchdog_period() const { return watchdog_period_; }

  // The daemon serves from now on. `status`: one line for `systemctl status`.
  void Ready(std::string_view status);
  void Status(std::string_view status);
  // RELOADING=1 with the time; Ready must follow.
  void Reloading();
  void Stopping();
  void Alive();

  // Why the last message was not sent; empty if it was.
  const std::string& last_error() const { return last_error_; }

 private:
  void Send(const std::string& message);

  std::string socket_;
  std::optional<std::chrono::microseconds> watchdog_period_;
  std::string last_error_;
};

// Calls Alive from the daemon's own loop, so that a loop that hangs is restarted. `healthy` can
// withhold it: asked each time.
class Watchdog {
 public:
  Watchdog(boost::asio::io_context& io, Notifier& notifier, std::function<bool()> healthy);
  // Does nothing without a watchdog.
  void Start();
  void Stop();

 private:
  void Arm();

  Notifier& notifier_;
  std::function<bool()> healthy_;
  boost::asio::steady_timer timer_;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_NOTIFY_H_
