#include "server/sys/peer.h"

#include <sys/socket.h>

#include <cerrno>

#include "server/sys/file.h"

namespace headroom::sys {

absl::StatusOr<PeerCredentials> ReadPeerCredentials(int socket_fd) {
  ucred credentials = {};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return ErrnoStatus(errno, "credentials of the peer");
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

}  // namespace headroom::sys
