#include "client/cli/session.h"

#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace headroom::cli {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A daemon listens some 30 ms after its start; on a machine that swaps it takes seconds.
constexpr milliseconds kStartTime{10'000};
constexpr milliseconds kStartStep{20};
// How long a daemon that has found another one's lock may be gone before that other one listens.
constexpr milliseconds kOtherTime{2'000};
// Between two looks for a daemon that is gone.
constexpr milliseconds kFirstLook{50};
constexpr milliseconds kLastLook{1'000};
// A private daemon that dies over and over is not started more often than this.
constexpr milliseconds kBetweenStarts{2'000};
// Daemons that end just as we come: each try is a new race, which is not lost often.
constexpr int kTries = 5;

}  // namespace

Session::Session(asio::io_context& io, Options options)
    : io_(io), options_(std::move(options)), timer_(io) {}

absl::StatusOr<v1::Attached> Session::Open() {
  absl::StatusOr<v1::Attached> attached = absl::InternalError("not asked");
  asio::co_spawn(
      io_, [&]() -> asio::awaitable<void> { attached = co_await FindAndAttach(); }, asio::detached);
  io_.run();
  io_.restart();
  return attached;
}

asio::awaitable<bool> Session::Sleep(milliseconds time) {
  timer_.expires_after(time);
  co_await timer_.async_wait(asio::as_tuple(asio::use_awaitable));
  co_return !stopped_;
}

asio::awaitable<absl::StatusOr<v1::Attached>> Session::AttachAt(const std::string& dir) {
  auto connection = Connection::Open(io_, SocketPath(dir), options_.uid);
  if (!connection.ok()) co_return connection.status();
  // A member from now on, so that Stop can end the wait.
  connection_ = *std::move(connection);
  v1::Request request;
  *request.mutable_attach() = options_.attach;
  const absl::Status sent = co_await connection_->Send(request);
  // A daemon that turns us away may have answered before it closed. (No co_await in a conditional
  // expression: g++ 12 destroys what it gives twice.)
  absl::StatusOr<v1::Response> response = absl::UnavailableError("");
  if (sent.ok() || absl::IsUnavailable(sent)) {
    response = co_await connection_->Receive();
  } else {
    response = sent;
  }
  absl::Status wrong;
  refused_ = false;
  if (!response.ok()) {
    wrong = response.status();
  } else if (response->has_error()) {
    wrong = ToStatus(response->error());
    refused_ = true;
  } else if (!response->has_attached() || response->attached().lane_dir().empty()) {
    wrong = absl::FailedPreconditionError(
        "the daemon's answer is no lane; restart headroomd if it is of another version");
  }
  if (!wrong.ok()) {
    connection_.reset();
    co_return wrong;
  }
  runtime_dir_ = dir;
  private_ = response->attached().private_daemon();
  options_.attach.set_lane_dir(response->attached().lane_dir());
  co_return response->attached();
}

asio::awaitable<absl::StatusOr<v1::Attached>> Session::FindAndAttach() {
  absl::StatusOr<v1::Attached> attached = absl::NotFoundError("");
  for (int i = 0; i < kTries; ++i) {
    absl::Status found;
    for (const std::string& dir : options_.places.lookup) {
      attached = co_await AttachAt(dir);
      if (attached.ok() || refused_) co_return attached;
      if (!absl::IsNotFound(attached.status()) && found.ok()) found = attached.status();
    }
    // A private daemon that was just ending: look again, or start the next.
    if (absl::IsUnavailable(found)) continue;
    // One daemon per user and host: beside one that hangs no second one is started. One that is
    // not for us (its socket is closed to us) doesn't count.
    if (!found.ok() && !absl::IsPermissionDenied(found)) co_return found;
    attached = co_await StartAndAttach(found);
    if (attached.ok() || refused_ || !absl::IsUnavailable(attached.status())) co_return attached;
  }
  co_return attached;
}

asio::awaitable<absl::StatusOr<v1::Attached>> Session::StartAndAttach(absl::Status found) {
  const auto because = [&found](const absl::Status& status) {
    if (found.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(absl::string_view(found.message()), "; and ",
                                                    status.message()));
  };
  if (options_.daemon_program.empty())
    co_return because(absl::FailedPreconditionError(
        "headroomd is neither beside headroom nor in PATH; install it there"));
  absl::Status wrong = absl::FailedPreconditionError("there is no runtime folder");
  std::string dir;
  for (const std::string& place : options_.places.own) {
    wrong = PrepareRuntimeDir(place, options_.uid);
    if (!wrong.ok()) continue;
    dir = place;
    break;
  }
  if (!wrong.ok()) co_return because(wrong);
  auto daemon = StartPrivateDaemon(options_.daemon_program, dir);
  if (!daemon.ok()) co_return because(daemon.status());
  auto until = Clock::now() + kStartTime;
  bool ended = false;
  while (true) {
    auto attached = co_await AttachAt(dir);
    if (attached.ok() || refused_ || !absl::IsNotFound(attached.status())) co_return attached;
    if (!ended && daemon->Ended()) {
      // It may have lost a race: then the winner listens soon.
      ended = true;
      until = std::min(until, Clock::now() + kOtherTime);
    }
    if (Clock::now() >= until) {
      // It must not come up later, when nobody looks for it any more.
      if (!ended) daemon->Kill();
      const std::string last = LastLogLine(dir);
      co_return because(absl::FailedPreconditionError(
          absl::StrCat("the private headroomd did not come up; see ", LogPath(dir),
                       last.empty() ? "" : ": ", last)));
    }
    if (!co_await Sleep(kStartStep)) co_return absl::CancelledError("ended");
  }
}

asio::awaitable<void> Session::Keep() {
  auto started = Clock::now();
  while (!stopped_) {
    co_await connection_->WaitForEnd();
    if (stopped_) co_return;
    connection_.reset();
    options_.say("headroomd is gone; the build goes on with the jobs that it has");
    milliseconds pause = kFirstLook;
    while (!connection_) {
      auto attached = co_await AttachAt(runtime_dir_);
      if (stopped_) co_return;
      if (attached.ok()) {
        options_.say("headroomd is back");
        break;
      }
      if (private_ && absl::IsNotFound(attached.status()) && !options_.daemon_program.empty() &&
          Clock::now() - started >= kBetweenStarts) {
        started = Clock::now();
        const auto daemon = StartPrivateDaemon(options_.daemon_program, runtime_dir_);
        if (!daemon.ok())
          options_.say(absl::StrCat("can't start headroomd again: ",
                                    absl::string_view(daemon.status().message())));
        pause = kFirstLook;
      }
      if (!co_await Sleep(pause)) co_return;
      pause = std::min(pause * 2, kLastLook);
    }
  }
}

void Session::Stop() {
  stopped_ = true;
  timer_.cancel();
  if (connection_) connection_->Cancel();
}

asio::awaitable<std::optional<v1::LaneSummary>> Session::Close(int exit_code) {
  if (!connection_) co_return std::nullopt;
  v1::Request request;
  request.mutable_detach()->set_exit_code(exit_code);
  const auto response = co_await connection_->Call(request);
  if (!response.ok() || !response->has_summary()) {
    connection_.reset();
    co_return std::nullopt;
  }
  co_return response->summary();
}

asio::awaitable<absl::Status> Session::SaveTrace(int fd) {
  if (!connection_) co_return absl::UnavailableError("there is no headroomd to ask for it");
  v1::Request request;
  request.mutable_trace();
  auto response = co_await connection_->Call(request);
  while (true) {
    if (!response.ok()) co_return response.status();
    if (!response->has_trace()) co_return absl::InvalidArgumentError("the answer is no trace");
    std::string_view data = response->trace().data();
    while (!data.empty()) {
      const ssize_t written = write(fd, data.data(), data.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) co_return absl::UnavailableError(std::strerror(errno));
      data.remove_prefix(static_cast<size_t>(written));
    }
    if (response->trace().last()) co_return absl::OkStatus();
    response = co_await connection_->Receive();
    if (response.ok() && response->has_error()) co_return ToStatus(response->error());
  }
}

}  // namespace headroom::cli
