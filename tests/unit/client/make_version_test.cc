#include "client/cli/make_version.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/support/testing.h"

namespace headroom::cli {
namespace {

constexpr auto kOld = MakeAbility::kOldDescriptors;
constexpr auto kDescriptors = MakeAbility::kDescriptors;
constexpr auto kFifo = MakeAbility::kFifo;

TEST_CASE("make --version, verbatim first lines") {
  struct Case {
    const char* text;
    std::optional<MakeAbility> ability;
    const char* version;
  };
  const Case cases[] = {
      {"GNU Make 3.81\nCopyright (C) 2006", kOld, "3.81"},
      {"GNU Make 4.1\nBuilt for x86_64-pc-linux-gnu", kOld, "4.1"},
      {"GNU Make 4.2.1\nBuilt for x86_64-pc-linux-gnu", kDescriptors, "4.2.1"},
      {"GNU Make 4.3\nBuilt for x86_64-pc-linux-gnu", kDescriptors, "4.3"},
      {"GNU Make 4.4\n", kFifo, "4.4"},
      {"GNU Make 4.4.1\nBuilt for x86_64-pc-linux-gnu", kFifo, "4.4.1"},
      {"GNU Make 4.10\n", kFifo, "4.10"},
      {"GNU Make 5\n", kFifo, "5"},
      {"GNU Make 4.4.90-git\r\n", kFifo, "4.4.90-git"},
      {"bmake 20200710", std::nullopt, ""},
      {"GNU Make four", std::nullopt, "four"},
      {"", std::nullopt, ""},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    CHECK(AbilityFromVersion(c.text) == c.ability);
    CHECK(VersionText(c.text) == c.version);
  }
}

TEST_CASE("A make's own strings") {
  const std::string elf =
      "\x7f"
      "ELF....";
  CHECK(AbilityFromImage(elf + "jobserver-fds") == kOld);
  CHECK(AbilityFromImage(elf + "jobserver-auth jobserver-fds") == kDescriptors);
  CHECK(AbilityFromImage(elf + "jobserver jobserver-fifo jobserver-auth jobserver-fds") == kFifo);
  CHECK(AbilityFromImage(elf + "something else") == std::nullopt);
  CHECK(AbilityFromImage("#!/bin/sh\n# jobserver-fds jobserver-fifo") == std::nullopt);
  CHECK(AbilityFromImage("") == std::nullopt);
}

TEST_CASE("Names of make") {
  for (const char* name :
       {"make", "gmake", "gnumake", "/usr/bin/make", "make-4.3", "make4", "gmake-4.4"})
    CHECK(IsMakeName(name));
  for (const char* name :
       {"cmake", "bmake", "makeinfo", "automake", "qmake", "make/", "", "nmake", "makefile"})
    CHECK(!IsMakeName(name));
}

TEST_CASE("The makes of this machine, under every name") {
  const auto system = testing::FindProgram("make");
  REQUIRE(system);
  const std::string version = testing::Run({system->string(), "--version"}).out;
  const auto expected = AbilityFromVersion(version);
  REQUIRE(expected);
  const auto direct = ProbeMake(system->string());
  REQUIRE(direct);
  CHECK(direct->ability == *expected);

  const testing::TempDir dir;
  std::filesystem::create_symlink(*system, dir / "build-it");
  // A link with another name is the same make.
  const auto linked = ProbeMake((dir / "build-it").string());
  REQUIRE(linked);
  CHECK(linked->ability == *expected);
  // A wrapper script is asked for its version.
  testing::WriteFile(dir / "gmake", "#!/bin/sh\nexec " + system->string() + " \"$@\"\n");
  chmod((dir / "gmake").c_str(), 0755);
  const auto wrapped = ProbeMake((dir / "gmake").string());
  REQUIRE(wrapped);
  CHECK(wrapped->ability == *expected);
}

TEST_CASE("make 4.4.1 of PyPI") {
  const auto make = testing::VenvTool("make");
  if (!make) {
    std::puts("SKIPPED: build/venv has no make");
    return;
  }
  const auto found = ProbeMake(make->string());
  REQUIRE(found);
  CHECK(found->ability == kFifo);
}

TEST_CASE("What is no make, or says nothing, is none") {
  const testing::TempDir dir;
  CHECK(!ProbeMake((dir / "make").string()));
  testing::WriteFile(dir / "make", "#!/bin/sh\nexit 1\n");
  chmod((dir / "make").c_str(), 0755);
  CHECK(!ProbeMake((dir / "make").string()));
  CHECK(!ProbeMake("/bin/true"));
  // One that hangs is given up after two seconds.
  testing::WriteFile(dir / "gmake", "#!/bin/sh\nexec sleep 60\n");
  chmod((dir / "gmake").c_str(), 0755);
  CHECK(!ProbeMake((dir / "gmake").string()));
}

}  // namespace
}  // namespace headroom::cli
