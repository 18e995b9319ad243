#include "server/daemon/frame.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <google/protobuf/io/coded_stream.h>

#include <cstdint>

namespace headroom::daemon {
namespace {

// A length up to 2^32 has at most 5 bytes of 7 bits; what is longer is above any limit.
constexpr size_t kMaxLengthBytes = 5;

// A connection that once carried a large frame must not hold its memory for ever.
constexpr size_t kKeepBytes = 4096;

}  // namespace

void FrameParser::Feed(std::string_view bytes) {
  if (at_ > 0) {
    buffer_.erase(0, at_);
    at_ = 0;
  }
  buffer_.append(bytes);
}

absl::StatusOr<std::optional<std::string>> FrameParser::Next() {
  if (!broken_.ok()) return broken_;
  uint64_t length = 0;
  size_t used = 0;
  for (;; ++used) {
    if (used == kMaxLengthBytes) {
      broken_ = absl::InvalidArgumentError(
          "the length in front of a frame is not a varint of at most 5 bytes: is this the "
          "program's own protocol?");
      return broken_;
    }
    if (at_ + used == buffer_.size()) return std::nullopt;
    const auto byte = static_cast<uint8_t>(buffer_[at_ + used]);
    length |= uint64_t{byte & 0x7fU} << (7 * used);
    if ((byte & 0x80U) == 0) break;
  }
  ++used;
  if (length > max_bytes_) {
    broken_ = absl::InvalidArgumentError(absl::StrCat(
        "a frame of ", length, " bytes is larger than the limit of ", max_bytes_, " bytes"));
    return broken_;
  }
  if (buffer_.size() - at_ - used < length) return std::nullopt;
  std::string frame = buffer_.substr(at_ + used, length);
  at_ += used + length;
  if (at_ == buffer_.size()) {
    buffer_.clear();
    if (buffer_.capacity() > kKeepBytes) buffer_.shrink_to_fit();
    at_ = 0;
  }
  return frame;
}

void AppendFrame(const google::protobuf::MessageLite& message, std::string& out) {
  using google::protobuf::io::CodedOutputStream;
  const size_t size = message.ByteSizeLong();
  const size_t header = CodedOutputStream::VarintSize32(static_cast<uint32_t>(size));
  const size_t begin = out.size();
  out.resize(begin + header + size);
  auto* to = reinterpret_cast<uint8_t*>(out.data()) + begin;
  to = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(size), to);
  message.SerializeWithCachedSizesToArray(to);
}

}  // namespace headroom::daemon
