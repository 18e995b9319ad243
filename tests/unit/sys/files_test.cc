// file, text, folder paths, lock_file, peer, filesystem.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "server/sys/fifo.h"
#include "server/sys/file.h"
#include "server/sys/filesystem.h"
#include "server/sys/folder.h"
#include "server/sys/lock_file.h"
#include "server/sys/peer.h"
#include "server/sys/text.h"
#include "tests/unit/sys/sys_fixture.h"

namespace headroom::sys {
namespace {

TEST_CASE("text") {
  std::string_view rest = "a\n\nb";
  CHECK(NextLine(rest) == "a");
  CHECK(NextLine(rest) == "");
  CHECK(NextLine(rest) == "b");
  CHECK_FALSE(NextLine(rest));
  rest = "  x\ty ";
  CHECK(NextField(rest) == "x");
  CHECK(NextField(rest) == "y");
  CHECK(NextField(rest).empty());
  CHECK(ParseNumber<int>("12") == 12);
  CHECK_FALSE(ParseNumber<int>("12 "));
  CHECK_FALSE(ParseNumber<int>(""));
  CHECK_FALSE(ParseNumber<int>("+1"));
  CHECK_FALSE(ParseNumber<int>("99999999999"));
  CHECK_FALSE(ParseNumber<unsigned>("-1"));
  CHECK(CheckedMultiply(3, 4) == 12);
  CHECK_FALSE(CheckedMultiply(INT64_MAX, 2));
  CHECK_FALSE(CheckedMultiply(-1, 2));
  CHECK(SaturatingAdd(INT64_MAX, 1) == INT64_MAX);
}

TEST_CASE("descriptors have one owner") {
  int raw = -1;
  {
    UniqueFd first(open("/dev/null", O_RDONLY | O_CLOEXEC));
    raw = first.get();
    REQUIRE(raw >= 0);
    UniqueFd second(std::move(first));
    CHECK_FALSE(first);  // NOLINT: what moving leaves is promised
    CHECK(second.get() == raw);
    second = std::move(second);
    CHECK(second.get() == raw);
  }
  CHECK(fcntl(raw, F_GETFD) == -1);
}

TEST_CASE("small files") {
  const TempDir dir;
  CHECK(ReadFile(dir / "none").status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(ReadFile(dir / "none").status().message()), Catch::Contains(dir / "none"));
  const std::string text(100000, 'x');
  dir.Write("file", text);
  CHECK(*ReadFile(dir / "file") == text);
  CHECK(ReadFile(dir / "file", 10)->size() == 10);
  CHECK(WriteFile(dir / "file", "y").ok());
  CHECK(WriteFile(dir / "none", "y").code() == absl::StatusCode::kNotFound);
  CHECK_FALSE(ReadFile(dir.path()).ok());  // a folder
  // A fifo in a file's place must not hang us.
  REQUIRE(mkfifo((dir / "fifo").c_str(), 0600) == 0);
  CHECK(ReadFile(dir / "fifo")->empty());
  const auto kept = KeptFile::Open(dir / "file");
  REQUIRE(kept.ok());
  char buffer[16];
  CHECK(kept->Read(buffer)->size() == 16);
  CHECK_FALSE(KeptFile().Read(buffer));
  CHECK_FALSE(KeptFile::OpenOptionalAt(AT_FDCWD, dir / "none"));
}

TEST_CASE("folders") {
  const TempDir dir;
  CHECK_FALSE(EnsureFolder("", getuid()).ok());
  CHECK_FALSE(EnsureFolder("///", getuid()).ok());
  REQUIRE(EnsureFolder(dir / "a//", getuid()).ok());
  CHECK(EnsureFolder(dir / "b/c", getuid()).status().code() == absl::StatusCode::kNotFound);
  const mode_t before = umask(0777);
  const auto made = EnsureFolder(dir / "umask", getuid());
  umask(before);
  REQUIRE(made.ok());
  struct stat st = {};
  REQUIRE(stat((dir / "umask").c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0700);
  umask(0777);
  const auto fifo = Fifo::Create(dir / "umask2/fifo", getuid());
  umask(before);
  REQUIRE(fifo.ok());
  REQUIRE(stat((dir / "umask2/fifo").c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0600);
}

TEST_CASE("a lock is one process's") {
  const TempDir dir;
  const std::string path = dir / "lock";
  CHECK_FALSE(LockFile::Holder(path));
  {
    const auto lock = LockFile::Acquire(path);
    REQUIRE(lock.ok());
    CHECK(LockFile::Holder(path) == getpid());
    const auto second = LockFile::Acquire(path);
    CHECK(second.status().code() == absl::StatusCode::kAlreadyExists);
    CHECK_THAT(std::string(second.status().message()),
               Catch::Contains(path) && Catch::Contains(std::to_string(getpid())));
    Child child([&path] { return LockFile::Holder(path) == getppid() ? 0 : 1; });
    CHECK(child.Wait() == 0);
    CHECK(LockFile::Holder(path) == getpid());  // asking doesn't take it
  }
  CHECK_FALSE(LockFile::Holder(path));
  CHECK(*ReadFile(path) == std::to_string(getpid()) + "\n");
  CHECK(LockFile::Acquire(path).ok());
  CHECK(LockFile::Acquire(dir / "no/lock").status().code() == absl::StatusCode::kNotFound);
  REQUIRE(symlink("elsewhere", (dir / "link").c_str()) == 0);
  CHECK_FALSE(LockFile::Acquire(dir / "link").ok());
  dir.MakeFolder("folder");
  CHECK_FALSE(LockFile::Acquire(dir / "folder").ok());
}

TEST_CASE("a lock goes with its process") {
  const TempDir dir;
  const std::string path = dir / "lock";
  Child child([&path] {
    const auto lock = LockFile::Acquire(path);
    return lock.ok() ? Sleep() : 1;
  });
  REQUIRE(Eventually([&] { return LockFile::Holder(path) == child.pid(); }));
  child.Kill();
  child.Wait();
  CHECK_FALSE(LockFile::Holder(path));
  CHECK(LockFile::Acquire(path).ok());
}

TEST_CASE("the peer of a socket") {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  const auto peer = ReadPeerCredentials(fds[0]);
  REQUIRE(peer.ok());
  CHECK(peer->pid == getpid());
  CHECK(peer->uid == geteuid());
  CHECK(peer->gid == getegid());
  close(fds[0]);
  close(fds[1]);
  CHECK_FALSE(ReadPeerCredentials(-1).ok());
}

TEST_CASE("free space") {
  const TempDir dir;
  const auto space = ReadFilesystemSpace(dir.path());
  REQUIRE(space.ok());
  CHECK(space->total_bytes > 0);
  CHECK(space->available_bytes <= space->total_bytes);
  if (const auto shm = ReadFilesystemSpace("/dev/shm"); shm.ok()) CHECK(shm->in_memory);
  CHECK_FALSE(ReadFilesystemSpace("/proc")->in_memory);
  CHECK(ReadFilesystemSpace(dir / "none").status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace headroom::sys
