#include "tests/fuzz/replay.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace headroom::testing {

Corpus ReadCorpus(const std::string& folder) {
  Corpus corpus;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(file.path(), std::ios::binary);
    corpus.emplace_back(file.path().filename().string(),
                        std::string(std::istreambuf_iterator<char>(in), {}));
  }
  std::sort(corpus.begin(), corpus.end());
  return corpus;
}

void FeedWhole(const Corpus& corpus, size_t least, const Feed& feed) {
  REQUIRE(corpus.size() >= least);
  for (const auto& [name, text] : corpus) {
    INFO(name);
    REQUIRE_FALSE(text.empty());
    feed(text);
  }
  feed("");
}

void FeedCutOff(const Corpus& corpus, const Feed& feed) {
  for (const auto& [name, text] : corpus) {
    INFO(name);
    // Every byte of the short ones; of the long ones every one near the start, then in strides.
    for (size_t size = 0; size < text.size(); size += size < 300 ? 1 : 37) {
      feed(text.substr(0, size));
      feed(text.substr(text.size() - size));
    }
  }
}

void FeedGarbled(const Corpus& corpus, int rounds, const Feed& feed) {
  std::mt19937 random(20261201);
  const auto pick = [&random](size_t below) { return random() % below; };
  const std::string special = std::string("\0\n\t ():,-=/\\\xff", 13) + "0918";
  for (const auto& [name, text] : corpus) {
    INFO(name);
    for (int round = 0; round < rounds; ++round) {
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
      feed(garbled);
    }
  }
}

}  // namespace headroom::testing
