// Replays the corpus of the control socket's frames, whole, cut off at every byte and garbled, and
// makes up more from real requests. Seeds are fixed.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "headroom/v1/control.pb.h"
#include "server/daemon/frame.h"
#include "tests/fuzz/control_frames.h"

namespace {

using namespace headroom;

std::vector<std::string> Corpus() {
  std::vector<std::string> corpus;
  const std::filesystem::path folder = HEADROOM_SOURCE_DIR "/tests/fuzz/corpus/control";
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(file.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::sort(corpus.begin(), corpus.end());
  return corpus;
}

void Feed(const std::string& input) {
  REQUIRE(testing::FuzzControlFrames(reinterpret_cast<const uint8_t*>(input.data()),
                                     input.size()) == 0);
}

// Every kind of request, with the piece's size in front.
std::vector<std::string> Requests() {
  std::vector<v1::Request> requests(10);
  requests[0].mutable_status();
  requests[1].mutable_watch()->set_interval_ms(100);
  requests[2].mutable_explain()->set_last(7);
  auto* attach = requests[3].mutable_attach();
  attach->mutable_root()->set_pid(42);
  attach->mutable_reserve()->set_permyriad(500);
  attach->set_cwd("/home/\xff/build");
  attach->add_argv("ninja");
  attach->add_argv(std::string(150, '\xe9'));
  requests[4].mutable_detach()->set_exit_code(-1);
  requests[5].mutable_env();
  requests[6].mutable_reload();
  requests[7].mutable_set()->set_jobs(3);
  requests[8].mutable_trace();
  requests[9].mutable_ping();
  std::vector<std::string> inputs;
  std::string all(1, '\x03');
  for (const v1::Request& request : requests) {
    std::string input(1, '\x01');
    daemon::AppendFrame(request, input);
    daemon::AppendFrame(request, all);
    inputs.push_back(input);
  }
  inputs.push_back(all);
  return inputs;
}

}  // namespace

TEST_CASE("every input of the corpus is borne, whole, cut off and garbled") {
  google::protobuf::LogSilencer silence;
  std::vector<std::string> inputs = Corpus();
  REQUIRE(inputs.size() >= 8);
  for (std::string& request : Requests()) inputs.push_back(std::move(request));
  std::mt19937_64 rng(20261201);
  for (const std::string& input : inputs) {
    for (size_t cut = 0; cut <= input.size(); ++cut) Feed(input.substr(0, cut));
    for (int i = 0; i < 300; ++i) {
      std::string bad = input;
      for (uint64_t n = 1 + rng() % 4; n > 0 && !bad.empty(); --n) {
        const size_t at = rng() % bad.size();
        switch (rng() % 3) {
          case 0:
            bad[at] = static_cast<char>(rng());
            break;
          case 1:
            bad.erase(at, 1 + rng() % 3);
            break;
          default:
            bad.insert(at, 1 + rng() % 3, static_cast<char>(rng()));
        }
      }
      Feed(bad);
    }
  }
}
