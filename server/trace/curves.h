// Memory curves of a build's tool processes, out of its recorded trace: what `headroom run
// --curves` writes and what `headroom plan` and headroom-sim read (server/sim/curves.h has the
// format).
//
// A command is a job; its processes are those that ran to their end (an attempt that was evicted or
// killed is none), with anonymous memory over their own CPU time. Times are of the command as it
// would be without Headroom: what it stood waiting at the gate is left out.
//
// Pure. Threading: one thread.
#ifndef HEADROOM_SERVER_TRACE_CURVES_H_
#define HEADROOM_SERVER_TRACE_CURVES_H_

#include <absl/status/status.h>

#include <memory>
#include <string>

#include "headroom/v1/trace.pb.h"

namespace headroom::trace {

struct CurvesWritten {
  std::string text;  // JSON, a line for each command, in order of their starts
  int commands = 0;
  int processes = 0;
  // Never measured: too short for a sample, and without a gate.
  int left_out = 0;
  // False: the trace begins after the lane, or has a gap. Commands may be missing.
  bool complete = false;
};

class CurvesOfTrace {
 public:
  // Of the lane with that folder name; empty: of all lanes.
  explicit CurvesOfTrace(std::string lane_name);
  ~CurvesOfTrace();

  // Records in their order, segments and steps, as trace::Reader gives them. Error: InvalidArgument
  // for an event that can't be decoded; what came before it stays.
  absl::Status Add(const v1::TraceRecord& record);

  CurvesWritten Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::trace

#endif  // HEADROOM_SERVER_TRACE_CURVES_H_
