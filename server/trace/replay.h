// Runs recorded events through Step again and compares what it answers with what it answered then.
// Step is pure, so on the same build all actions are identical; a difference is a fault in the
// policy (something outside the event reached it), in the codec, or another version of the policy.
#ifndef HEADROOM_SERVER_TRACE_REPLAY_H_
#define HEADROOM_SERVER_TRACE_REPLAY_H_

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/trace/reader.h"

namespace headroom::trace {

struct Difference {
  uint64_t segment = 0;  // which of the file, from 0
  uint64_t step = 0;     // which of the segment, from 0
  uint64_t offset = 0;   // where the record begins in the file, bytes
  std::string text;      // the event, the recorded actions and the ones of now
};

struct ReplayResult {
  uint64_t segments = 0;
  uint64_t steps = 0;
  uint64_t actions = 0;
  bool torn = false;
  // At the first one replay ends.
  std::optional<Difference> difference;
  // Other versions may rightly differ: of the programs that recorded what was read.
  std::string versions;
};

class Replayer {
 public:
  Replayer();
  ~Replayer();

  // Every segment from its own snapshot; where a segment follows right on another of the same run,
  // the state that replay has reached must equal its snapshot as well. Files of one ring go in one
  // after the other, oldest first. Errors: a snapshot or an event that can't be decoded (another
  // layout of State), with its place.
  absl::StatusOr<ReplayResult> Run(Reader& reader);

 private:
  struct Position;
  std::unique_ptr<Position> position_;
};

}  // namespace headroom::trace

#endif  // HEADROOM_SERVER_TRACE_REPLAY_H_
