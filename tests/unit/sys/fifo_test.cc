// fifo, fifo_watch, folder.
#include "server/sys/fifo.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <iostream>

#include "server/sys/fifo_watch.h"
#include "server/sys/folder.h"
#include "tests/unit/sys/sys_fixture.h"

namespace headroom::sys {
namespace {

mode_t ModeOf(const std::string& path) {
  struct stat st = {};
  REQUIRE(lstat(path.c_str(), &st) == 0);
  return st.st_mode & 07777;
}

TEST_CASE("a fifo in a folder of its own") {
  const TempDir dir;
  const std::string path = dir / "lane/fifo";
  const auto fifo = Fifo::Create(path, getuid());
  REQUIRE(fifo.ok());
  CHECK(ModeOf(dir / "lane") == 0700);
  CHECK(ModeOf(path) == 0600);
  CHECK(*fifo->Idle() == 0);
  CHECK(*fifo->Put(5) == 5);
  CHECK(*fifo->Idle() == 5);
  CHECK(*fifo->Take(3) == 3);
  CHECK(*fifo->Idle() == 2);
  CHECK(*fifo->Take(10) == 2);
  CHECK(*fifo->Take(10) == 0);
  CHECK(*fifo->Put(0) == 0);
  CHECK(*fifo->Put(-1) == 0);
  CHECK(*fifo->Take(-1) == 0);
}

TEST_CASE("tokens outlive one who has the fifo open") {
  const TempDir dir;
  const std::string path = dir / "lane/fifo";
  auto first = Fifo::Create(path, getuid());
  REQUIRE(first.ok());
  REQUIRE(*first->Put(4) == 4);
  const int client = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(client >= 0);
  const FileId id = first->id();
  first = absl::CancelledError("the daemon is gone");
  const auto second = Fifo::Create(path, getuid());
  REQUIRE(second.ok());
  CHECK(second->id() == id);
  CHECK(*second->Idle() == 4);
  const auto opened = Fifo::Open(path);
  REQUIRE(opened.ok());
  CHECK(*opened->Idle() == 4);
  close(client);
}

TEST_CASE("what isn't our fifo is refused") {
  const TempDir dir;
  CHECK(Fifo::Open(dir / "none").status().code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(Fifo::Create("fifo", getuid()).ok());
  CHECK_FALSE(Fifo::Create("/fifo", getuid()).ok());
  CHECK_FALSE(Fifo::Create(dir / "lane/", getuid()).ok());
  CHECK(Fifo::Create(dir / "no/such/fifo", getuid()).status().code() ==
        absl::StatusCode::kNotFound);

  dir.Write("lane/fifo", "text");
  CHECK(Fifo::Create(dir / "lane/fifo", getuid()).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(Fifo::Open(dir / "lane/fifo").status().code() == absl::StatusCode::kFailedPrecondition);

  REQUIRE(mkfifo((dir / "elsewhere").c_str(), 0600) == 0);
  dir.MakeFolder("linked");
  REQUIRE(symlink((dir / "elsewhere").c_str(), (dir / "linked/fifo").c_str()) == 0);
  CHECK(Fifo::Create(dir / "linked/fifo", getuid()).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(Fifo::Open(dir / "linked/fifo").status().code() == absl::StatusCode::kFailedPrecondition);

  dir.MakeFolder("real");
  REQUIRE(symlink((dir / "real").c_str(), (dir / "symlink").c_str()) == 0);
  CHECK(Fifo::Create(dir / "symlink/fifo", getuid()).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  const auto folder_instead = EnsureFolder(dir / "lane/fifo", getuid());
  CHECK(folder_instead.status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("permissions that are too wide are narrowed") {
  const TempDir dir;
  dir.MakeFolder("lane");
  REQUIRE(chmod((dir / "lane").c_str(), 0777) == 0);
  REQUIRE(mkfifo((dir / "lane/fifo").c_str(), 0600) == 0);
  REQUIRE(chmod((dir / "lane/fifo").c_str(), 0666) == 0);
  REQUIRE(Fifo::Create(dir / "lane/fifo", getuid()).ok());
  CHECK(ModeOf(dir / "lane") == 0700);
  CHECK(ModeOf(dir / "lane/fifo") == 0600);
  REQUIRE(EnsureFolder(dir / "open", getuid(), 0755).ok());
  CHECK(ModeOf(dir / "open") == 0755);
  REQUIRE(EnsureFolder(dir / "lane", getuid(), 0755).ok());
  CHECK(ModeOf(dir / "lane") == 0700);  // never widened
}

TEST_CASE("root makes another user's lane, and takes no one else's") {
  if (geteuid() != 0) {
    std::cout << "SKIPPED: only root can make another user's files\n";
    return;
  }
  constexpr uid_t kOther = 65534;
  const TempDir dir;
  const auto fifo = Fifo::Create(dir / "lane/fifo", kOther);
  REQUIRE(fifo.ok());
  struct stat st = {};
  REQUIRE(stat((dir / "lane").c_str(), &st) == 0);
  CHECK(st.st_uid == kOther);
  REQUIRE(stat((dir / "lane/fifo").c_str(), &st) == 0);
  CHECK(st.st_uid == kOther);
  CHECK(Fifo::Create(dir / "lane/fifo", kOther).ok());
  const auto wrong = Fifo::Create(dir / "lane/fifo", 0);
  CHECK(wrong.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(wrong.status().message()), Catch::Contains("65534"));
  // A fifo of root's, linked into the user's folder by the user, is not given away.
  REQUIRE(mkfifo((dir / "roots").c_str(), 0600) == 0);
  REQUIRE(unlink((dir / "lane/fifo").c_str()) == 0);
  REQUIRE(link((dir / "roots").c_str(), (dir / "lane/fifo").c_str()) == 0);
  CHECK(Fifo::Create(dir / "lane/fifo", kOther).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  REQUIRE(stat((dir / "roots").c_str(), &st) == 0);
  CHECK(st.st_uid == 0);
}

TEST_CASE("a full fifo takes what fits") {
  const TempDir dir;
  const auto fifo = Fifo::Create(dir / "lane/fifo", getuid());
  REQUIRE(fifo.ok());
  const auto capacity = fifo->Reserve(1);
  REQUIRE(capacity.ok());
  REQUIRE(*capacity >= 4096);
  CHECK(*fifo->Put(*capacity + 1000) == *capacity);
  CHECK(*fifo->Put(1) == 0);
  CHECK(*fifo->Take(*capacity + 1) == *capacity);
  if (const auto grown = fifo->Reserve(*capacity + 1); grown.ok()) CHECK(*grown > *capacity);
  CHECK_FALSE(fifo->Reserve(int64_t{1} << 40).ok());
}

TEST_CASE("make's way of opening the fifo doesn't block while we hold it") {
  const TempDir dir;
  const auto fifo = Fifo::Create(dir / "lane/fifo", getuid());
  REQUIRE(fifo.ok());
  Child client([&] {
    alarm(10);
    const int in = open(fifo->path().c_str(), O_RDONLY);
    const int out = open(fifo->path().c_str(), O_WRONLY);
    char token = 0;
    if (in < 0 || out < 0 || read(in, &token, 1) != 1) return 1;
    return write(out, &token, 1) == 1 ? 0 : 1;
  });
  REQUIRE(*fifo->Put(1) == 1);
  CHECK(client.Wait() == 0);
  CHECK(*fifo->Idle() == 1);
}

TEST_CASE("inotify events") {
  const FifoHints hints = ParseFifoEvents(KernelText("inotify_events"));
  CHECK(hints.read);
  CHECK(hints.written);
  CHECK(hints.opened);
  CHECK_FALSE(hints.closed);
  CHECK_FALSE(ParseFifoEvents("").any());
  CHECK_FALSE(ParseFifoEvents("short").any());
  const std::string overflow("\xff\xff\xff\xff\x00\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
                             16);
  CHECK(ParseFifoEvents(overflow).closed);
  CHECK(ParseFifoEvents(overflow).read);
  // A name longer than what is there.
  const std::string long_name("\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00",
                              16);
  CHECK_FALSE(ParseFifoEvents(long_name).any());
}

TEST_CASE("hints for reads, writes, opens, closes and unlinking") {
  const TempDir dir;
  const auto fifo = Fifo::Create(dir / "lane/fifo", getuid());
  REQUIRE(fifo.ok());
  const auto watch = FifoWatch::Open(*fifo);
  REQUIRE(watch.ok());
  CHECK_FALSE(watch->Drain().any());
  const auto readable = [&] {
    pollfd poll_fd = {watch->fd(), POLLIN, 0};
    return poll(&poll_fd, 1, 1000) == 1;
  };
  REQUIRE(*fifo->Put(1) == 1);
  CHECK(readable());
  FifoHints hints = watch->Drain();
  CHECK(hints.written);
  CHECK_FALSE(hints.read);
  CHECK_FALSE(watch->Drain().any());
  REQUIRE(*fifo->Take(1) == 1);
  hints = watch->Drain();
  CHECK(hints.read);
  CHECK_FALSE(hints.written);
  int fd = open(fifo->path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(fd >= 0);
  CHECK(watch->Drain().opened);
  close(fd);
  CHECK(watch->Drain().closed);
  // A client that is killed closes, too.
  Child client([&] { return open(fifo->path().c_str(), O_RDONLY) < 0 ? 1 : Sleep(); });
  CHECK(Eventually([&] { return watch->Drain().opened; }));
  client.Kill();
  CHECK(Eventually([&] { return watch->Drain().closed; }));
  REQUIRE(unlink(fifo->path().c_str()) == 0);
  CHECK(watch->Drain().unlinked);
}

}  // namespace
}  // namespace headroom::sys
