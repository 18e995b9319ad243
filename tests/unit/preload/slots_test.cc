#include "client/preload/slots.h"

#include <time.h>

#include <catch2/catch.hpp>
#include <set>

#include "client/preload/proc.h"
#include "tests/support/testing.h"

namespace headroom::preload {
namespace {

uint64_t Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

constexpr uint64_t kMega = 1'000'000;

TEST_CASE("one by one through the door, up to the number of slots") {
  const headroom::testing::TempDir lane;
  const std::string path = lane.path().string();
  Slots first;
  Slots second;
  Slots third;
  for (Slots* slots : {&first, &second, &third}) slots->Open(View(path.c_str()), 2);
  uint64_t now = Now();
  CHECK(first.TryEnter(kMega, false, false, now));
  CHECK(first.held());
  // The door is shut behind it.
  CHECK(!second.TryEnter(kMega, false, false, now));
  CHECK(first.Tend(now) > 0);
  CHECK(first.Tend(now + 2'000 * kMega) == 0);
  CHECK(second.TryEnter(kMega, false, false, now));
  CHECK(second.Tend(now + 2'000 * kMega) == 0);
  // Both slots are taken.
  CHECK(!third.TryEnter(kMega, false, false, now));
  third.Release();
  // A nested one goes beyond them.
  CHECK(third.TryEnter(kMega, false, true, now));
  third.Release();
  first.Release();
  CHECK(third.TryEnter(kMega, false, false, now));
}

TEST_CASE("what is larger than the memory waits until nothing else runs") {
  const headroom::testing::TempDir lane;
  const std::string path = lane.path().string();
  Slots first;
  Slots second;
  first.Open(View(path.c_str()), 8);
  second.Open(View(path.c_str()), 8);
  const uint64_t now = Now();
  constexpr uint64_t kHuge = uint64_t{1} << 50;
  CHECK(first.TryEnter(kHuge, false, false, now));
  CHECK(first.Tend(now + 2'000 * kMega) == 0);
  // What the first may still grow by is taken from what is there.
  CHECK(!second.TryEnter(kMega, false, false, now));
  first.Release();
  CHECK(second.TryEnter(kHuge, false, false, now));
}

TEST_CASE("alone: nobody else before it ends") {
  const headroom::testing::TempDir lane;
  const std::string path = lane.path().string();
  Slots first;
  Slots second;
  first.Open(View(path.c_str()), 8);
  second.Open(View(path.c_str()), 8);
  const uint64_t now = Now();
  CHECK(first.TryEnter(kMega, true, false, now));
  CHECK(first.Tend(now + 10'000 * kMega) == 0);
  CHECK(!second.TryEnter(kMega, false, false, now + 10'000 * kMega));
  first.Release();
  CHECK(second.TryEnter(kMega, false, false, now));
  CHECK(second.Tend(now + 2'000 * kMega) == 0);
  CHECK(!first.TryEnter(kMega, true, false, now));
  second.Release();
  CHECK(first.TryEnter(kMega, true, false, now));
}

TEST_CASE("a slot taken without asking is seen by the others") {
  const headroom::testing::TempDir lane;
  const std::string path = lane.path().string();
  Slots running;
  running.Open(View(path.c_str()), 1);
  running.Enter(kMega);
  running.SetWorker(kMega, 77);
  CHECK(headroom::testing::ReadFile(lane / "slots/0") == "1000000 77\n");
  Slots other;
  other.Open(View(path.c_str()), 1);
  CHECK(!other.TryEnter(kMega, false, false, Now()));
}

TEST_CASE("silence is known for a while") {
  const headroom::testing::TempDir lane;
  const std::string path = lane.path().string();
  Slots slots;
  slots.Open(View(path.c_str()), 1);
  const uint64_t now = Now();
  CHECK(!slots.IsSilenceKnown(now));
  slots.NoteSilence(now);
  CHECK(slots.IsSilenceKnown(now + 1));
  CHECK(!slots.IsSilenceKnown(now + 60'000 * kMega));
  CHECK(!slots.IsSilenceKnown(now - 1));  // Written before the machine was started again.
}

TEST_CASE("a lane that can't be written to: all go, not at the same moment") {
  Slots slots;
  slots.Open("/proc/nowhere", 1);
  const uint64_t now = Now();
  slots.TryEnter(kMega, false, false, now);
  CHECK(slots.TryEnter(kMega, false, false, now + 1'000 * kMega));
  CHECK(!slots.held());
}

TEST_CASE("jitter spreads") {
  std::set<uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t value = Jitter(100);
    CHECK(value < 100);
    seen.insert(value);
  }
  CHECK(seen.size() > 50);
  CHECK(Jitter(0) == 0);
}

}  // namespace
}  // namespace headroom::preload
