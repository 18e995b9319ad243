#include "tests/fuzz/control_frames.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/v1/control.pb.h"
#include "server/daemon/frame.h"
#include "server/daemon/utf8.h"

namespace headroom::testing {
namespace {

constexpr size_t kMaxBytes = 300;  // small, so that short inputs reach the limit

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

struct Parsed {
  std::vector<std::string> frames;
  bool broken = false;
  bool half = false;
};

Parsed Parse(std::string_view bytes, size_t piece) {
  daemon::FrameParser parser(kMaxBytes);
  Parsed parsed;
  while (!bytes.empty() && !parsed.broken) {
    const std::string_view now = bytes.substr(0, piece);
    bytes.remove_prefix(now.size());
    parser.Feed(now);
    for (;;) {
      const auto frame = parser.Next();
      if (!frame.ok()) {
        parsed.broken = true;
        Require(!parser.Next().ok(), "an error is final");
        break;
      }
      if (!*frame) break;
      Require((*frame)->size() <= kMaxBytes, "no frame is above the limit");
      parsed.frames.push_back(**frame);
    }
  }
  parsed.half = parser.half();
  return parsed;
}

}  // namespace

int FuzzControlFrames(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Parsed whole = Parse(bytes, std::max<size_t>(bytes.size(), 1));
  const Parsed pieces = Parse(bytes, size_t{1} + data[0] % 16);
  Require(whole.frames == pieces.frames, "pieces don't matter");
  Require(whole.broken == pieces.broken, "pieces don't matter for errors");
  if (!whole.broken) Require(whole.half == pieces.half, "pieces don't matter for what is left");

  for (const std::string& frame : whole.frames) {
    v1::Request request;
    if (!request.ParseFromString(frame)) continue;
    // What comes back out as a frame is the same request.
    std::string again;
    daemon::AppendFrame(request, again);
    daemon::FrameParser parser(2 * kMaxBytes);
    parser.Feed(again);
    const auto back = parser.Next();
    Require(back.ok() && *back, "what was framed is a frame");
    v1::Request second;
    Require(second.ParseFromString(**back), "what was framed parses");
    // And an answer with its bytes in it is one that parses.
    v1::Response response;
    response.mutable_error()->set_text(frame);
    daemon::MakeUtf8(response);
    v1::Response third;
    Require(third.ParseFromString(response.SerializeAsString()), "answers are UTF-8");
  }
  return 0;
}

}  // namespace headroom::testing

#ifdef HEADROOM_FUZZ_MAIN
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return headroom::testing::FuzzControlFrames(data, size);
}
#endif
