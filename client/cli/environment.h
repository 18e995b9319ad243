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

// A variable's value; empty where there is none.
std::string Get(const Environment& env, const std::string& name);

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
  // For those who know no jobserver (parallel.h). Set only where the user set none.
  struct Parallel {
    unsigned max_jobs = 0;     // MAX_JOBS; 0: not set
    unsigned cmake_level = 0;  // CMAKE_BUILD_PARALLEL_LEVEL; 0: not set
    std::string nvcc_flags;    // added to NVCC_APPEND_FLAGS; empty: not
    friend bool operator==(const Parallel&, const Parallel&) = default;
  };
  Parallel parallel;
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

// The value of MAX_JOBS or CMAKE_BUILD_PARALLEL_LEVEL, if the user set it; empty counts as unset,
// as it does to those who read it. Not one that an outer lane set.
std::optional<std::string> UsersOwn(const Environment& base, const std::string& name);

// `base` with the changes.
Environment Apply(Environment base, const std::vector<Change>& changes);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_ENVIRONMENT_H_
