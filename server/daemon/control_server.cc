#include "server/daemon/control_server.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <google/protobuf/stubs/logging.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "server/daemon/frame.h"
#include "server/daemon/utf8.h"
#include "server/trace/reader.h"

namespace headroom::daemon {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

// Linux 6.5; older headers do not have it.
constexpr int kSoPeerPidfd = 77;

// Of a trace, in one response: well below the frame's limit, large enough that a 64 MiB trace takes
// few turns of the loop.
constexpr size_t kTraceChunkBytes = size_t{256} << 10;

// Connections that the owner and root may have beyond max_connections: who has to look into a
// crowded daemon must get in.
constexpr size_t kReservedConnections = 16;

// How many peers are let in before other handlers of the loop have a turn.
constexpr int kAcceptsPerTurn = 32;

// Out of memory or descriptors: the kernel keeps the peers in the backlog meanwhile.
constexpr std::chrono::milliseconds kAcceptPause{100};

std::string ErrnoText(int error) {
  return std::system_category().message(error);
}

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { Reset(); }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

absl::StatusOr<sockaddr_un> Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return absl::FailedPreconditionError(
        absl::StrCat("the socket's path ", path, " has ", path.size(), " bytes, the system takes ",
                     sizeof(address.sun_path) - 1, ": choose a shorter runtime folder"));
  path.copy(address.sun_path, path.size());
  return address;
}

const sockaddr* Generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// Whether somebody accepts connections at the path.
bool Answers(const sockaddr_un& address) {
  Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(probe.get(), Generic(address), sizeof address) == 0) return true;
  // EAGAIN: the backlog is full, so there is a listener. Everything else (refused, gone, a socket
  // of another type) is nobody that we could talk to.
  return errno == EAGAIN;
}

// A socket that listens under the path from one moment to the next, with the right mode: it is made
// under another name and renamed.
absl::StatusOr<Fd> Listen(const std::string& path, mode_t mode) {
  const auto address = Address(path);
  if (!address.ok()) return address.status();
  const std::string fresh_path = path + "~";
  const auto fresh = Address(fresh_path);
  if (!fresh.ok()) return fresh.status();

  struct stat found {};
  if (lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode))
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is in the way and is not a socket: move it away"));
    if (Answers(*address))
      return absl::AlreadyExistsError(absl::StrCat(
          "socket ", path, " is in use: another daemon answers there; stop it, or choose another ",
          "runtime folder with HEADROOM_RUNTIME_DIR"));
  }
  if (unlink(fresh_path.c_str()) != 0 && errno != ENOENT)
    return absl::FailedPreconditionError(
        absl::StrCat("cannot remove the old ", fresh_path, ": ", ErrnoText(errno)));
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0)
    return absl::InternalError(absl::StrCat("cannot make a socket: ", ErrnoText(errno)));
  if (bind(listener.get(), Generic(*fresh), sizeof *fresh) != 0 ||
      chmod(fresh_path.c_str(), mode) != 0 || listen(listener.get(), SOMAXCONN) != 0 ||
      rename(fresh_path.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(fresh_path.c_str());
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make the control socket ", path, ": ", ErrnoText(error),
                     "; the folder must exist and be writable for this user"));
  }
  return listener;
}

Fd PeerPidfd(int socket, pid_t pid) {
  int fd = -1;
  socklen_t size = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &fd, &size) == 0) return Fd(fd);
  if (pid <= 0) return Fd();
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

v1::Response ErrorResponse(v1::Error::Kind kind, std::string text) {
  v1::Response response;
  response.mutable_error()->set_kind(kind);
  response.mutable_error()->set_text(std::move(text));
  return response;
}

v1::Response ErrorResponse(const absl::Status& status) {
  return ErrorResponse(ToErrorKind(status.code()), std::string(status.message()));
}

}  // namespace

absl::Status MayAsk(v1::Request::RequestCase request, uid_t uid, uid_t owner) {
  switch (request) {
    case v1::Request::kStatus:
    case v1::Request::kWatch:
    case v1::Request::kExplain:
    case v1::Request::kAttach:
    case v1::Request::kDetach:
    case v1::Request::kEnv:
    case v1::Request::kPing:
    // The lane's owner is checked where the lanes are known.
    case v1::Request::kSet:
      return absl::OkStatus();
    case v1::Request::kReload:
    case v1::Request::kTrace:
      if (uid == 0 || uid == owner) return absl::OkStatus();
      return absl::PermissionDeniedError(absl::StrCat(
          request == v1::Request::kTrace ? "the trace holds the builds of all users"
                                         : "the configuration counts for all users",
          ": only root and uid ", owner, " (the daemon's own) may ask for it, not uid ", uid));
    case v1::Request::REQUEST_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the request is of a kind that this daemon does not know: is the program newer than the "
      "daemon? Restart the daemon after an upgrade");
}

v1::Error::Kind ToErrorKind(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return v1::Error::BAD_REQUEST;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return v1::Error::NOT_ALLOWED;
    case absl::StatusCode::kNotFound:
      return v1::Error::NOT_FOUND;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return v1::Error::BUSY;
    default:  // absl's codes are open-ended ("do not switch without a default")
      return v1::Error::FAILED;
  }
}

class ControlServer::Impl : public std::enable_shared_from_this<ControlServer::Impl> {
 public:
  Impl(asio::io_context& io, ControlHandler& handler, ControlOptions options)
      : io_(io), handler_(handler), options_(std::move(options)), acceptor_(io), pause_(io) {}

  absl::Status Start() {
    // Protobuf writes a line to stderr for every string that isn't UTF-8: a peer could fill the
    // log.
    google::protobuf::SetLogHandler(nullptr);
    auto listener = Listen(options_.path, options_.mode);
    if (!listener.ok()) return listener.status();
    struct stat bound {};
    if (stat(options_.path.c_str(), &bound) == 0) inode_ = {bound.st_dev, bound.st_ino};
    error_code error;
    acceptor_.assign(stream_protocol(), listener->get(), error);
    if (error) return absl::InternalError("cannot watch the control socket: " + error.message());
    listener->Release();
    spare_ = OpenSpare();
    WaitForPeers();
    return absl::OkStatus();
  }

  void Stop() {
    stopped_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    // Close() takes the connection out of the map.
    while (!connections_.empty()) connections_.begin()->second->Close();
    struct stat now {};
    if (inode_ && lstat(options_.path.c_str(), &now) == 0 &&
        *inode_ == std::pair(now.st_dev, now.st_ino))
      unlink(options_.path.c_str());
    inode_.reset();
  }

  size_t connections() const { return connections_.size(); }
  size_t detached() const {
    return static_cast<size_t>(
        std::count_if(connections_.begin(), connections_.end(),
                      [](const auto& entry) { return entry.second->detached(); }));
  }

 private:
  class Connection : public std::enable_shared_from_this<Connection> {
   public:
    Connection(Impl& server, stream_protocol::socket socket, Peer peer)
        : server_(server),
          socket_(std::move(socket)),
          deadline_(server.io_),
          watch_timer_(server.io_),
          parser_(server.options_.max_frame_bytes),
          peer_(peer) {}

    ~Connection() {
      if (peer_.pidfd >= 0) close(peer_.pidfd);
    }

    void Begin() { Continue(); }

    bool detached() const { return detached_; }
    const Peer& peer() const { return peer_; }

    // Ends the connection, at once. Safe to call twice.
    void Close() {
      if (closed_) return;
      closed_ = true;
      error_code ignored;
      socket_.close(ignored);
      deadline_.cancel();
      watch_timer_.cancel();
      export_.reset();
      const auto self = shared_from_this();  // survives the next line
      server_.Forget(*this);
      if (!attached_ || server_.stopped_) return;
      // From the loop, so that a handler that is at work now is not entered again.
      asio::post(server_.io_, [self, server = server_.weak_from_this()] {
        if (const auto live = server.lock(); live && !live->stopped_)
          live->handler_.OnDropped(self->peer_);
      });
    }

   private:
    // What to do next: send what waits, else answer the next request, else wait for one.
    void Continue() {
      while (!closed_) {
        if (!out_.empty() && !Send()) return;  // waits for the peer, or has closed
        if (last_) return Close();
        if (export_) {
          if (!NextChunk()) return Close();
          continue;
        }
        if (watching_) {
          if (!parser_.half()) break;
          RejectAfterWatch();
          continue;
        }
        auto frame = parser_.Next();
        if (!frame.ok()) {
          Reject(v1::Error::BAD_REQUEST, std::string(frame.status().message()));
          continue;
        }
        if (!*frame) break;
        frame_began_.reset();
        Answer(**frame);
      }
      if (closed_) return;
      ArmDeadline();
      WaitForBytes();
    }

    // False: the rest waits until the socket takes more (Continue goes on then), or it is closed.
    bool Send() {
      while (sent_ < out_.size()) {
        const ssize_t n = send(socket_.native_handle(), out_.data() + sent_, out_.size() - sent_,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
          sent_ += static_cast<size_t>(n);
          write_began_.reset();
          continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN) {
          Close();
          return false;
        }
        if (!write_began_) write_began_ = Clock::now();
        ArmDeadline();
        if (!waiting_to_write_) {
          waiting_to_write_ = true;
          socket_.async_wait(stream_protocol::socket::wait_write,
                             [self = shared_from_this()](const error_code& error) {
                               self->waiting_to_write_ = false;
                               if (self->closed_) return;
                               if (error) return self->Close();
                               self->Continue();
                             });
        }
        return false;
      }
      out_.clear();
      if (out_.capacity() > kKeepBytes) out_.shrink_to_fit();
      sent_ = 0;
      write_began_.reset();
      return true;
    }

    void WaitForBytes() {
      if (waiting_to_read_) return;
      waiting_to_read_ = true;
      socket_.async_wait(stream_protocol::socket::wait_read,
                         [self = shared_from_this()](const error_code& error) {
                           self->waiting_to_read_ = false;
                           if (self->closed_) return;
                           if (error) return self->Close();
                           self->Read();
                         });
    }

    void Read() {
      // Armed before a Watch filled the socket's buffer: read nothing while answers wait, or a peer
      // that only writes would make the daemon hold what it says.
      if (!out_.empty()) return;
      std::array<char, 16384> buffer;
      const ssize_t n = recv(socket_.native_handle(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return WaitForBytes();
      if (n <= 0) return Close();
      heard_ = Clock::now();
      parser_.Feed({buffer.data(), static_cast<size_t>(n)});
      Continue();
    }

    // One timer for the three deadlines: the connection is always in just one of the states.
    void ArmDeadline() {
      const ControlOptions& options = server_.options_;
      std::optional<Clock::time_point> at;
      const char* what = "";
      if (write_began_) {
        at = *write_began_ + options.write_deadline;
        what = "does not read";
      } else if (parser_.half()) {
        if (!frame_began_) frame_began_ = Clock::now();
        at = *frame_began_ + options.frame_deadline;
        what = "sent half a frame and no more";
      } else {
        frame_began_.reset();
        if (!attached_ && !watching_) {
          at = heard_ + options.idle_deadline;
          what = "is silent";
        }
      }
      if (!at) {
        deadline_.cancel();
        return;
      }
      deadline_.expires_at(*at);
      deadline_.async_wait([self = shared_from_this(), what](const error_code& error) {
        if (error || self->closed_) return;
        // Expired, but moved meanwhile: the newer wait looks after it.
        if (Clock::now() < self->deadline_.expiry()) return;
        spdlog::debug("control: peer pid {} uid {} {}: closed", self->peer_.pid, self->peer_.uid,
                      what);
        self->Close();
      });
    }

    void Answer(const std::string& frame) {
      v1::Request request;
      if (!request.ParseFromString(frame)) {
        return Reject(v1::Error::BAD_REQUEST,
                      absl::StrCat("a frame of ", frame.size(), " bytes is not a Request"));
      }
      if (const absl::Status may =
              MayAsk(request.request_case(), peer_.uid, server_.options_.owner);
          !may.ok()) {
        return Respond(ErrorResponse(may));
      }
      Respond(Handle(request));
    }

    v1::Response Handle(const v1::Request& request) {
      ControlHandler& handler = server_.handler_;
      v1::Response response;
      switch (request.request_case()) {
        case v1::Request::kPing:
          response.mutable_done();
          return response;
        case v1::Request::kStatus:
          return Take(handler.OnStatus(peer_), response, &v1::Response::mutable_status);
        case v1::Request::kWatch:
          return BeginWatch(request.watch());
        case v1::Request::kExplain:
          return Take(handler.OnExplain(peer_, request.explain()), response,
                      &v1::Response::mutable_explanation);
        case v1::Request::kAttach:
          return Attach(request.attach());
        case v1::Request::kDetach: {
          if (!attached_)
            return ErrorResponse(v1::Error::BAD_REQUEST,
                                 "this connection has no lane to detach: Attach comes first");
          auto summary = handler.OnDetach(peer_, request.detach());
          if (summary.ok()) {
            attached_ = false;
            detached_ = true;
          }
          return Take(std::move(summary), response, &v1::Response::mutable_summary);
        }
        case v1::Request::kEnv:
          return Take(handler.OnEnv(peer_), response, &v1::Response::mutable_environment);
        case v1::Request::kReload:
          return Take(handler.OnReload(peer_), response);
        case v1::Request::kSet:
          if (request.set().lane() == 0 && peer_.uid != 0 && peer_.uid != server_.options_.owner)
            return ErrorResponse(
                v1::Error::NOT_ALLOWED,
                absl::StrCat("settings of the whole daemon belong to root and uid ",
                             server_.options_.owner, ", not to uid ", peer_.uid,
                             ": name a lane of your own"));
          return Take(handler.OnSet(peer_, request.set()), response);
        case v1::Request::kTrace: {
          auto paths = handler.OnTrace(peer_);
          if (!paths.ok()) return ErrorResponse(paths.status());
          auto opened = trace::Export::Open(*paths);
          if (!opened.ok()) return ErrorResponse(opened.status());
          export_ = std::make_unique<trace::Export>(std::move(*opened));
          return response;  // empty: the chunks follow
        }
        case v1::Request::REQUEST_NOT_SET:
          break;
      }
      return ErrorResponse(MayAsk(request.request_case(), peer_.uid, server_.options_.owner));
    }

    template <typename Message>
    static v1::Response Take(absl::StatusOr<Message> result, v1::Response& response,
                             Message* (v1::Response::*field)()) {
      if (!result.ok()) return ErrorResponse(result.status());
      *(response.*field)() = std::move(*result);
      return std::move(response);
    }
    static v1::Response Take(const absl::Status& result, v1::Response& response) {
      if (!result.ok()) return ErrorResponse(result);
      response.mutable_done();
      return std::move(response);
    }

    v1::Response Attach(const v1::AttachRequest& request) {
      if (attached_)
        return ErrorResponse(v1::Error::BAD_REQUEST,
                             "this connection has a lane already: one lane a connection");
      if (peer_.pid == 0)
        return ErrorResponse(v1::Error::NOT_ALLOWED,
                             "the peer lives in a pid namespace that the daemon cannot see: run a "
                             "daemon inside of the container");
      if (request.root().pid() != peer_.pid)
        return ErrorResponse(
            v1::Error::NOT_ALLOWED,
            absl::StrCat("pid ", request.root().pid(), " was named as the lane's root, but pid ",
                         peer_.pid,
                         " asks: a process can attach only itself (a container with "
                         "pids of its own needs a daemon inside of it)"));
      if (peer_.pidfd < 0) peer_.pidfd = PeerPidfd(socket_.native_handle(), peer_.pid).Release();
      auto attached = server_.handler_.OnAttach(peer_, request);
      attached_ = attached.ok();
      v1::Response response;
      return Take(std::move(attached), response, &v1::Response::mutable_attached);
    }

    v1::Response BeginWatch(const v1::WatchRequest& request) {
      const ControlOptions& options = server_.options_;
      const std::chrono::milliseconds asked(request.interval_ms() == 0 ? 1000
                                                                       : request.interval_ms());
      interval_ = std::clamp(asked, options.min_watch_interval, options.max_watch_interval);
      watching_ = true;
      ArmWatch();
      v1::Response response;
      return Take(server_.handler_.OnStatus(peer_), response, &v1::Response::mutable_status);
    }

    void RejectAfterWatch() {
      watching_ = false;
      watch_timer_.cancel();
      Reject(v1::Error::BAD_REQUEST,
             "nothing may follow a Watch on its connection: open another one");
    }

    void ArmWatch() {
      watch_timer_.expires_after(interval_);
      watch_timer_.async_wait([self = shared_from_this()](const error_code& error) {
        if (error || self->closed_ || !self->watching_) return;
        self->ArmWatch();
        // A slow reader gets fewer statuses, not older ones.
        if (!self->out_.empty()) return;
        v1::Response response;
        self->Respond(Take(self->server_.handler_.OnStatus(self->peer_), response,
                           &v1::Response::mutable_status));
        self->Continue();
      });
    }

    // False: nothing more can be said.
    bool NextChunk() {
      auto data = export_->Next(kTraceChunkBytes);
      if (!data.ok()) {
        export_.reset();
        Reject(v1::Error::FAILED, std::string(data.status().message()));
        return true;
      }
      v1::Response response;
      response.mutable_trace()->set_last(data->empty());
      if (data->empty()) export_.reset();
      response.mutable_trace()->set_data(std::move(*data));
      Respond(std::move(response));
      return true;
    }

    void Respond(v1::Response response) {
      if (closed_ || response.response_case() == v1::Response::RESPONSE_NOT_SET) return;
      MakeUtf8(response);
      if (const size_t size = response.ByteSizeLong(); size > server_.options_.max_frame_bytes) {
        response = ErrorResponse(
            v1::Error::FAILED,
            absl::StrCat("the answer has ", size, " bytes, more than a frame's limit of ",
                         server_.options_.max_frame_bytes, ": ask for less"));
      }
      AppendFrame(response, out_);
    }

    void Reject(v1::Error::Kind kind, std::string text) {
      spdlog::debug("control: peer pid {} uid {}: {}: closing", peer_.pid, peer_.uid, text);
      Respond(ErrorResponse(kind, std::move(text)));
      last_ = true;
    }

    static constexpr size_t kKeepBytes = 4096;

    Impl& server_;
    stream_protocol::socket socket_;
    asio::steady_timer deadline_;
    asio::steady_timer watch_timer_;
    FrameParser parser_;
    Peer peer_;
    std::string out_;
    size_t sent_ = 0;
    Clock::time_point heard_ = Clock::now();
    std::optional<Clock::time_point> frame_began_;
    std::optional<Clock::time_point> write_began_;  // of a wait without any progress
    std::chrono::milliseconds interval_{1000};
    std::unique_ptr<trace::Export> export_;
    bool waiting_to_read_ = false;
    bool waiting_to_write_ = false;
    bool attached_ = false;
    bool detached_ = false;
    bool watching_ = false;
    bool last_ = false;  // close when what waits is sent
    bool closed_ = false;
  };

  static Fd OpenSpare() { return Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

  void WaitForPeers() {
    acceptor_.async_wait(stream_protocol::acceptor::wait_read,
                         [self = shared_from_this()](const error_code& error) {
                           if (error || self->stopped_) return;
                           self->AcceptPeers();
                         });
  }

  void AcceptPeers() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      Fd fd(accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.get() >= 0) {
        Welcome(std::move(fd));
        continue;
      }
      switch (errno) {
        case EAGAIN:
          return WaitForPeers();
        case EINTR:
        case ECONNABORTED:
          continue;
        case EMFILE:
        case ENFILE:
          TurnAway();
          [[fallthrough]];
        default:
          Complain(errno);
          return Pause();
      }
    }
    WaitForPeers();
  }

  // The descriptor table is full: the spare one lets a waiting peer in and out again, so that it
  // learns at once that it won't be served and the listener doesn't stay readable for ever.
  void TurnAway() {
    const int error = errno;
    spare_.Reset();
    Fd(accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC)).Reset();
    spare_ = OpenSpare();
    errno = error;
  }

  // Once a minute: the trouble may last, and each second has ten tries.
  void Complain(int error) {
    const Clock::time_point now = Clock::now();
    if (complained_ && now < *complained_ + std::chrono::minutes(1)) return;
    complained_ = now;
    spdlog::warn("control: cannot accept a connection: {}", ErrnoText(error));
  }

  void Pause() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([self = shared_from_this()](const error_code& error) {
      if (error || self->stopped_) return;
      self->WaitForPeers();
    });
  }

  void Welcome(Fd fd) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return;
    Peer peer;
    peer.pid = credentials.pid;
    peer.uid = credentials.uid;
    peer.gid = credentials.gid;
    peer.connection = ++last_connection_;

    size_t& of_uid = per_uid_[peer.uid];
    const bool trusted = peer.uid == 0 || peer.uid == options_.owner;
    const size_t limit = options_.max_connections + (trusted ? kReservedConnections : 0);
    const bool crowded = connections_.size() >= limit;
    if (crowded || of_uid >= options_.max_connections_per_uid) {
      std::string frame;
      AppendFrame(
          ErrorResponse(v1::Error::BUSY,
                        crowded ? absl::StrCat("the daemon serves ", connections_.size(),
                                               " connections and takes no more: try again later")
                                : absl::StrCat("uid ", peer.uid, " has ", of_uid,
                                               " connections and may not have more: close some")),
          frame);
      // A fresh socket takes a small frame; where not, the end itself says enough.
      (void)send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (of_uid == 0) per_uid_.erase(peer.uid);
      return;
    }
    error_code error;
    stream_protocol::socket socket(io_);
    socket.assign(stream_protocol(), fd.get(), error);
    if (error) {
      if (of_uid == 0) per_uid_.erase(peer.uid);
      return;
    }
    fd.Release();
    ++of_uid;
    const auto connection = std::make_shared<Connection>(*this, std::move(socket), peer);
    connections_.emplace(peer.connection, connection);
    connection->Begin();
  }

  void Forget(const Connection& connection) {
    connections_.erase(connection.peer().connection);
    const auto found = per_uid_.find(connection.peer().uid);
    if (found != per_uid_.end() && --found->second == 0) per_uid_.erase(found);
  }

  asio::io_context& io_;
  ControlHandler& handler_;
  const ControlOptions options_;
  stream_protocol::acceptor acceptor_;
  asio::steady_timer pause_;
  Fd spare_;
  std::optional<std::pair<dev_t, ino_t>> inode_;
  std::map<uint64_t, std::shared_ptr<Connection>> connections_;
  std::map<uid_t, size_t> per_uid_;
  std::optional<Clock::time_point> complained_;
  uint64_t last_connection_ = 0;
  bool stopped_ = false;
};

ControlServer::ControlServer(asio::io_context& io, ControlHandler& handler, ControlOptions options)
    : impl_(std::make_shared<Impl>(io, handler, std::move(options))) {}

ControlServer::~ControlServer() {
  Stop();
}

absl::Status ControlServer::Start() {
  return impl_->Start();
}

void ControlServer::Stop() {
  impl_->Stop();
}

size_t ControlServer::connections() const {
  return impl_->connections();
}

size_t ControlServer::detached() const {
  return impl_->detached();
}

}  // namespace headroom::daemon
