#include "client/cli/parallel.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace headroom::cli {
namespace {

using Parallel = LaneFacts::Parallel;

ParallelFacts Gated(unsigned jobs) {
  ParallelFacts facts;
  facts.gated = true;
  facts.jobs = jobs;
  return facts;
}

TEST_CASE("Under the gate: plain digits, and never fewer than the cores") {
  CHECK(PlanParallel(Gated(16)) == Parallel{32, 0, ""});
  ParallelFacts facts = Gated(8);
  facts.jobs_given = true;
  CHECK(PlanParallel(facts) == Parallel{8, 0, ""});
  facts.nvcc = Version{13, 0};
  CHECK(PlanParallel(facts).nvcc_flags.empty());
}

TEST_CASE("cmake is told only where its ninja takes no tokens") {
  ParallelFacts facts = Gated(16);
  facts.ninja = Version{1, 13};
  CHECK(PlanParallel(facts).cmake_level == 0);
  facts.ninja = Version{1, 11};
  CHECK(PlanParallel(facts).cmake_level == 16);
  facts.gated = false;
  CHECK(PlanParallel(facts).cmake_level == 0);
}

TEST_CASE("Without the gate nothing becomes a -jN, and nvcc's threads take tokens or are one") {
  ParallelFacts facts;
  facts.jobs = 16;
  CHECK(PlanParallel(facts) == Parallel{});
  facts.nvcc = Version{13, 0};
  CHECK(PlanParallel(facts) == Parallel{0, 0, "--jobserver"});
  facts.nvcc = Version{12, 8};
  CHECK(PlanParallel(facts) == Parallel{0, 0, "--threads 1"});
  // Told of descriptors, which do not reach it: "jobserver support requested, but an error".
  facts.fifo = false;
  CHECK(PlanParallel(facts) == Parallel{});
}

TEST_CASE("Without a daemon the few jobs are few for all") {
  ParallelFacts facts;
  facts.careful = true;
  facts.jobs = 3;
  facts.ninja = Version{1, 11};
  CHECK(PlanParallel(facts) == Parallel{3, 3, ""});
  facts.gated = true;
  CHECK(PlanParallel(facts) == Parallel{3, 3, ""});
}

TEST_CASE("What the user set is a cap, and said") {
  CHECK(NotesOnCaps({}).empty());
  CHECK(NotesOnCaps({{"MAX_JOBS", ""}}).empty());
  CHECK(NotesOnCaps({{"MAX_JOBS", "4"}, {"CMAKE_BUILD_PARALLEL_LEVEL", "8"}}) ==
        std::vector<std::string>{
            "MAX_JOBS says 4: kept as a cap; unset it to let Headroom alone decide",
            "CMAKE_BUILD_PARALLEL_LEVEL says 8: kept as a cap; unset it to let Headroom alone "
            "decide"});
  CHECK(NotesOnCaps({{"MAX_JOBS", "auto"}}) ==
        std::vector<std::string>{
            "MAX_JOBS says 'auto': kept; unset it to let Headroom alone decide"});
}

}  // namespace
}  // namespace headroom::cli
