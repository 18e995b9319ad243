// The policy's values as proto/headroom/v1/trace.proto has them, and back. Nothing is lost: a value
// that went there and back compares equal (tested with random values in every field).
//
// Events and actions are messages with a name and number for every field. The State is written by
// its own structure, field after field, so that a field added to it can't be forgotten here; fields
// may be added at the end of a struct, older recordings then read as the default there.
//
// Pure; thread-compatible. Errors: InvalidArgument with what does not fit; hostile input gives
// errors, never undefined behaviour.
#ifndef HEADROOM_SERVER_TRACE_CODEC_H_
#define HEADROOM_SERVER_TRACE_CODEC_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <string_view>

#include "headroom/v1/trace.pb.h"
#include "server/policy/action.h"
#include "server/policy/event.h"
#include "server/policy/state.h"

namespace headroom::trace {

// `out` is cleared first and may be reused: it keeps its memory.
void EncodeEvent(const policy::Event& event, v1::TraceEvent& out);
absl::StatusOr<policy::Event> DecodeEvent(const v1::TraceEvent& in);

void EncodeAction(const policy::Action& action, v1::TraceAction& out);
absl::StatusOr<policy::Action> DecodeAction(const v1::TraceAction& in);

std::string EncodeState(const policy::State& state);
absl::StatusOr<policy::State> DecodeState(std::string_view bytes);

// Names the structure of State: bytes of a State of another structure may not read fully.
std::string StateLayout();

}  // namespace headroom::trace

#endif  // HEADROOM_SERVER_TRACE_CODEC_H_
