// Short jobs without a gate: they begin and peak together; and memory that something else takes:
// the build gives way in time, and comes back (issue 3's bar).
#include "tests/unit/policy/short_jobs.h"

namespace headroom::policy::hog_test {
namespace {

constexpr double kMB = 1024 * 1024;
constexpr double kLimit = 1200 * kMB;
constexpr double kHog = 0.3 * kLimit;
constexpr double kHogRate = 200 * kMB;

// Jobs of `seconds`, most of whose growth is early, at most `most` of them, each using `share` of a
// core.
ShortJobs Build(int most, double peak, double seconds, double share) {
  return ShortJobs(Bytes{static_cast<int64_t>(kLimit)}, most,
                   {{0, 0},
                    {0.15 * seconds, 0.4 * peak},
                    {0.6 * seconds, 0.93 * peak},
                    {0.9 * seconds, peak},
                    {seconds, 0.6 * peak}},
                   share);
}

TEST_CASE(
    "a hog takes 30 % at 200 MB/s: running jobs halve before memory runs out, and come back") {
  // With the pool full: all of --jobs run (70 MB each), or as many as memory holds.
  const double peak = GENERATE(70, 90, 120) * kMB;
  // A compiler's share of a core: one of several on each core, or one that hardly computes.
  const double share = GENERATE(0.3, 0.1, 0.01);
  const double seconds = GENERATE(1, 2);
  // Where in the jobs' lives the hog begins.
  const double phase = GENERATE(0.0, 0.33, 0.66);
  ShortJobs build = Build(16, peak, seconds, share);
  build.Run(40 + phase * seconds);
  const double before = build.Run(10);
  REQUIRE(before > 7);

  int least = 1000;
  build.least_free = kLimit;
  for (double t = 0; t < 20; t += 0.05) {
    build.Run(0.05, kHogRate, kHog);
    least = std::min(least, build.Running());
  }
  INFO("peak " << peak / kMB << " MB, share " << share << ", " << seconds << " s, phase " << phase
               << ": before " << before << ", least " << least << ", least free "
               << build.least_free / kMB << " MB");
  CHECK(build.out_of_memory == 0);
  CHECK(least <= before / 2);

  // Back within 10 s, and it stays so.
  double back = -1;
  for (double t = 0; t < 10 && back < 0; t += 0.5) {
    if (build.Run(0.5, -1) >= 0.85 * before) back = t + 0.5;
  }
  CHECK(back > 0);
  CHECK(build.Run(10, -1) >= 0.85 * before);
}

TEST_CASE("a build of short jobs that begin together does not run out of memory") {
  const bool starved = GENERATE(false, true);
  const double cores = GENERATE(2.0, 1e9);
  const double peak = GENERATE(70, 90, 120, 200) * kMB;
  const double share = GENERATE(1.0, 0.3, 0.1, 0.01);
  const double seconds = GENERATE(1, 2, 5);
  ShortJobs build = Build(24, peak, seconds, share);
  build.cores = cores;
  build.starved = starved;
  const double mean = build.Run(30);
  INFO("peak " << peak / kMB << " MB, share " << share << ", " << seconds << " s, cores " << cores
               << (starved ? ", starved" : "") << ": mean " << mean << ", freezes "
               << build.freezes);
  CHECK(build.out_of_memory == 0);
  CHECK(mean > 1.5);
}

}  // namespace
}  // namespace headroom::policy::hog_test
