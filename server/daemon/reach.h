// Whether a process is in the preload library's reach: whether it will stop at the gate by itself.
//
// Out of reach are static programs and those of another C library (the loader that would load the
// library isn't there), and those that were started without our environment (env -i, a sandbox).
#ifndef HEADROOM_SERVER_DAEMON_REACH_H_
#define HEADROOM_SERVER_DAEMON_REACH_H_

#include <sys/types.h>

#include "server/sys/roots.h"

namespace headroom::daemon {

enum class Reach {
  kUnknown,   // gone, or not ours to look into
  kInside,    // it has the library, or its loader will load it
  kOptedOut,  // HEADROOM_GATE=0: the user's wish
  kOutside,
};

// Some 30 us: three small files.
Reach ReadReach(const sys::Roots& roots, pid_t pid);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_REACH_H_
