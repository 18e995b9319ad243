#include "client/cli/heartbeat.h"

#include <catch2/catch.hpp>
#include <chrono>

namespace headroom::cli::heartbeat_test {
namespace {

using std::chrono::seconds;

constexpr uint64_t kGiB = uint64_t{1} << 30;
const Heartbeat::Time kStart{seconds(1000)};

v1::Status Stuck(int for_seconds) {
  v1::Status status;
  v1::Lane* lane = status.add_lanes();
  lane->mutable_waits_in()->set_total(10 * kGiB);
  lane->mutable_waits_in()->set_available(static_cast<int64_t>(kGiB / 2));
  lane->set_dir("/run/lane");
  lane->set_cores(16);
  lane->set_tools_running(3);
  lane->set_tools_waiting(12);
  lane->set_stuck_ns(static_cast<uint64_t>(for_seconds) * 1'000'000'000u);
  lane->set_tools_bytes(9 * kGiB);
  return status;
}

TEST_CASE("a build that stands for want of memory says so, ever less often") {
  Heartbeat heartbeat;
  CHECK(!heartbeat.Look(Stuck(9), "/run/lane", kStart));
  CHECK(heartbeat.Look(Stuck(10), "/run/lane", kStart + seconds(1)) ==
        "12 tools wait for memory: 3 running take 9.0 GiB of 10.0 GiB");
  int lines = 0;
  for (int t = 2; t < 3600; t += 2) {
    if (heartbeat.Look(Stuck(10 + t), "/run/lane", kStart + seconds(t))) ++lines;
  }
  CHECK(lines >= 8);
  CHECK(lines <= 10);
}

TEST_CASE("a build that goes on, waits for cores, or has ended says nothing") {
  Heartbeat heartbeat;
  CHECK(!heartbeat.Look(v1::Status(), "/run/lane", kStart));
  CHECK(!heartbeat.Look(Stuck(100), "/run/other", kStart));
  v1::Status status = Stuck(100);
  status.mutable_lanes(0)->set_tools_waiting(0);
  CHECK(!heartbeat.Look(status, "/run/lane", kStart));
  status = Stuck(100);
  status.mutable_lanes(0)->set_tools_running(16);
  CHECK(!heartbeat.Look(status, "/run/lane", kStart));
  // Another build has the cores.
  status = Stuck(100);
  v1::Lane* other = status.add_lanes();
  other->set_dir("/run/other");
  other->set_tools_running(13);
  CHECK(!heartbeat.Look(status, "/run/lane", kStart));
  other->set_tools_running(12);
  CHECK(heartbeat.Look(status, "/run/lane", kStart));
}

TEST_CASE("what others take is told where it is the reason") {
  Heartbeat heartbeat;
  v1::Status status = Stuck(60);
  status.mutable_lanes(0)->set_tools_bytes(kGiB);
  status.mutable_lanes(0)->set_tools_running(1);
  status.mutable_lanes(0)->set_tools_waiting(1);
  CHECK(heartbeat.Look(status, "/run/lane", kStart) ==
        "1 tool waits for memory: 1 running takes 1.0 GiB of 10.0 GiB, other processes 8.5 GiB");
}

}  // namespace
}  // namespace headroom::cli::heartbeat_test
