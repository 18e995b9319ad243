#include "client/cli/paths.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/testing.h"

namespace headroom::cli {
namespace {

using Strings = std::vector<std::string>;
namespace fs = std::filesystem;

TEST_CASE("Where a daemon is looked for") {
  const auto root = FindPlaces({}, 0);
  REQUIRE(root.ok());
  CHECK(root->lookup == Strings{"/run/headroom"});
  CHECK(root->own == Strings{"/run/headroom"});

  const auto user = FindPlaces({{"XDG_RUNTIME_DIR", "/run/user/7"}}, 7);
  REQUIRE(user.ok());
  CHECK(user->lookup == Strings{"/run/headroom", "/run/user/7/headroom", "/tmp/headroom-7"});
  CHECK(user->own == Strings{"/run/user/7/headroom", "/tmp/headroom-7"});

  const auto bare = FindPlaces({}, 7);
  REQUIRE(bare.ok());
  CHECK(bare->lookup == Strings{"/run/headroom", "/tmp/headroom-7"});
  // A relative or endless XDG_RUNTIME_DIR is as none (XDG's rule).
  CHECK(FindPlaces({{"XDG_RUNTIME_DIR", "run"}}, 7)->own == Strings{"/tmp/headroom-7"});
  CHECK(FindPlaces({{"XDG_RUNTIME_DIR", "/" + std::string(200, 'x')}}, 7)->own ==
        Strings{"/tmp/headroom-7"});

  const auto named =
      FindPlaces({{"HEADROOM_RUNTIME_DIR", "/my/dir"}, {"XDG_RUNTIME_DIR", "/run/user/7"}}, 7);
  REQUIRE(named.ok());
  CHECK(named->lookup == Strings{"/my/dir"});
  CHECK(named->own == Strings{"/my/dir"});
}

TEST_CASE("A HEADROOM_RUNTIME_DIR that can't be used is named") {
  for (const std::string& dir : {std::string("relative"), "/" + std::string(120, 'x'),
                                 std::string("/my dir"), std::string("/$x"), std::string("/a'b")}) {
    const auto places = FindPlaces({{"HEADROOM_RUNTIME_DIR", dir}}, 7);
    REQUIRE(!places.ok());
    CHECK(std::string(places.status().message()).find("HEADROOM_RUNTIME_DIR") != std::string::npos);
    CHECK(std::string(places.status().message()).find(dir) != std::string::npos);
  }
}

TEST_CASE("A runtime folder is ours alone, or not used") {
  const testing::TempDir dir;
  const auto prepare = [&](const fs::path& path, uid_t uid = geteuid()) {
    return PrepareRuntimeDir(path.string(), uid);
  };
  CHECK(prepare(dir / "new").ok());
  struct stat status {};
  REQUIRE(stat((dir / "new").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0700);
  CHECK(prepare(dir / "new").ok());

  CHECK(!prepare(dir / "no" / "parent").ok());
  testing::WriteFile(dir / "file", "");
  CHECK(!prepare(dir / "file").ok());
  // A link could be turned to another folder later.
  fs::create_directory_symlink(dir / "new", dir / "link");
  CHECK(!prepare(dir / "link").ok());
  fs::create_directory(dir / "open");
  chmod((dir / "open").c_str(), 0777);
  const auto open = prepare(dir / "open");
  CHECK(!open.ok());
  CHECK(std::string(open.message()).find("chmod 700") != std::string::npos);
  // Somebody else's.
  const auto theirs = prepare(dir / "new", geteuid() + 1);
  CHECK(!theirs.ok());
  CHECK(std::string(theirs.message()).find("HEADROOM_RUNTIME_DIR") != std::string::npos);
}

TEST_CASE("Programs are found as execvp(3) finds them") {
  using Kind = Found::Kind;
  const testing::TempDir dir;
  fs::create_directories(dir / "a" / "folder");
  fs::create_directories(dir / "b");
  testing::WriteFile(dir / "a" / "plain", "");
  testing::WriteFile(dir / "b" / "plain", "");
  testing::WriteFile(dir / "b" / "tool", "");
  testing::WriteFile(dir / "b" / "folder", "");
  chmod((dir / "b" / "tool").c_str(), 0755);
  chmod((dir / "b" / "folder").c_str(), 0755);
  const Environment env = {
      {"PATH", (dir / "a").string() + ":" + (dir / "none").string() + ":" + (dir / "b").string()}};
  CHECK(FindProgram("tool", env).kind == Kind::kExecutable);
  CHECK(FindProgram("tool", env).path == (dir / "b" / "tool").string());
  CHECK(FindProgram("plain", env).kind == Kind::kNotExecutable);
  CHECK(FindProgram("folder", env).path == (dir / "b" / "folder").string());
  CHECK(FindProgram("nothing", env).kind == Kind::kNotFound);
  CHECK(FindProgram("", env).kind == Kind::kNotFound);
  CHECK(FindProgram((dir / "b" / "tool").string(), {}).kind == Kind::kExecutable);
  CHECK(FindProgram((dir / "a").string(), {}).kind == Kind::kNotExecutable);
  CHECK(FindProgram((dir / "a" / "plain").string(), {}).kind == Kind::kNotExecutable);
  CHECK(FindProgram((dir / "zzz").string(), {}).kind == Kind::kNotFound);
  // No PATH at all: the system's own.
  CHECK(FindProgram("sh", {}).kind == Kind::kExecutable);
}

TEST_CASE("The parts of Headroom are found beside the program") {
  const testing::TempDir dir;
  fs::create_directories(dir / "bin");
  const std::string own = (dir / "bin").string();
  const fs::path real = fs::canonical(dir.path());
  CHECK(FindPreload(own).empty());
  CHECK(FindPreload("").empty());
  testing::WriteFile(dir / "lib" / "libheadroom.so", "");
  CHECK(FindPreload(own) == (real / "lib" / "libheadroom.so").string());
  const fs::path preload = real / "lib" / "headroom" / "preload";
  fs::create_directories(preload / "libasan.so.first");
  CHECK(fs::equivalent(FindPreload(own), real / "lib" / "libheadroom.so"));
  // ld.so(8) puts the folder that fits the program for $LIB.
  testing::WriteFile(preload / "$LIB" / "libheadroom.so", "");
  CHECK(FindPreload(own) == preload.string() + "/libasan.so.first/../$LIB/libheadroom.so");
  const std::string plain = FindPreload(own, false);
  CHECK(plain.find('$') == std::string::npos);
  CHECK(plain.find("/libasan.so.first/") != std::string::npos);
  CHECK(fs::equivalent(plain, real / "lib" / "libheadroom.so"));

  CHECK(FindDaemon(own, {{"PATH", "/nowhere"}}).empty());
  testing::WriteFile(dir / "bin" / "headroomd", "");
  CHECK(FindDaemon(own, {{"PATH", "/nowhere"}}).empty());
  chmod((dir / "bin" / "headroomd").c_str(), 0755);
  CHECK(FindDaemon(own, {{"PATH", "/nowhere"}}) == own + "/headroomd");
  CHECK(FindDaemon("/nowhere", {{"PATH", own}}) == own + "/headroomd");
}

}  // namespace
}  // namespace headroom::cli
