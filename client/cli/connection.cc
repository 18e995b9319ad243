#include "client/cli/connection.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

namespace headroom::cli {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kWait = asio::as_tuple(asio::use_awaitable);

// Cancels the socket's operations when the time is over, unless it is destroyed before.
class Deadline {
 public:
  Deadline(asio::local::stream_protocol::socket& socket, std::chrono::milliseconds time)
      : timer_(socket.get_executor(), time), passed_(std::make_shared<bool>(false)) {
    timer_.async_wait([&socket, passed = passed_](const error_code& error) {
      if (error) return;
      *passed = true;
      error_code ignored;
      socket.cancel(ignored);
    });
  }
  ~Deadline() { timer_.cancel(); }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  bool passed() const { return *passed_; }

 private:
  asio::steady_timer timer_;
  std::shared_ptr<bool> passed_;
};

absl::Status Broken(const error_code& error, const Deadline& deadline,
                    std::chrono::milliseconds time) {
  if (deadline.passed())
    return absl::DeadlineExceededError(
        absl::StrCat("headroomd has not answered for ", time.count(), " ms; it hangs: restart it"));
  if (error == asio::error::operation_aborted) return absl::CancelledError("ended");
  if (error == asio::error::eof) return absl::UnavailableError("headroomd closed the connection");
  return absl::UnavailableError(absl::StrCat("connection to headroomd: ", error.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(asio::io_context& io,
                                                             const std::string& socket_path,
                                                             uid_t uid) {
  std::unique_ptr<Connection> connection(new Connection(io));
  error_code error;
  connection->socket_.open(asio::local::stream_protocol(), error);
  if (error)
    return absl::ResourceExhaustedError(absl::StrCat("can't open a socket: ", error.message()));
  // Asio does not do it, and a build that held it would keep its lane attached.
  fcntl(connection->socket_.native_handle(), F_SETFD, FD_CLOEXEC);
  // A UNIX socket connects at once or, where the backlog is full, not at all (EAGAIN).
  connection->socket_.non_blocking(true, error);
  connection->socket_.connect(asio::local::stream_protocol::endpoint(socket_path), error);
  if (error == asio::error::connection_refused ||
      error == boost::system::errc::no_such_file_or_directory ||
      error == boost::system::errc::not_a_directory)
    return absl::NotFoundError(absl::StrCat("no headroomd listens at ", socket_path));
  if (error == boost::system::errc::permission_denied)
    return absl::PermissionDeniedError(
        absl::StrCat(socket_path, ": permission denied; who runs headroomd must give you access"));
  if (error)
    return absl::UnavailableError(absl::StrCat(socket_path, ": can't connect: ", error.message()));
  // Where the folder can be written to by others, anybody could listen there.
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection->socket_.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return absl::UnavailableError(
        absl::StrCat(socket_path, ": can't tell who listens: ", std::strerror(errno)));
  if (peer.uid != 0 && peer.uid != uid)
    return absl::PermissionDeniedError(absl::StrCat(
        socket_path, ": user ", peer.uid, " listens there, neither root nor you; remove it"));
  connection->daemon_pid_ = peer.pid;
  return connection;
}

asio::awaitable<absl::Status> Connection::Send(const v1::Request& request,
                                               std::chrono::milliseconds time) {
  std::string frame;
  daemon::AppendFrame(request, frame);
  const Deadline deadline(socket_, time);
  const auto [error, written] = co_await asio::async_write(socket_, asio::buffer(frame), kWait);
  if (error) co_return Broken(error, deadline, time);
  co_return absl::OkStatus();
}

asio::awaitable<absl::StatusOr<v1::Response>> Connection::Receive(std::chrono::milliseconds time) {
  const Deadline deadline(socket_, time);
  while (true) {
    auto body = parser_.Next();
    if (!body.ok()) co_return body.status();
    if (body->has_value()) {
      v1::Response response;
      if (!response.ParseFromString(**body))
        co_return absl::InvalidArgumentError("the daemon's answer can't be read");
      co_return response;
    }
    std::array<char, 16384> bytes;
    const auto [error, size] = co_await socket_.async_read_some(asio::buffer(bytes), kWait);
    if (error) co_return Broken(error, deadline, time);
    parser_.Feed({bytes.data(), size});
  }
}

asio::awaitable<absl::StatusOr<v1::Response>> Connection::Call(const v1::Request& request,
                                                               std::chrono::milliseconds time) {
  const absl::Status sent = co_await Send(request, time);
  // A daemon that refuses us may have answered before it closed.
  if (!sent.ok() && !absl::IsUnavailable(sent)) co_return sent;
  auto response = co_await Receive(time);
  if (response.ok() && response->has_error()) co_return ToStatus(response->error());
  co_return response;
}

asio::awaitable<void> Connection::WaitForEnd() {
  char byte = 0;
  co_await socket_.async_read_some(asio::buffer(&byte, 1), kWait);
}

void Connection::Cancel() {
  error_code ignored;
  socket_.cancel(ignored);
}

absl::Status ToStatus(const v1::Error& error) {
  switch (error.kind()) {
    case v1::Error::BAD_REQUEST:
      return absl::InvalidArgumentError(error.text());
    case v1::Error::NOT_ALLOWED:
      return absl::PermissionDeniedError(error.text());
    case v1::Error::NOT_FOUND:
      return absl::NotFoundError(error.text());
    case v1::Error::BUSY:
      return absl::ResourceExhaustedError(error.text());
    default:  // An open enum: a newer daemon may know more kinds.
      return absl::InternalError(error.text());
  }
}

absl::StatusOr<Reached> Reach(asio::io_context& io, const Places& places, uid_t uid) {
  absl::Status worst = absl::NotFoundError("");
  for (const std::string& dir : places.lookup) {
    auto connection = Connection::Open(io, SocketPath(dir), uid);
    if (connection.ok()) return Reached{*std::move(connection), dir};
    if (!absl::IsNotFound(connection.status())) worst = connection.status();
  }
  return worst;
}

absl::StatusOr<Reached> ReachOrExplain(asio::io_context& io, const Places& places, uid_t uid) {
  auto reached = Reach(io, places, uid);
  if (reached.ok() || !absl::IsNotFound(reached.status())) return reached;
  return absl::NotFoundError(
      absl::StrCat("no headroomd runs (looked in ", absl::StrJoin(places.lookup, ", "),
                   "); start one with 'systemctl --user start headroomd', or run a build with "
                   "'headroom run -- CMD', which needs none"));
}

absl::StatusOr<v1::Response> Ask(const v1::Request& request) {
  const auto places = FindPlaces(ReadEnvironment(environ), geteuid());
  if (!places.ok()) return places.status();
  asio::io_context io;
  auto reached = ReachOrExplain(io, *places, geteuid());
  if (!reached.ok()) return reached.status();
  absl::StatusOr<v1::Response> answer = absl::InternalError("not asked");
  asio::co_spawn(
      io, [&]() -> asio::awaitable<void> { answer = co_await reached->connection->Call(request); },
      asio::detached);
  io.run();
  return answer;
}

}  // namespace headroom::cli
