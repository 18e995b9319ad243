// The control socket's server: what `headroom status`, `run`, `env`, `explain`, ... talk to.
//
// Protocol: proto/headroom/v1/control.proto over a UNIX stream socket, each message with a varint
// length in front (server/daemon/frame.h); docs/protocol.md, section "Control socket", says who may
// ask for what. The server checks that, answers Ping and Watch itself and hands the rest to a
// ControlHandler.
//
// A peer that misbehaves ends its own connection and nothing else: frames are bounded, half a frame
// has a deadline, one request is answered before the next is read (so that what is queued for a
// peer is bounded), a peer that doesn't read has a deadline, connections are counted per uid, and a
// full descriptor table (EMFILE) turns new peers away instead of spinning.
//
// Threading: one thread, the io_context's. Ownership: the handler and the io_context outlive the
// server.
#ifndef HEADROOM_SERVER_DAEMON_CONTROL_SERVER_H_
#define HEADROOM_SERVER_DAEMON_CONTROL_SERVER_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headroom/v1/control.pb.h"

namespace headroom::daemon {

// Who is at the other end, as the kernel says (SO_PEERCRED, unix(7)): the credentials at the time
// of connect(2).
struct Peer {
  // 0: the peer is in a pid namespace that the daemon can't see.
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  // Names this connection; never reused while the daemon lives.
  uint64_t connection = 0;
  // From Attach on: a descriptor of the peer's process, which can't be mistaken for a later one
  // with the same pid, or -1 (kernel before 5.3, or the process is gone). Owned by the server, open
  // until OnDropped has returned; duplicate it to keep it.
  int pidfd = -1;
};

// What the daemon does on a request. Called on the io_context's thread; must not block. An error's
// code becomes the response's Error.Kind (ToErrorKind), its text is shown to people as it is: it
// names the thing, the value and the remedy.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;

  // As the peer may see it. Also called for every period of a Watch.
  virtual absl::StatusOr<v1::Status> OnStatus(const Peer& peer) = 0;
  virtual absl::StatusOr<v1::Explanation> OnExplain(const Peer& peer,
                                                    const v1::ExplainRequest& request) = 0;
  // `request.root.pid` has been checked to be the peer. At most one lane a connection: the server
  // refuses a second Attach before the Detach of the first.
  virtual absl::StatusOr<v1::Attached> OnAttach(const Peer& peer,
                                                const v1::AttachRequest& request) = 0;
  // Only for a connection that has attached.
  virtual absl::StatusOr<v1::LaneSummary> OnDetach(const Peer& peer,
                                                   const v1::DetachRequest& request) = 0;
  virtual absl::StatusOr<v1::Environment> OnEnv(const Peer& peer) = 0;
  // The peer has been checked to be the daemon's owner or root.
  virtual absl::Status OnReload(const Peer& peer) = 0;
  // For lane 0 the peer has been checked to be the daemon's owner or root; whether it owns the
  // named lane is for the handler to check (it knows the lanes).
  virtual absl::Status OnSet(const Peer& peer, const v1::SetRequest& request) = 0;
  // Flushes the recorder and names its segments, oldest first; the server opens and streams them.
  // The peer has been checked to be the daemon's owner or root.
  virtual absl::StatusOr<std::vector<std::string>> OnTrace(const Peer& peer) = 0;
  // A connection that had attached a lane and not detached it is gone (closed, killed, or thrown
  // out). Not called from within another On... of the same connection, nor by Stop().
  virtual void OnDropped(const Peer& peer) = 0;
};

struct ControlOptions {
  std::string path;
  // Of the socket file: 0666 for the system's daemon (who may ask for what is checked per request),
  // 0600 for a user's own.
  mode_t mode = 0600;
  // The daemon's owner.
  uid_t owner = 0;
  size_t max_frame_bytes = size_t{1} << 20;
  // A `headroom run` holds one connection for its whole build, so a user with many small builds at
  // once needs many; 256 is far above what a host can build and far below RLIMIT_NOFILE.
  size_t max_connections_per_uid = 256;
  size_t max_connections = 1024;
  // Half a frame may stay half for so long. A peer on this host writes a frame at once.
  std::chrono::milliseconds frame_deadline{5'000};
  // A connection without a lane and without a Watch may stay silent for so long.
  std::chrono::milliseconds idle_deadline{60'000};
  // A peer that takes nothing of what waits for it for so long has stopped reading.
  std::chrono::milliseconds write_deadline{10'000};
  std::chrono::milliseconds min_watch_interval{100};
  std::chrono::milliseconds max_watch_interval{3'600'000};
};

// Whether a peer with `uid` may ask for this at a daemon of `owner`; the error says who may.
absl::Status MayAsk(v1::Request::RequestCase request, uid_t uid, uid_t owner);

v1::Error::Kind ToErrorKind(absl::StatusCode code);

class ControlServer {
 public:
  ControlServer(boost::asio::io_context& io, ControlHandler& handler, ControlOptions options);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // Binds and listens. A socket file at the path on which nobody answers is replaced; one on which
  // somebody answers is AlreadyExists. The caller holds the daemon's lock, so no two daemons race
  // here. FailedPrecondition: the path is too long for a socket, or is not a socket.
  absl::Status Start();

  // Closes everything and removes the socket file if it is still this server's. Safe to call twice.
  void Stop();

  size_t connections() const;
  // Of them, those that have detached a lane: their builds are over, and they may still fetch the
  // trace.
  size_t detached() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_CONTROL_SERVER_H_
