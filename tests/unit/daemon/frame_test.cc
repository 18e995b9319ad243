#include "server/daemon/frame.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "headroom/v1/control.pb.h"
#include "server/daemon/utf8.h"

using namespace headroom;
using daemon::FrameParser;

namespace {

std::string Frame(const std::string& text) {
  v1::Error error;
  error.set_text(text);
  std::string out;
  daemon::AppendFrame(error, out);
  return out;
}

std::vector<std::string> All(FrameParser& parser) {
  std::vector<std::string> texts;
  for (;;) {
    auto frame = parser.Next();
    REQUIRE(frame.ok());
    if (!*frame) return texts;
    v1::Error error;
    REQUIRE(error.ParseFromString(**frame));
    texts.push_back(error.text());
  }
}

}  // namespace

TEST_CASE("frames come out as they went in, in whatever pieces") {
  const std::vector<std::string> texts = {"", "a", std::string(127, 'b'), std::string(128, 'c'),
                                          std::string(20'000, 'd')};
  std::string bytes;
  for (const std::string& text : texts) bytes += Frame(text);
  std::mt19937_64 rng(1);
  for (int round = 0; round < 50; ++round) {
    FrameParser parser;
    std::vector<std::string> got;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min<size_t>(1 + rng() % (round < 5 ? 3 : 3000), bytes.size() - at);
      parser.Feed(std::string_view(bytes).substr(at, n));
      at += n;
      for (std::string& text : All(parser)) got.push_back(std::move(text));
    }
    CHECK(got == texts);
    CHECK_FALSE(parser.half());
  }
}

TEST_CASE("an unfinished frame is known as such") {
  FrameParser parser;
  CHECK_FALSE(parser.half());
  parser.Feed("\x05");
  CHECK(All(parser).empty());
  CHECK(parser.half());
  parser.Feed(
      std::string("\x12\x03"
                  "abc",
                  5));
  CHECK(All(parser) == std::vector<std::string>{"abc"});
  CHECK_FALSE(parser.half());
}

TEST_CASE("lengths above the limit are refused before the bytes are there, for good") {
  for (const std::string& length :
       {std::string("\x0b"), std::string("\xff\xff\xff\xff\x0f"), std::string(9, '\x80')}) {
    FrameParser parser(10);
    parser.Feed(length);
    CHECK_FALSE(parser.Next().ok());
    parser.Feed(Frame(""));
    CHECK_FALSE(parser.Next().ok());
  }
  FrameParser parser(10);
  parser.Feed(std::string(1, '\x0a') + std::string(10, '\0'));
  const auto frame = parser.Next();
  REQUIRE(frame.ok());
  REQUIRE(*frame);
  CHECK((*frame)->size() == 10);
}

TEST_CASE("only what is UTF-8 stays as it is") {
  const auto same = [](const std::string& text) { return daemon::ToUtf8(text) == text; };
  CHECK(same(""));
  CHECK(same("plain"));
  CHECK(same("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"));
  CHECK(same("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"));
  const std::string r = "\xef\xbf\xbd";
  CHECK(daemon::ToUtf8("\xff") == r);
  CHECK(daemon::ToUtf8("a\x80z") == "a" + r + "z");
  CHECK(daemon::ToUtf8("\xc0\xaf") == r + r);          // overlong
  CHECK(daemon::ToUtf8("\xe0\x80\xaf") == r + r + r);  // overlong
  CHECK(daemon::ToUtf8("\xed\xa0\x80") == r + r + r);  // a surrogate
  CHECK(daemon::ToUtf8("\xf4\x90\x80\x80") == r + r + r + r);
  CHECK(daemon::ToUtf8("\xe2\x82") == r + r);  // cut off
  CHECK(daemon::ToUtf8("\xe2\x82z") == r + r + "z");

  // What comes out is what protobuf takes, whatever went in.
  std::mt19937_64 rng(2);
  for (int i = 0; i < 3000; ++i) {
    std::string noise(rng() % 12, '\0');
    for (char& byte : noise) byte = static_cast<char>(rng());
    v1::Decision decision;
    decision.set_source(noise);
    (*decision.mutable_inputs())[noise] = 1;
    v1::Explanation explanation;
    *explanation.add_decisions() = decision;
    daemon::MakeUtf8(explanation);
    v1::Explanation back;
    REQUIRE(back.ParseFromString(explanation.SerializeAsString()));
    REQUIRE(back.decisions(0).source() == daemon::ToUtf8(noise));
  }
}
