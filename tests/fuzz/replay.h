// What the tests of corpora share: reading one, and feeding it whole, cut off at every byte and
// garbled. Seeds are fixed.
#ifndef HEADROOM_TESTS_FUZZ_REPLAY_H_
#define HEADROOM_TESTS_FUZZ_REPLAY_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace headroom::testing {

// Names and contents of a corpus, by name.
using Corpus = std::vector<std::pair<std::string, std::string>>;
Corpus ReadCorpus(const std::string& folder);

// Each calls `feed` with one input after the other, within a test case.
using Feed = std::function<void(const std::string&)>;
// At least `least` inputs, none of them empty, and the empty one.
void FeedWhole(const Corpus& corpus, size_t least, const Feed& feed);
void FeedCutOff(const Corpus& corpus, const Feed& feed);
// Each input that many times, with up to 8 changes.
void FeedGarbled(const Corpus& corpus, int rounds, const Feed& feed);

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_FUZZ_REPLAY_H_
