// A sign of life from `run` where a build stands still for want of memory: a user, or a CI job with
// a timeout, must not take it for hung. Never where it goes on, and ever less often.
//
// Threading: one thread, the io_context's. Errors: a daemon that doesn't answer is no reason to say
// anything; Session does.
#ifndef HEADROOM_CLIENT_CLI_HEARTBEAT_H_
#define HEADROOM_CLIENT_CLI_HEARTBEAT_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/cli/connection.h"
#include "headroom/v1/control.pb.h"

namespace headroom::cli {

// When to say something, and what. Pure.
class Heartbeat {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `lane_dir`: whose tools are meant.
  std::optional<std::string> Look(const v1::Status& status, const std::string& lane_dir, Time now);

 private:
  std::optional<Time> said_;
  std::chrono::seconds pause_{0};  // after the last line
};

// Asks the daemon now and then, and says what there is to say.
class HeartbeatLoop {
 public:
  struct Options {
    std::function<std::string()> runtime_dir;  // of the daemon that is there now
    uid_t uid = 0;
    std::string lane_dir;
    std::function<void(const std::string&)> say;
  };
  HeartbeatLoop(boost::asio::io_context& io, Options options);

  boost::asio::awaitable<void> Run();
  void Stop();

 private:
  boost::asio::io_context& io_;
  Options options_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<Connection> connection_;
  bool stopped_ = false;
};

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_HEARTBEAT_H_
