// Frames of the control socket: a message with its length in front as a varint, which is protobuf's
// delimited form. Used by both ends.
//
// The parser takes bytes as they come from the socket, in any pieces, and never holds more than one
// frame and what was fed at once. Pure; one thread a parser.
#ifndef HEADROOM_SERVER_DAEMON_FRAME_H_
#define HEADROOM_SERVER_DAEMON_FRAME_H_

#include <absl/status/statusor.h>
#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::daemon {

// The largest frame that either side accepts. A status with thousands of jobs is some 100 KiB.
inline constexpr size_t kMaxFrameBytes = size_t{1} << 20;

class FrameParser {
 public:
  explicit FrameParser(size_t max_bytes = kMaxFrameBytes) : max_bytes_(max_bytes) {}

  void Feed(std::string_view bytes);

  // The next whole frame without its length; unset: feed more. An error (a length above the limit
  // or not a varint) is final: where the next frame would begin is unknown.
  absl::StatusOr<std::optional<std::string>> Next();

  // Bytes of an unfinished frame are waiting. False right after a frame's end.
  bool half() const { return at_ < buffer_.size(); }

 private:
  size_t max_bytes_;
  std::string buffer_;
  size_t at_ = 0;  // where the next frame begins in buffer_
  absl::Status broken_;
};

// Appends the message as a frame. The caller keeps messages below kMaxFrameBytes.
void AppendFrame(const google::protobuf::MessageLite& message, std::string& out);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_FRAME_H_
