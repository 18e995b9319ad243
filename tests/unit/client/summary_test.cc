#include "client/cli/summary.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>

namespace headroom::cli::summary_test {
namespace {

using std::chrono::milliseconds;
constexpr uint64_t kGiB = uint64_t{1} << 30;

v1::LaneSummary Plain() {
  v1::LaneSummary summary;
  summary.set_peak_bytes(112 * kGiB / 10);
  summary.set_jobs_min(1);
  summary.set_jobs_mean(5.34);
  summary.set_jobs_max(16);
  summary.set_freezes(2);
  return summary;
}

TEST_CASE("The summary line") {
  const auto lines = SummaryLines(milliseconds(192'340), Plain());
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] ==
        "wall 192.3 s, peak 11.2 GiB, jobs 1 min 5.3 mean 16 max, 2 freezes, 0 OOM kills");
  v1::LaneSummary more = Plain();
  more.set_oom_kills(1);
  more.set_evictions(3);
  more.set_retries(4);
  more.set_tools_mean(2.5);
  CHECK(SummaryLines(milliseconds(1000), more)[0] ==
        "wall 1.0 s, peak 11.2 GiB, jobs 1 min 5.3 mean 16 max, 2 freezes, 1 OOM kill, "
        "3 evictions, 4 processes run again, 2.5 tool processes mean");
}

TEST_CASE("Without a daemon at the end only the time is known") {
  const auto lines = SummaryLines(milliseconds(1000), std::nullopt);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].substr(0, 10) == "wall 1.0 s");
}

TEST_CASE("What went wrong gets a line each, with tool, source, size and limit") {
  v1::LaneSummary summary = Plain();
  summary.set_daemon_restarted(true);
  v1::Incident& kill = *summary.add_incidents();
  kill.set_kind(v1::Incident::OOM_KILL);
  kill.set_tool("cicc");
  kill.set_source("flash_bwd.cu");
  kill.set_bytes(61 * kGiB / 10);
  kill.set_limit_bytes(12 * kGiB);
  kill.set_domain("/build");
  kill.set_at_ns(12'000'000'000);
  summary.set_ungated(2);
  summary.add_ungated_tools("cc1plus");
  const auto lines = SummaryLines(milliseconds(1000), summary);
  REQUIRE(lines.size() == 4);
  CHECK(lines[2] ==
        "OOM kill: cicc for flash_bwd.cu at 6.1 GiB, limit 12.0 GiB (/build), 12.0 s after the "
        "start");
  CHECK(lines[3].find("cc1plus") != std::string::npos);
}

TEST_CASE("Many kills leave room for what was done about them") {
  v1::LaneSummary summary;
  for (int i = 0; i < 30; ++i) summary.add_incidents()->set_kind(v1::Incident::OOM_KILL);
  for (int i = 0; i < 30; ++i) summary.add_incidents()->set_kind(v1::Incident::RETRY);
  const std::vector<std::string> lines = SummaryLines(std::chrono::seconds(1), summary);
  const auto count = [&lines](const std::string& kind) {
    return std::count_if(lines.begin(), lines.end(), [&kind](const std::string& line) {
      return line.rfind(kind + ": ", 0) == 0;
    });
  };
  CHECK(count("OOM kill") == 16);
  CHECK(count("run again") == 4);
}

TEST_CASE("Thousands of incidents do not bury the build's own words") {
  v1::LaneSummary summary = Plain();
  for (int i = 0; i < 1000; ++i) summary.add_incidents()->set_kind(v1::Incident::FREEZE);
  const auto lines = SummaryLines(milliseconds(1000), summary);
  CHECK(lines.size() < 30);
  CHECK(lines.back().find("more") != std::string::npos);
}

}  // namespace
}  // namespace headroom::cli::summary_test
