// How many jobs the tools that know no jobserver are told, and what nvcc is told. Pure.
//
// Who reads them, and what happens where they are missing:
//   MAX_JOBS   torch's cpp_extension (ninja -jN, if it is all digits), flash-attn (works out a
//              number of its own from cores and memory where it is unset or empty: half the cores
//              at most), vLLM (int() of it, divided by NVCC_THREADS), pytorch, many a Makefile
//              ("make -j$MAX_JOBS", which stops at anything but digits).
//   CMAKE_BUILD_PARALLEL_LEVEL   cmake --build, and with it scikit-build-core and pip.
//   NVCC_APPEND_FLAGS            nvcc, after its other arguments.
#ifndef HEADROOM_CLIENT_CLI_PARALLEL_H_
#define HEADROOM_CLIENT_CLI_PARALLEL_H_

#include <optional>
#include <string>
#include <vector>

#include "client/cli/environment.h"
#include "client/cli/tool_version.h"

namespace headroom::cli {

struct ParallelFacts {
  bool gated = false;            // the gate holds this build's compilers
  bool careful = false;          // without a daemon: jobs are few, and fixed
  bool jobs_given = false;       // by --jobs or the user's MAKEFLAGS
  unsigned jobs = 1;             // of the lane
  bool fifo = true;              // tokens are told of by path, so that they reach nvcc
  std::optional<Version> ninja;  // of PATH
  std::optional<Version> nvcc;   // of PATH
};

// MAX_JOBS, under the gate: plain digits, twice the lane's jobs. Those that wait at the gate take
// no core, and light commands go on past them; and what divides the number by NVCC_THREADS still
// has some left. What the user asked for as most jobs is told as it is. Not without the gate: it
// would become a -jN that takes ninja out of the jobserver, with nothing left to hold it; there
// are values that int() takes and isdigit() doesn't ("+8"), but make -j stops at them.
//
// CMAKE_BUILD_PARALLEL_LEVEL, under the gate and only where the ninja of PATH takes no tokens:
// others would be taken out of the jobserver, which one build of several cmake --build's (as
// ExternalProject makes them) needs to stay at N jobs instead of N squared.
//
// NVCC_APPEND_FLAGS, only without the gate, which counts cicc and ptxas one by one: `nvcc
// --threads 4` is four compilers on one token. nvcc >= 13 is told to take tokens for them, an
// older one to run them one after the other.
LaneFacts::Parallel PlanParallel(const ParallelFacts& facts);

// What the user's own MAX_JOBS and CMAKE_BUILD_PARALLEL_LEVEL mean, a sentence each.
std::vector<std::string> NotesOnCaps(const Environment& base);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_PARALLEL_H_
