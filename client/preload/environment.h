// What the environment tells the library, found in one pass.
#ifndef HEADROOM_CLIENT_PRELOAD_ENVIRONMENT_H_
#define HEADROOM_CLIENT_PRELOAD_ENVIRONMENT_H_

#include "client/preload/text.h"

namespace headroom::preload {

struct Environment {
  View lane;                   // HEADROOM_LANE; empty: unset
  View gate;                   // HEADROOM_GATE
  View tools;                  // HEADROOM_TOOLS
  View cores;                  // HEADROOM_CORES
  View collect;                // COLLECT_GCC_OPTIONS: what a gcc driver tells its link
  char** makeflags = nullptr;  // the entry "MAKEFLAGS=..." itself, to be replaced
  bool empty() const { return lane.empty() && makeflags == nullptr; }
};

// `entries`: "NAME=value" texts, ended by null; null itself is an empty one.
Environment ReadEnvironment(char** entries);

}  // namespace headroom::preload

#endif  // HEADROOM_CLIENT_PRELOAD_ENVIRONMENT_H_
