// The environment that makes a build's programs members of a lane, worked out from the one that
// there is. Pure: values in, changes out.
//
// What is set, and why, is in docs/clients.md. Rules: what the user set stays (flags, variables, a
// -j as a cap); what belongs to another jobserver is replaced and said; doing it twice is the same
// as once; what `headroom env` set can be undone.
#ifndef HEADROOM_CLIENT_CLI_ENVIRONMENT_H_
#define HEADROOM_CLIENT_CLI_ENVIRONMENT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/makeflags.h"

namespace headroom::cli {

using Environment = std::map<std::string, std::string>;

// From the strings of environ(7).
Environment ReadEnvironment(char** environ);

struct Change {
  std::string name;
  std::optional<std::string> value;  // unset: the variable goes
  friend bool operator==(const Change&, const Change&) = default;
};

struct LaneFacts {
  std::string dir;
  unsigned cores = 1;
  JobserverStyle style = JobserverStyle::kFifo;
  int fd = -1;          // for the descriptor styles
  std::string preload;  // path of libheadroom.so; empty: there is none
  bool gate = true;
};

struct LaneEnvironment {
  std::vector<Change> changes;     // in the order in which they are best read
  std::vector<std::string> notes;  // sentences for the user
};

// For the processes of a lane.
LaneEnvironment PlanEnvironment(const Environment& base, const LaneFacts& lane);

// As PlanEnvironment, but for a shell that goes on living: also keeps what was there before in
// HEADROOM_SAVED_..., for UndoEnvironment.
LaneEnvironment PlanExport(const Environment& base, const LaneFacts& lane);

// What takes a shell back to where it was before PlanExport. Only what is there is touched.
std::vector<Change> UndoEnvironment(const Environment& base);

// The user's own -j in MAKEFLAGS or GNUMAKEFLAGS, where it is no other jobserver's: a cap on the
// jobs of the lane.
std::optional<int> CapFromEnvironment(const Environment& base);

// `base` with the changes.
Environment Apply(Environment base, const std::vector<Change>& changes);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_ENVIRONMENT_H_
