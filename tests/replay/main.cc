// headroom-replay FILE...: runs the events of recorded traces through this build's policy and tells
// the first difference between what it answers and what was answered then.
//
// Exit codes: 0 all actions are the same; 1 a difference; 2 a file can't be read or replayed.
// Files of one ring are to be named oldest first (their names sort so).
#include <cstdio>
#include <string>
#include <vector>

#include "server/trace/reader.h"
#include "server/trace/replay.h"

int main(int argc, char** argv) {
  const std::vector<std::string> files(argv + 1, argv + argc);
  if (files.empty() || files[0].rfind('-', 0) == 0) {
    std::fprintf(
        stderr,
        "usage: headroom-replay FILE...\n"
        "Replays traces of headroomd (segments, or what headroom run --trace wrote), oldest "
        "first.\nExit codes: 0 the same actions, 1 a difference, 2 not replayable.\n");
    return 2;
  }
  int code = 0;
  headroom::trace::Replayer replayer;
  for (const std::string& file : files) {
    auto reader = headroom::trace::Reader::Open(file);
    if (!reader.ok()) {
      std::fprintf(stderr, "headroom-replay: %s\n", std::string(reader.status().message()).c_str());
      return 2;
    }
    const auto result = replayer.Run(*reader);
    if (!result.ok()) {
      std::fprintf(stderr, "headroom-replay: %s\n", std::string(result.status().message()).c_str());
      return 2;
    }
    std::printf("%s: %llu segments, %llu steps, %llu actions, recorded by version %s%s\n",
                file.c_str(), static_cast<unsigned long long>(result->segments),
                static_cast<unsigned long long>(result->steps),
                static_cast<unsigned long long>(result->actions), result->versions.c_str(),
                result->torn ? "; its end is torn" : "");
    if (result->difference) {
      std::printf("%s: segment %llu, step %llu, byte %llu: %s\n", file.c_str(),
                  static_cast<unsigned long long>(result->difference->segment),
                  static_cast<unsigned long long>(result->difference->step),
                  static_cast<unsigned long long>(result->difference->offset),
                  result->difference->text.c_str());
      code = 1;
    }
  }
  return code;
}
