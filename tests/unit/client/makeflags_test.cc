// MAKEFLAGS as the tools themselves write them. The verbatim values were printed by a recipe
// (`@echo '[$(MAKEFLAGS)]'` run below a parent with the options named) of make 4.3 and 4.4.1, and
// taken from ninja's and jobserver-rs's sources; make 4.1's from its source (main.c, job.c).
#include "client/cli/makeflags.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace headroom::cli {
namespace {

using Options = std::vector<std::string>;
constexpr std::optional<JobsFlag> kNoJobs;
constexpr std::optional<std::string> kNoServer;

TEST_CASE("MAKEFLAGS of real tools") {
  struct Case {
    const char* text;
    Makeflags flags;
  };
  const std::vector<Case> cases = {
      {"", {"", {}, "", kNoJobs, kNoServer}},
      // make 4.1, `make -j4`
      {" --jobserver-fds=3,4 -j", {"", {}, "", JobsFlag{}, "3,4"}},
      // make 4.1, `make -k -j4 CFLAGS=-O2`
      {"k --jobserver-fds=3,4 -j -- CFLAGS=-O2", {"k", {}, "CFLAGS=-O2", JobsFlag{}, "3,4"}},
      // make 4.3, `make -j4`, `make -kw -j4 V=1`
      {" -j4 --jobserver-auth=3,4", {"", {}, "", JobsFlag{4}, "3,4"}},
      {"kw -j4 --jobserver-auth=3,4 -- V=1", {"kw", {}, "V=1", JobsFlag{4}, "3,4"}},
      // make 4.4.1, and with a load limit and a long option
      {" -j4 --jobserver-auth=fifo:/tmp/GMfifo4711",
       {"", {}, "", JobsFlag{4}, "fifo:/tmp/GMfifo4711"}},
      {"s -l8 --no-print-directory -j16 --jobserver-auth=fifo:/tmp/GMfifo1",
       {"s", {"-l8", "--no-print-directory"}, "", JobsFlag{16}, "fifo:/tmp/GMfifo1"}},
      // make, output synchronised
      {" -Otarget -j2 --jobserver-auth=3,4", {"", {"-Otarget"}, "", JobsFlag{2}, "3,4"}},
      // ninja's own server
      {" -j8 --jobserver-auth=fifo:/tmp/NinjaFIFO17/fifo",
       {"", {}, "", JobsFlag{8}, "fifo:/tmp/NinjaFIFO17/fifo"}},
      // cargo's CARGO_MAKEFLAGS, with descriptors and with a fifo
      {"-j --jobserver-fds=8,9 --jobserver-auth=8,9", {"", {}, "", JobsFlag{}, "8,9"}},
      {"-j --jobserver-auth=fifo:/tmp/x", {"", {}, "", JobsFlag{}, "fifo:/tmp/x"}},
      // make without -j, below one with only flags
      {"n", {"n", {}, "", kNoJobs, kNoServer}},
      {" --warn-undefined-variables", {"", {"--warn-undefined-variables"}, "", kNoJobs, kNoServer}},
  };
  for (const Case& c : cases) {
    INFO("MAKEFLAGS='" << c.text << "'");
    const Makeflags got = ParseMakeflags(c.text);
    CHECK(got.letters == c.flags.letters);
    CHECK(got.options == c.flags.options);
    CHECK(got.variables == c.flags.variables);
    CHECK(got.jobs == c.flags.jobs);
    CHECK(got.jobserver == c.flags.jobserver);
  }
}

TEST_CASE("MAKEFLAGS as people write them") {
  struct Case {
    const char* text;
    Makeflags flags;
  };
  const std::vector<Case> cases = {
      {"-j8", {"", {}, "", JobsFlag{8}, kNoServer}},
      {"-j 8", {"", {}, "", JobsFlag{8}, kNoServer}},
      {"-j", {"", {}, "", JobsFlag{}, kNoServer}},
      {"-j -k", {"", {"-k"}, "", JobsFlag{}, kNoServer}},
      {"--jobs=8", {"", {}, "", JobsFlag{8}, kNoServer}},
      {"--jobs 8", {"", {}, "", JobsFlag{8}, kNoServer}},
      {"j8", {"", {}, "", JobsFlag{8}, kNoServer}},
      {"kj8s", {"ks", {}, "", JobsFlag{8}, kNoServer}},
      {"-kj8", {"", {"-k"}, "", JobsFlag{8}, kNoServer}},
      {"-kj 8", {"", {"-k"}, "", JobsFlag{8}, kNoServer}},
      {"-j4 -j8", {"", {}, "", JobsFlag{8}, kNoServer}},
      // "j8" behind -I is a folder's name.
      {"-Ij8", {"", {"-Ij8"}, "", kNoJobs, kNoServer}},
      {"-kIj8", {"", {"-kIj8"}, "", kNoJobs, kNoServer}},
      // No count of jobs: make says what it thinks of it.
      {"-j0", {"", {"-j0"}, "", kNoJobs, kNoServer}},
      {"-j99999999999", {"", {"-j99999999999"}, "", kNoJobs, kNoServer}},
      // A variable in front is no bundle.
      {"CFLAGS=-O2 -j4", {"", {"CFLAGS=-O2"}, "", JobsFlag{4}, kNoServer}},
      // Backslashes keep blanks in a word; what follows "--" isn't looked at.
      {R"(-I/a\ b -j4)", {"", {R"(-I/a\ b)"}, "", JobsFlag{4}, kNoServer}},
      {R"(-j4 -- A=b\ -j9 B=-j7)", {"", {}, R"(A=b\ -j9 B=-j7)", JobsFlag{4}, kNoServer}},
      {"\\", {"\\", {}, "", kNoJobs, kNoServer}},
      {"   ", {"", {}, "", kNoJobs, kNoServer}},
      {"--jobserver-auth=", {"", {}, "", kNoJobs, ""}},
  };
  for (const Case& c : cases) {
    INFO("MAKEFLAGS='" << c.text << "'");
    const Makeflags got = ParseMakeflags(c.text);
    CHECK(got.letters == c.flags.letters);
    CHECK(got.options == c.flags.options);
    CHECK(got.variables == c.flags.variables);
    CHECK(got.jobs == c.flags.jobs);
    CHECK(got.jobserver == c.flags.jobserver);
  }
}

TEST_CASE("Words of a jobserver, by style") {
  CHECK(JobserverWords(JobserverStyle::kFifo, 16, "/r/0/run-1-1/fifo", -1) ==
        "-j16 --jobserver-auth=fifo:/r/0/run-1-1/fifo");
  CHECK(JobserverWords(JobserverStyle::kDescriptors, 16, "/x", 100) ==
        "-j16 --jobserver-auth=100,100");
  // make <= 4.1 leaves a jobserver that comes with a number.
  CHECK(JobserverWords(JobserverStyle::kOldDescriptors, 16, "/x", 100) ==
        "--jobserver-fds=100,100 -j");
  CHECK(JobserverWords(JobserverStyle::kNone, 16, "/x", -1).empty());
}

TEST_CASE("What the user's MAKEFLAGS say stays") {
  const std::string words = "-j16 --jobserver-auth=fifo:/f";
  const auto merge = [&](const char* text) { return FormatMakeflags(ParseMakeflags(text), words); };
  CHECK(merge("") == " -j16 --jobserver-auth=fifo:/f");
  CHECK(merge("-j8") == " -j16 --jobserver-auth=fifo:/f");
  CHECK(merge("kw") == "kw -j16 --jobserver-auth=fifo:/f");
  CHECK(merge("k -l8 -- V=1 W=2") == "k -j16 --jobserver-auth=fifo:/f -l8 -- V=1 W=2");
  CHECK(merge(" -j4 --jobserver-auth=3,4") == " -j16 --jobserver-auth=fifo:/f");
  // Twice is as once.
  CHECK(merge(merge("k -- V=1").c_str()) == merge("k -- V=1"));
  CHECK(FormatMakeflags(ParseMakeflags("k -j8 -- V=1"), "") == "k -- V=1");
  CHECK(FormatMakeflags(ParseMakeflags("-j8"), "").empty());
}

TEST_CASE("The -j of a command line") {
  const auto make = [](const Options& words) { return JobsOfMake(words); };
  CHECK(make({}) == kNoJobs);
  CHECK(make({"all", "V=1"}) == kNoJobs);
  CHECK(make({"-j8", "all"}) == JobsFlag{8});
  CHECK(make({"-j", "8"}) == JobsFlag{8});
  CHECK(make({"-j", "all"}) == JobsFlag{});
  CHECK(make({"-ksj3"}) == JobsFlag{3});
  CHECK(make({"--jobs=5"}) == JobsFlag{5});
  CHECK(make({"--", "-j8"}) == kNoJobs);
  const auto ninja = [](const Options& words) { return JobsOfNinja(words); };
  CHECK(ninja({"-C", "out"}) == kNoJobs);
  CHECK(ninja({"-j8"}) == JobsFlag{8});
  CHECK(ninja({"-v", "-j", "8"}) == JobsFlag{8});
  CHECK(ninja({"-j0"}) == JobsFlag{});
  CHECK(ninja({"-j"}) == kNoJobs);
}

}  // namespace
}  // namespace headroom::cli
