// Replays the corpus of sys's parsers, whole, cut off at every byte and garbled.
#include <catch2/catch.hpp>
#include <string>

#include "tests/fuzz/replay.h"
#include "tests/fuzz/sys_parsers.h"

namespace {

using headroom::testing::FeedCutOff;
using headroom::testing::FeedGarbled;
using headroom::testing::FeedWhole;
using headroom::testing::ReadCorpus;

constexpr const char* kCorpus = HEADROOM_SOURCE_DIR "/tests/fuzz/corpus/sys";

void Feed(const std::string& text) {
  // A broken promise aborts: the test's failure names it on stderr.
  REQUIRE(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size()) == 0);
}

TEST_CASE("every text of the corpus is borne by every parser") {
  FeedWhole(ReadCorpus(kCorpus), 30, Feed);
}

TEST_CASE("texts cut off anywhere are borne") {
  FeedCutOff(ReadCorpus(kCorpus), Feed);
}

TEST_CASE("garbled texts are borne") {
  FeedGarbled(ReadCorpus(kCorpus), 60, Feed);
}

}  // namespace
