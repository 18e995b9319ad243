#include "client/cli/quoting.h"

#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/testing.h"

namespace headroom::cli {
namespace {

const std::vector<std::string> kHostile = {
    "",
    "plain",
    "a b",
    "it's",
    "$HOME `id` $(id)",
    "back\\slash\\",
    "\"double\"",
    "two\nlines",
    "*?[x]~",
    "'''",
    "!!",
    "\\'",
    "tab\there",
    "ü€",
};

// What the shell makes of the line: the variable as a child of the shell sees it.
std::string Ask(const std::string& shell, const std::string& line) {
  const auto result = testing::Run({shell, "-c", line + "printenv HEADROOM_TEST_VALUE"});
  REQUIRE(result.exit_code == 0);
  return result.out;
}

TEST_CASE("sh and bash read back exactly what was quoted") {
  for (const char* shell : {"/bin/sh", "/bin/bash"}) {
    for (const std::string& value : kHostile) {
      INFO(shell << ": " << value);
      const auto line = SetLine(ShellFormat::kSh, "HEADROOM_TEST_VALUE", value);
      REQUIRE(line.ok());
      CHECK(Ask(shell, *line) == value + "\n");
    }
    const auto set = SetLine(ShellFormat::kSh, "HEADROOM_TEST_VALUE", "x");
    const std::string unset = UnsetLine(ShellFormat::kSh, "HEADROOM_TEST_VALUE");
    CHECK(testing::Run({shell, "-c", *set + unset + "printenv HEADROOM_TEST_VALUE"}).exit_code ==
          1);
  }
}

TEST_CASE("fish reads back exactly what was quoted") {
  const auto fish = testing::FindProgram("fish");
  if (!fish) {
    std::puts("SKIPPED: fish is not installed");
    return;
  }
  for (const std::string& value : kHostile) {
    INFO(value);
    const auto line = SetLine(ShellFormat::kFish, "HEADROOM_TEST_VALUE", value);
    REQUIRE(line.ok());
    CHECK(Ask(fish->string(), *line) == value + "\n");
  }
}

TEST_CASE("fish's quoting, by its manual") {
  CHECK(QuoteFish("it's") == "'it\\'s'");
  CHECK(QuoteFish("a\\b") == "'a\\\\b'");
  CHECK(*SetLine(ShellFormat::kFish, "A", "x y") == "set -gx A 'x y';\n");
  CHECK(UnsetLine(ShellFormat::kFish, "A") == "set -e A;\n");
}

TEST_CASE("systemd's files: what they would change is refused") {
  CHECK(*SetLine(ShellFormat::kSystemd, "A", " -j4 --jobserver-auth=fifo:/r/f") ==
        "A=\" -j4 --jobserver-auth=fifo:/r/f\"\n");
  CHECK(*SetLine(ShellFormat::kSystemd, "A", "it's") == "A=\"it's\"\n");
  for (const char* value : {"$HOME", "`id`", "\"", "a\\b", "two\nlines", "\x7f"}) {
    const auto line = SetLine(ShellFormat::kSystemd, "A", value);
    CHECK(!line.ok());
    CHECK(line.status().message().find("HEADROOM_RUNTIME_DIR") != std::string::npos);
  }
  CHECK(UnsetLine(ShellFormat::kSystemd, "A") == "A=\n");
}

TEST_CASE("docker's words: one word each, whatever is in the value") {
  CHECK(*SetLine(ShellFormat::kDocker, "MAKEFLAGS", " -j4 --x='y'") ==
        "--env 'MAKEFLAGS= -j4 --x='\\''y'\\''' ");
  CHECK(UnsetLine(ShellFormat::kDocker, "A").empty());
}

}  // namespace
}  // namespace headroom::cli
