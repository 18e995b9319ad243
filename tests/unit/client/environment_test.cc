#include "client/cli/environment.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace headroom::cli {
namespace {

LaneFacts Lane() {
  LaneFacts lane;
  lane.dir = "/r/1000/run-7-1";
  lane.cores = 16;
  lane.preload = "/opt/lib/libheadroom.so";
  return lane;
}

constexpr char kOurs[] = " -j16 --jobserver-auth=fifo:/r/1000/run-7-1/fifo";

TEST_CASE("An empty environment becomes a lane's") {
  const LaneEnvironment plan = PlanEnvironment({}, Lane());
  CHECK(plan.notes.empty());
  const Environment env = Apply({}, plan.changes);
  CHECK(env == Environment{{"MAKEFLAGS", kOurs},
                           {"CARGO_MAKEFLAGS", "-j16 --jobserver-auth=fifo:/r/1000/run-7-1/fifo"},
                           {"HEADROOM_LANE", "/r/1000/run-7-1"},
                           {"HEADROOM_CORES", "16"},
                           {"LD_PRELOAD", "/opt/lib/libheadroom.so"},
                           {"ASAN_OPTIONS", "verify_asan_link_order=0"}});
}

TEST_CASE("Another jobserver is replaced, and said") {
  const Environment base = {{"MAKEFLAGS", "k -j8 --jobserver-auth=3,4 -- V=1"},
                            {"MFLAGS", "-k -j8 --jobserver-auth=3,4"},
                            {"MAKELEVEL", "1"}};
  const LaneEnvironment plan = PlanEnvironment(base, Lane());
  REQUIRE(plan.notes.size() == 1);
  CHECK(plan.notes[0].find("3,4") != std::string::npos);
  const Environment env = Apply(base, plan.changes);
  CHECK(env.at("MAKEFLAGS") == std::string("k") + kOurs + " -- V=1");
  CHECK(env.count("MFLAGS") == 0);
  CHECK(env.at("MAKELEVEL") == "1");
  // The -j8 was that jobserver's.
  CHECK(CapFromEnvironment(base) == std::nullopt);
}

TEST_CASE("A run below a run: no note, the inner lane counts") {
  LaneFacts outer = Lane();
  outer.dir = "/r/1000/run-6-1";
  const Environment base = Apply({}, PlanEnvironment({}, outer).changes);
  const LaneEnvironment plan = PlanEnvironment(base, Lane());
  CHECK(plan.notes.empty());
  const Environment env = Apply(base, plan.changes);
  CHECK(env.at("MAKEFLAGS") == kOurs);
  CHECK(env.at("HEADROOM_LANE") == "/r/1000/run-7-1");
  CHECK(env.at("LD_PRELOAD") == "/opt/lib/libheadroom.so");
}

TEST_CASE("The user's own -j is a cap") {
  CHECK(CapFromEnvironment({}) == std::nullopt);
  CHECK(CapFromEnvironment({{"MAKEFLAGS", "-j8"}}) == 8);
  CHECK(CapFromEnvironment({{"MAKEFLAGS", "-j8"}, {"GNUMAKEFLAGS", "-j4"}}) == 4);
  CHECK(CapFromEnvironment({{"MAKEFLAGS", "-j"}}) == std::nullopt);
  CHECK(CapFromEnvironment({{"MAKEFLAGS", "k -- J=-j8"}}) == std::nullopt);
}

TEST_CASE("LD_PRELOAD is added to") {
  const auto preload = [](const std::string& before, const std::string& library) {
    LaneFacts lane = Lane();
    lane.preload = library;
    const Environment base = {{"LD_PRELOAD", before}};
    return Apply(base, PlanEnvironment(base, lane).changes).at("LD_PRELOAD");
  };
  CHECK(preload("", "/l.so") == "/l.so");
  CHECK(preload("/a.so", "/l.so") == "/l.so:/a.so");
  CHECK(preload("/a.so /b.so", "/l.so") == "/l.so:/a.so /b.so");
  CHECK(preload("/a.so:/l.so", "/l.so") == "/a.so:/l.so");
  CHECK(preload("/x/l.so", "/l.so") == "/l.so:/x/l.so");
  CHECK(preload("/a.so", "") == "/a.so");
  // A path that LD_PRELOAD can't hold would name two other files.
  CHECK(preload("/a.so", "/my libs/l.so") == "/a.so");
  LaneFacts lane = Lane();
  lane.preload = "/my libs/l.so";
  const LaneEnvironment plan = PlanEnvironment({}, lane);
  REQUIRE(plan.notes.size() == 1);
  CHECK(plan.notes[0].find("/my libs/l.so") != std::string::npos);
}

TEST_CASE("ASAN_OPTIONS are added to") {
  const auto options = [](const std::string& before) {
    const Environment base = {{"ASAN_OPTIONS", before}};
    return Apply(base, PlanEnvironment(base, Lane()).changes).at("ASAN_OPTIONS");
  };
  CHECK(options("") == "verify_asan_link_order=0");
  CHECK(options("detect_leaks=0") == "detect_leaks=0:verify_asan_link_order=0");
  CHECK(options("verify_asan_link_order=1:x=2") == "verify_asan_link_order=1:x=2");
  LaneFacts bare = Lane();
  bare.preload.clear();
  CHECK(Apply({}, PlanEnvironment({}, bare).changes).count("ASAN_OPTIONS") == 0);
}

TEST_CASE("The option --no-gate is said to the library, a user's own HEADROOM_GATE stays") {
  LaneFacts lane = Lane();
  lane.gate = false;
  CHECK(Apply({}, PlanEnvironment({}, lane).changes).at("HEADROOM_GATE") == "0");
  const Environment base = {{"HEADROOM_GATE", "0"}};
  CHECK(Apply(base, PlanEnvironment(base, Lane()).changes).at("HEADROOM_GATE") == "0");
}

TEST_CASE("Where a make would stop at a fifo:, MAKEFLAGS keeps only what was the user's") {
  LaneFacts lane = Lane();
  lane.style = JobserverStyle::kNone;
  CHECK(Apply({}, PlanEnvironment({}, lane).changes).count("MAKEFLAGS") == 0);
  const Environment base = {{"MAKEFLAGS", "k -j8 --jobserver-auth=3,4"}};
  CHECK(Apply(base, PlanEnvironment(base, lane).changes).at("MAKEFLAGS") == "k");
  const Environment only = {{"MAKEFLAGS", " -j8 --jobserver-auth=3,4"}};
  CHECK(Apply(only, PlanEnvironment(only, lane).changes).count("MAKEFLAGS") == 0);
}

TEST_CASE("An export can be repeated and undone, whatever was there") {
  const std::vector<Environment> shells = {
      {},
      {{"MAKEFLAGS", "-j8"}, {"PATH", "/bin"}},
      {{"MAKEFLAGS", "k -- V=1"}, {"LD_PRELOAD", "/a.so"}, {"MFLAGS", "-k"}},
      {{"MAKEFLAGS", " -j4 --jobserver-auth=3,4"},
       {"MFLAGS", "-j4 --jobserver-auth=3,4"},
       {"CARGO_MAKEFLAGS", "-j --jobserver-auth=8,9"}},
      {{"LD_PRELOAD", "/other/libheadroom.so"}, {"ASAN_OPTIONS", "verify_asan_link_order=0"}},
      {{"MAX_JOBS", "4"}, {"NVCC_APPEND_FLAGS", "-lineinfo"}},
      {{"MAX_JOBS", ""}, {"CMAKE_BUILD_PARALLEL_LEVEL", "16"}},
  };
  LaneFacts other = Lane();
  other.dir = "/r/1000/shared";
  other.cores = 4;
  other.parallel = {8, 4, ""};
  LaneFacts bare = Lane();
  bare.style = JobserverStyle::kNone;
  bare.preload.clear();
  bare.gate = false;
  bare.parallel.nvcc_flags = "--threads 1";
  for (const Environment& shell : shells) {
    for (const LaneFacts& lane : {Lane(), other, bare}) {
      const Environment once = Apply(shell, PlanExport(shell, lane).changes);
      const Environment twice = Apply(once, PlanExport(once, lane).changes);
      CHECK(twice == once);
      CHECK(Apply(once, UndoEnvironment(once)) == shell);
      // From one lane to another is as straight to that other.
      for (const LaneFacts& next : {Lane(), other, bare}) {
        const Environment moved = Apply(once, PlanExport(once, next).changes);
        CHECK(moved == Apply(shell, PlanExport(shell, next).changes));
        CHECK(Apply(moved, UndoEnvironment(moved)) == shell);
      }
    }
    CHECK(UndoEnvironment(shell).empty());
  }
}

TEST_CASE("Jobs for those who know no jobserver: only where the user set none") {
  LaneFacts lane = Lane();
  lane.parallel = {32, 16, "--jobserver"};
  const auto planned = [&](const Environment& base) {
    return Apply(base, PlanEnvironment(base, lane).changes);
  };
  Environment env = planned({});
  CHECK(env.at("MAX_JOBS") == "32");
  CHECK(env.at("CMAKE_BUILD_PARALLEL_LEVEL") == "16");
  CHECK(env.at("NVCC_APPEND_FLAGS") == "--jobserver");

  // Empty counts as unset for all who read it.
  env = planned({{"MAX_JOBS", ""}, {"CMAKE_BUILD_PARALLEL_LEVEL", ""}});
  CHECK(env.at("MAX_JOBS") == "32");
  CHECK(env.at("CMAKE_BUILD_PARALLEL_LEVEL") == "16");

  env = planned({{"MAX_JOBS", "4"}, {"NVCC_APPEND_FLAGS", "-lineinfo"}});
  CHECK(env.at("MAX_JOBS") == "4");
  CHECK(env.at("CMAKE_BUILD_PARALLEL_LEVEL") == "16");
  CHECK(env.at("NVCC_APPEND_FLAGS") == "-lineinfo --jobserver");
  for (const std::string flags : {"--threads 2", "-t2", "-lineinfo --jobserver", "--threads=0"})
    CHECK(planned({{"NVCC_APPEND_FLAGS", flags}}).at("NVCC_APPEND_FLAGS") == flags);
  // "-t" inside of another word is none.
  CHECK(planned({{"NVCC_APPEND_FLAGS", "-Xptxas=-typo"}}).at("NVCC_APPEND_FLAGS") ==
        "-Xptxas=-typo --jobserver");
  // Even what no one can read as a number is the user's.
  CHECK(planned({{"MAX_JOBS", "auto"}}).at("MAX_JOBS") == "auto");
}

TEST_CASE("An outer lane's jobs are nobody's cap, and replaced") {
  LaneFacts outer = Lane();
  outer.parallel = {8, 4, "--jobserver"};
  const Environment base = {{"NVCC_APPEND_FLAGS", "-lineinfo"}};
  const Environment env = Apply(base, PlanEnvironment(base, outer).changes);
  CHECK(!UsersOwn(env, "MAX_JOBS"));
  CHECK(!UsersOwn(env, "CMAKE_BUILD_PARALLEL_LEVEL"));

  LaneFacts inner = Lane();
  inner.parallel = {2, 0, ""};
  const Environment twice = Apply(env, PlanEnvironment(env, inner).changes);
  CHECK(twice.at("MAX_JOBS") == "2");
  CHECK(twice.count("CMAKE_BUILD_PARALLEL_LEVEL") == 0);
  CHECK(twice.at("NVCC_APPEND_FLAGS") == "-lineinfo --jobserver");

  // Set by the user inside of the outer lane: the user's.
  Environment changed = env;
  changed["MAX_JOBS"] = "3";
  CHECK(UsersOwn(changed, "MAX_JOBS") == "3");
  CHECK(Apply(changed, PlanEnvironment(changed, inner).changes).at("MAX_JOBS") == "3");
}

TEST_CASE("environ(7) is read as getenv(3) does") {
  char a[] = "A=1", a2[] = "A=2", b[] = "B=x=y", c[] = "C", d[] = "=D", e[] = "E=";
  char* entries[] = {a, a2, b, c, d, e, nullptr};
  CHECK(ReadEnvironment(entries) == Environment{{"A", "1"}, {"B", "x=y"}, {"E", ""}});
}

}  // namespace
}  // namespace headroom::cli
