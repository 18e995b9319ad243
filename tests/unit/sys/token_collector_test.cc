#include "server/sys/token_collector.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "server/sys/fifo.h"
#include "tests/unit/sys/sys_fixture.h"

namespace headroom::sys {
namespace {

std::unique_ptr<TokenCollector> StartCollector(TokenCollector::Options options = {}) {
  auto collector = TokenCollector::Start(options);
  REQUIRE(collector.ok());
  return std::move(*collector);
}

bool Signalled(const TokenCollector& collector) {
  pollfd poll_fd = {collector.event_fd(), POLLIN, 0};
  return poll(&poll_fd, 1, 0) == 1;
}

double ProcessCpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST_CASE("debt is collected, and not a token more") {
  const TempDir dir;
  const auto fifo = Fifo::Create(dir / "lane/fifo", getuid());
  REQUIRE(fifo.ok());
  REQUIRE(*fifo->Put(10) == 10);
  const auto collector = StartCollector();
  CHECK(collector->threads() >= 1);
  REQUIRE(collector->Add(1, fifo->fd()).ok());
  CHECK_FALSE(Signalled(*collector));
  CHECK(collector->SetDebt(1, 3) == 0);
  REQUIRE(Eventually([&] { return Signalled(*collector); }));
  int64_t taken = 0;
  CHECK(Eventually([&] { return (taken += collector->TakeCollected(1)) == 3; }));
  CHECK(*fifo->Idle() == 7);
  // Tokens that come back while there is no debt stay.
  REQUIRE(*fifo->Put(5) == 5);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(*fifo->Idle() == 12);
  CHECK(collector->TakeCollected(1) == 0);
}

TEST_CASE("tokens are collected as they come back") {
  const TempDir dir;
  const auto fifo = Fifo::Create(dir / "lane/fifo", getuid());
  REQUIRE(fifo.ok());
  const auto collector = StartCollector();
  REQUIRE(collector->Add(1, fifo->fd()).ok());
  collector->SetDebt(1, 4);
  int64_t taken = 0;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(*fifo->Put(1) == 1);
    CHECK(Eventually([&] { return (taken += collector->TakeCollected(1)) == i + 1; }));
  }
  REQUIRE(*fifo->Put(1) == 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(*fifo->Idle() == 1);
}

TEST_CASE("a debt counts what was collected before it was known") {
  const TempDir dir;
  const auto fifo = Fifo::Create(dir / "lane/fifo", getuid());
  REQUIRE(fifo.ok());
  REQUIRE(*fifo->Put(10) == 10);
  const auto collector = StartCollector();
  REQUIRE(collector->Add(1, fifo->fd()).ok());
  collector->SetDebt(1, 5);
  REQUIRE(Eventually([&] { return *fifo->Idle() == 5; }));
  // The caller still thinks that 5 are owed, and makes it 7: two more go, not seven.
  CHECK(collector->SetDebt(1, 7) == 5);
  REQUIRE(Eventually([&] { return *fifo->Idle() == 3; }));
  // It withdraws the debt, one of which it doesn't know that it was paid.
  CHECK(collector->SetDebt(1, 0) == 2);
  CHECK(collector->SetDebt(1, -5) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(*fifo->Idle() == 3);
}

TEST_CASE("lanes are separate, and end") {
  const TempDir dir;
  const auto a = Fifo::Create(dir / "a/fifo", getuid());
  const auto b = Fifo::Create(dir / "b/fifo", getuid());
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  const auto collector = StartCollector();
  REQUIRE(collector->Add(1, a->fd()).ok());
  REQUIRE(collector->Add(2, b->fd()).ok());
  CHECK(collector->Add(1, b->fd()).code() == absl::StatusCode::kAlreadyExists);
  REQUIRE(*a->Put(5) == 5);
  REQUIRE(*b->Put(5) == 5);
  collector->SetDebt(2, 2);
  REQUIRE(Eventually([&] { return *b->Idle() == 3; }));
  CHECK(*a->Idle() == 5);
  CHECK(collector->TakeCollected(1) == 0);
  collector->SetDebt(1, 100);
  REQUIRE(Eventually([&] { return *a->Idle() == 0; }));
  const auto left = collector->Remove(1);
  REQUIRE(left.ok());
  CHECK(*left == 5);
  REQUIRE(*a->Put(5) == 5);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(*a->Idle() == 5);
  CHECK(collector->Remove(1).status().code() == absl::StatusCode::kNotFound);
  CHECK(collector->SetDebt(1, 5) == 0);
  CHECK(collector->TakeCollected(1) == 0);
  CHECK(*collector->Remove(2) == 2);
}

TEST_CASE("a lane that is no such fifo is refused or given up") {
  const auto collector = StartCollector();
  CHECK_FALSE(collector->Add(1, -1).ok());
  int blocking[2];
  REQUIRE(pipe2(blocking, O_CLOEXEC) == 0);
  CHECK(collector->Add(1, blocking[0]).code() == absl::StatusCode::kInvalidArgument);
  close(blocking[0]);
  close(blocking[1]);
  // A pipe whose writers are gone is always "readable": no real-time loop on it.
  int ended[2];
  REQUIRE(pipe2(ended, O_CLOEXEC | O_NONBLOCK) == 0);
  close(ended[1]);
  REQUIRE(collector->Add(1, ended[0]).ok());
  collector->SetDebt(1, 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = ProcessCpuSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(ProcessCpuSeconds() - before < 0.1);
  close(ended[0]);
}

TEST_CASE("without debt, and with one that can't be paid, it costs nothing") {
  const TempDir dir;
  const auto fifo = Fifo::Create(dir / "lane/fifo", getuid());
  REQUIRE(fifo.ok());
  const auto collector = StartCollector();
  REQUIRE(collector->Add(1, fifo->fd()).ok());
  const auto cost = [] {
    const double before = ProcessCpuSeconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return ProcessCpuSeconds() - before;
  };
  REQUIRE(*fifo->Put(5) == 5);
  CHECK(cost() < 0.02);
  collector->SetDebt(1, 8);
  REQUIRE(Eventually([&] { return *fifo->Idle() == 0; }));
  CHECK(cost() < 0.02);
}

TEST_CASE("scheduling is as good as the kernel allows") {
  const auto realtime = StartCollector();
  const auto ordinary = StartCollector({1, false});
  CHECK(ordinary->threads() == 1);
  CHECK(ordinary->scheduling() != TokenCollector::Scheduling::kRealtime);
  WARN("scheduling: " << static_cast<int>(realtime->scheduling()) << " with " << realtime->threads()
                      << " threads; without real time "
                      << static_cast<int>(ordinary->scheduling()));
  if (geteuid() == 0) CHECK(realtime->scheduling() == TokenCollector::Scheduling::kRealtime);
}

TEST_CASE("tokens are conserved between clients, collector and a daemon that changes its mind") {
  const TempDir dir;
  const auto fifo = Fifo::Create(dir / "lane/fifo", getuid());
  REQUIRE(fifo.ok());
  constexpr int64_t kMinted = 16;
  REQUIRE(*fifo->Put(kMinted) == kMinted);
  const auto collector = StartCollector();
  REQUIRE(collector->Add(1, fifo->fd()).ok());

  std::atomic<bool> stop{false};
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back([&] {
      const auto own = Fifo::Open(fifo->path());
      while (!stop) {
        pollfd poll_fd = {own->fd(), POLLIN, 0};
        if (poll(&poll_fd, 1, 5) != 1) continue;
        if (*own->Take(1) == 1) {
          std::this_thread::yield();
          while (*own->Put(1) != 1) {
          }
        }
      }
    });
  }
  // minted = what the daemon knows; it takes tokens away and puts them back.
  std::mt19937 random(7);
  int64_t minted = kMinted;
  for (int step = 0; step < 300; ++step) {
    const int64_t target = static_cast<int64_t>(random() % (kMinted + 1));
    if (target < minted) {
      minted -= collector->SetDebt(1, minted - target);
    } else {
      minted -= collector->SetDebt(1, 0);
      if (target > minted) {
        REQUIRE(*fifo->Put(target - minted) == target - minted);
        minted = target;
      }
    }
    REQUIRE(minted >= 0);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  }
  minted -= collector->SetDebt(1, 0);
  stop = true;
  for (std::thread& client : clients) client.join();
  CHECK(*fifo->Idle() == minted);
  CHECK(*collector->Remove(1) == 0);
}

TEST_CASE("calls from many threads") {
  const TempDir dir;
  const auto fifo = Fifo::Create(dir / "lane/fifo", getuid());
  REQUIRE(fifo.ok());
  const auto collector = StartCollector();
  std::vector<std::thread> threads;
  for (uint64_t lane = 1; lane <= 4; ++lane) {
    threads.emplace_back([&, lane] {
      for (int i = 0; i < 50; ++i) {
        if (!collector->Add(lane, fifo->fd()).ok()) continue;
        collector->SetDebt(lane, 2);
        [[maybe_unused]] const auto put = fifo->Put(2);
        collector->TakeCollected(lane);
        [[maybe_unused]] const auto left = collector->Remove(lane);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(collector->Remove(1).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace headroom::sys
