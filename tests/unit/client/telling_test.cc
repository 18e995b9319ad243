#include "client/cli/telling.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace headroom::cli {
namespace {

const Make kMake43{"/usr/bin/make", MakeAbility::kDescriptors};
const Make kMake41{"/usr/bin/make", MakeAbility::kOldDescriptors};
const Make kMake44{"/opt/bin/make", MakeAbility::kFifo};

TEST_CASE("How a command is told of its fifo") {
  struct Case {
    const char* what;
    TellingFacts facts;
    JobserverStyle style;
    bool note;
  };
  const std::vector<Case> cases = {
      {"make 4.3", {"make", kMake43, kMake43, false}, JobserverStyle::kDescriptors, false},
      {"make 4.3, adapter", {"make", kMake43, kMake43, true}, JobserverStyle::kDescriptors, false},
      {"make 4.1", {"make", kMake41, kMake41, false}, JobserverStyle::kOldDescriptors, false},
      {"make 4.4 beside an old one",
       {"/opt/bin/make", kMake44, kMake43, false},
       JobserverStyle::kFifo,
       false},
      {"ninja", {"ninja", {}, kMake43, false}, JobserverStyle::kFifo, false},
      {"ninja by path", {"/v/bin/ninja", {}, kMake43, false}, JobserverStyle::kFifo, false},
      {"script, old make", {"./build.sh", {}, kMake43, false}, JobserverStyle::kDescriptors, true},
      {"script, very old make",
       {"./build.sh", {}, kMake41, false},
       JobserverStyle::kOldDescriptors,
       true},
      {"script, old make, adapter",
       {"./build.sh", {}, kMake43, true},
       JobserverStyle::kFifo,
       false},
      {"script, new make", {"./build.sh", {}, kMake44, false}, JobserverStyle::kFifo, false},
      {"script, no make", {"pip", {}, {}, false}, JobserverStyle::kFifo, false},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    const Telling telling = TellCommand(c.facts);
    CHECK(telling.style == c.style);
    CHECK(telling.note.empty() == !c.note);
  }
}

TEST_CASE("A shell can't hand descriptors on") {
  CHECK(TellShell({"", {}, kMake44, false}).style == JobserverStyle::kFifo);
  CHECK(TellShell({"", {}, {}, false}).style == JobserverStyle::kFifo);
  CHECK(TellShell({"", {}, kMake43, true}).style == JobserverStyle::kFifo);
  const Telling old = TellShell({"", {}, kMake43, false});
  CHECK(old.style == JobserverStyle::kNone);
  CHECK(old.note.find("/usr/bin/make") != std::string::npos);
  CHECK(old.note.find("headroom run") != std::string::npos);
}

TEST_CASE("A -j that takes the client out of the lane is said") {
  const std::vector<std::string> eight = {"-j8", "all"};
  const std::vector<std::string> bare = {"-j"};
  const std::vector<std::string> none = {"all"};
  CHECK(NoteOnJobs("ninja", none, false, false).empty());
  CHECK(NoteOnJobs("python3", eight, false, false).empty());
  CHECK(NoteOnJobs("ninja", eight, false, false).find("-j8") != std::string::npos);
  CHECK(NoteOnJobs("/x/ninja", eight, false, true).find("gate") != std::string::npos);
  CHECK(NoteOnJobs("make", bare, true, false).find("all that it can at once") != std::string::npos);
}

}  // namespace
}  // namespace headroom::cli
