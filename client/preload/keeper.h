// The gate: holds a tool process before its main() until the daemon (or, without one, the lane's
// own rule) admits it; splits it into a worker that goes on and a keeper that waits for it.
#ifndef HEADROOM_CLIENT_PRELOAD_KEEPER_H_
#define HEADROOM_CLIENT_PRELOAD_KEEPER_H_

#include "client/preload/environment.h"
#include "client/preload/tools.h"

namespace headroom::preload {

// Returns in the process that goes on to main(): the worker, or the process itself where it passes
// through. In the keeper it does not return: that ends as its worker ends.
void PassGate(const Environment& environment, const Tool& tool);

}  // namespace headroom::preload

#endif  // HEADROOM_CLIENT_PRELOAD_KEEPER_H_
