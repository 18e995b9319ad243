#include "client/cli/status.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace headroom::cli::status_test {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

v1::Status Sample() {
  v1::Status status;
  status.set_version("0.1.0");
  status.set_pid(42);
  status.set_uptime_ns(192'000'000'000);
  v1::Memory& memory = *status.mutable_memory();
  memory.set_total(432 * kGiB);
  memory.set_available(-1);
  memory.set_reserve(kGiB);
  memory.set_expected_growth(9 * kGiB);
  memory.set_headroom(-static_cast<int64_t>(2 * kGiB));
  memory.set_domain("host");
  v1::Pool& pool = *status.mutable_pool();
  pool.set_target(15);
  pool.set_minted(14);
  pool.set_idle(3);
  pool.set_out(11);
  v1::Lane& lane = *status.add_lanes();
  lane.set_id(3);
  lane.set_name("run-1234-1");
  lane.set_kind("own");
  lane.set_cores(16);
  *lane.mutable_pool() = pool;
  lane.set_waits_for("memory: 1.0 GiB short");
  v1::Job& job = *lane.add_jobs();
  job.set_pid(77);
  job.set_driver("nvcc");
  job.set_source("a\x1b[2J.cu");
  job.set_bytes(3 * kGiB);
  job.set_predicted_peak(5 * kGiB);
  job.set_state("frozen");
  return status;
}

TEST_CASE("status --json has the keys that others rely on, as numbers") {
  const auto json = nlohmann::json::parse(StatusJson(Sample(), 2));
  CHECK(json["version"] == "0.1.0");
  CHECK(json["memory"]["total"] == 432 * kGiB);
  CHECK(json["memory"]["available"] == -1);
  CHECK(json["memory"]["reserve"] == kGiB);
  CHECK(json["memory"]["expected_growth"] == 9 * kGiB);
  CHECK(json["memory"]["headroom"] == -2147483648);
  for (const char* key : {"total", "available", "reserve", "expected_growth", "headroom"})
    CHECK(json["memory"][key].is_number_integer());
  CHECK(json["pool"]["target"] == 15);
  CHECK(json["pool"]["minted"] == 14);
  CHECK(json["pool"]["idle"] == 3);
  CHECK(json["pool"]["out"] == 11);
  REQUIRE(json["lanes"].size() == 1);
  CHECK(json["lanes"][0]["name"] == "run-1234-1");
  CHECK(json["lanes"][0]["jobs"]["frozen"] == 1);
  CHECK(json["lanes"][0]["jobs"]["running"] == 0);
  REQUIRE(json["jobs"].size() == 1);
  CHECK(json["jobs"][0]["lane"] == 3);
  CHECK(json["jobs"][0]["bytes"] == 3 * kGiB);
  CHECK(json["jobs"][0]["state"] == "frozen");
  // One document a line for --watch.
  CHECK(StatusJson(Sample(), -1).find('\n') == std::string::npos);
}

TEST_CASE("An idle daemon's JSON has empty lists, not missing ones") {
  const auto json = nlohmann::json::parse(StatusJson(v1::Status(), 2));
  CHECK(json["lanes"].is_array());
  CHECK(json["jobs"].is_array());
  CHECK(json["domains"].is_array());
  CHECK(json["memory"]["total"] == 0);
}

TEST_CASE("The table says the same, fits the terminal, and holds no control characters") {
  const std::string text = StatusTable(Sample(), 0);
  for (const char* part :
       {"432 GiB", "-2.0 GiB headroom", "target 15, minted 14, idle 3, out 11", "run-1234-1",
        "waits: memory: 1.0 GiB short", "nvcc", "frozen", "3.0 GiB"})
    CHECK(text.find(part) != std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
  std::istringstream lines(StatusTable(Sample(), 40));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) CHECK(line.size() <= 40);
  CHECK(count == static_cast<int>(std::count(text.begin(), text.end(), '\n')));
  CHECK(StatusTable(v1::Status(), 0).find("no lanes") != std::string::npos);
}

}  // namespace
}  // namespace headroom::cli::status_test
