// Replays the corpus of the reader of build files, whole, cut off at every byte and garbled. Seeds
// are fixed.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/hints.h"

namespace {

std::vector<std::pair<std::string, std::string>> Corpus() {
  std::vector<std::pair<std::string, std::string>> corpus;
  const std::filesystem::path folder = HEADROOM_SOURCE_DIR "/tests/fuzz/corpus/hints";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(file.path(), std::ios::binary);
    corpus.emplace_back(file.path().filename().string(),
                        std::string(std::istreambuf_iterator<char>(in), {}));
  }
  std::sort(corpus.begin(), corpus.end());
  return corpus;
}

void Feed(const std::string& text) {
  // A broken promise aborts: the test's failure names it on stderr.
  REQUIRE(FuzzHints(reinterpret_cast<const uint8_t*>(text.data()), text.size()) == 0);
}

TEST_CASE("every build file of the corpus is borne") {
  const auto corpus = Corpus();
  REQUIRE(corpus.size() >= 2);
  for (const auto& [name, text] : corpus) {
    INFO(name);
    REQUIRE_FALSE(text.empty());
    Feed(text);
  }
  Feed("");
}

TEST_CASE("build files cut off anywhere are borne") {
  for (const auto& [name, text] : Corpus()) {
    INFO(name);
    // Every byte of the short ones; of the long ones every one near the start, then in strides.
    for (size_t size = 0; size < text.size(); size += size < 300 ? 1 : 37) {
      Feed(text.substr(0, size));
      Feed(text.substr(text.size() - size));
    }
  }
}

TEST_CASE("garbled build files are borne") {
  std::mt19937 random(20261201);
  const auto pick = [&random](size_t below) { return random() % below; };
  const std::string special = std::string("\0\n\t ():,-=/\\\xff", 13) + "0918";
  for (const auto& [name, text] : Corpus()) {
    INFO(name);
    for (int round = 0; round < 400; ++round) {
      std::string garbled = text;
      for (size_t change = 0, count = 1 + pick(8); change < count && !garbled.empty(); ++change) {
        const size_t at = pick(garbled.size());
        switch (pick(5)) {
          case 0:  // another byte
            garbled[at] = static_cast<char>(pick(256));
            break;
          case 1:  // one that means something
            garbled[at] = special[pick(special.size())];
            break;
          case 2:  // a part left out
            garbled.erase(at, 1 + pick(16));
            break;
          case 3:  // a part twice
            garbled.insert(at, garbled.substr(pick(garbled.size()), 1 + pick(32)));
            break;
          case 4:  // a number too large for any type
            garbled.insert(at, "99999999999999999999999");
            break;
        }
      }
      Feed(garbled);
    }
  }
}

}  // namespace
