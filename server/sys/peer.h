// Who is at the other end of a UNIX socket (SO_PEERCRED, unix(7)): as of its connect(2).
#ifndef HEADROOM_SERVER_SYS_PEER_H_
#define HEADROOM_SERVER_SYS_PEER_H_

#include <sys/types.h>

#include "absl/status/statusor.h"

namespace headroom::sys {

struct PeerCredentials {
  pid_t pid = 0;  // 0: of a pid namespace that we can't see
  uid_t uid = 0;
  gid_t gid = 0;
};
absl::StatusOr<PeerCredentials> ReadPeerCredentials(int socket_fd);

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_PEER_H_
