// `run`'s side of its lane: finds or starts a daemon, attaches, stays attached while the build runs
// (also across a daemon's restart), and asks for the summary at the end.
//
// Threading: one thread, the io_context's.
#ifndef HEADROOM_CLIENT_CLI_SESSION_H_
#define HEADROOM_CLIENT_CLI_SESSION_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/cli/connection.h"
#include "client/cli/launcher.h"
#include "client/cli/paths.h"
#include "headroom/v1/control.pb.h"

namespace headroom::cli {

class Session {
 public:
  struct Options {
    Places places;
    uid_t uid = 0;
    std::string daemon_program;  // empty: none was found
    v1::AttachRequest attach;
    std::function<void(const std::string&)> say;  // a line for the user
  };
  Session(boost::asio::io_context& io, Options options);

  // Runs the io_context until there is a lane or no way to get one; the error says why not.
  absl::StatusOr<v1::Attached> Open();
  // Keeps the lane attached until Stop: when the daemon is gone, waits for the next one; a private
  // one is started again.
  boost::asio::awaitable<void> Keep();
  void Stop();
  // Detaches. Unset: there is no daemon to ask now.
  boost::asio::awaitable<std::optional<v1::LaneSummary>> Close(int exit_code);
  // Writes the daemon's trace to an open file; after Close.
  boost::asio::awaitable<absl::Status> SaveTrace(int fd);

  // Of the daemon that keeps the lane.
  const std::string& runtime_dir() const { return runtime_dir_; }
  // The error of Open is a daemon's own answer to what was asked, not the want of a daemon.
  bool refused() const { return refused_; }

 private:
  boost::asio::awaitable<absl::StatusOr<v1::Attached>> FindAndAttach();
  boost::asio::awaitable<absl::StatusOr<v1::Attached>> StartAndAttach(absl::Status found);
  boost::asio::awaitable<absl::StatusOr<v1::Attached>> AttachAt(const std::string& dir);
  boost::asio::awaitable<bool> Sleep(std::chrono::milliseconds time);

  boost::asio::io_context& io_;
  Options options_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<Connection> connection_;
  std::string runtime_dir_;
  bool private_ = false;
  bool stopped_ = false;
  bool refused_ = false;
};

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_SESSION_H_
