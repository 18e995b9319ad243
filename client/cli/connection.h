// A connection to the daemon's control socket.
//
// Threading: one thread, the io_context's. Every wait has a deadline, so that a hung daemon can't
// hold a build. Errors: NotFound (no daemon listens there), PermissionDenied (the socket is not
// for us, or is not a daemon of root or of us), DeadlineExceeded, Unavailable (the daemon closed
// the connection), InvalidArgument (what came is no answer), or what the daemon's own Error says.
#ifndef HEADROOM_CLIENT_CLI_CONNECTION_H_
#define HEADROOM_CLIENT_CLI_CONNECTION_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "client/cli/paths.h"
#include "headroom/v1/control.pb.h"
#include "server/daemon/frame.h"

namespace headroom::cli {

// A daemon answers from memory, within milliseconds; one that is silent for so long is hung.
inline constexpr std::chrono::milliseconds kAnswerTime{5000};

class Connection {
 public:
  // Checks that root or `uid` listens there.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(boost::asio::io_context& io,
                                                          const std::string& socket_path,
                                                          uid_t uid);

  boost::asio::awaitable<absl::Status> Send(const v1::Request& request,
                                            std::chrono::milliseconds time = kAnswerTime);
  boost::asio::awaitable<absl::StatusOr<v1::Response>> Receive(
      std::chrono::milliseconds time = kAnswerTime);
  // Send, then Receive; a response with an error becomes that error.
  boost::asio::awaitable<absl::StatusOr<v1::Response>> Call(
      const v1::Request& request, std::chrono::milliseconds time = kAnswerTime);
  // Returns when the daemon has closed the connection, or sent what nobody asked for.
  boost::asio::awaitable<void> WaitForEnd();
  // Ends what waits here.
  void Cancel();
  // The process that listens (SO_PEERCRED).
  pid_t daemon_pid() const { return daemon_pid_; }

 private:
  explicit Connection(boost::asio::io_context& io) : socket_(io) {}

  boost::asio::local::stream_protocol::socket socket_;
  daemon::FrameParser parser_;
  pid_t daemon_pid_ = 0;
};

absl::Status ToStatus(const v1::Error& error);

// The first place where a daemon answers. NotFound: there is none; another error: there is
// something, but not for us; the text says which.
struct Reached {
  std::unique_ptr<Connection> connection;
  std::string runtime_dir;
};
absl::StatusOr<Reached> Reach(boost::asio::io_context& io, const Places& places, uid_t uid);

// As Reach, but "there is none" comes with what to do about it.
absl::StatusOr<Reached> ReachOrExplain(boost::asio::io_context& io, const Places& places,
                                       uid_t uid);

// For programs that have one question: asks it and waits for the answer.
absl::StatusOr<v1::Response> Ask(const v1::Request& request);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_CONNECTION_H_
