// Replays the corpus of the reader of build files, whole, cut off at every byte and garbled.
#include <catch2/catch.hpp>
#include <string>

#include "tests/fuzz/hints.h"
#include "tests/fuzz/replay.h"

namespace {

using headroom::testing::FeedCutOff;
using headroom::testing::FeedGarbled;
using headroom::testing::FeedWhole;
using headroom::testing::ReadCorpus;

constexpr const char* kCorpus = HEADROOM_SOURCE_DIR "/tests/fuzz/corpus/hints";

void Feed(const std::string& text) {
  // A broken promise aborts: the test's failure names it on stderr.
  REQUIRE(FuzzHints(reinterpret_cast<const uint8_t*>(text.data()), text.size()) == 0);
}

TEST_CASE("every build file of the corpus is borne") {
  FeedWhole(ReadCorpus(kCorpus), 2, Feed);
}

TEST_CASE("build files cut off anywhere are borne") {
  FeedCutOff(ReadCorpus(kCorpus), Feed);
}

TEST_CASE("garbled build files are borne") {
  FeedGarbled(ReadCorpus(kCorpus), 400, Feed);
}

}  // namespace
