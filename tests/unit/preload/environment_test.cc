#include "client/preload/environment.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace headroom::preload {
namespace {

TEST_CASE("only variables of exactly these names count") {
  std::vector<std::string> texts = {"PATH=/bin",
                                    "HEADROOM_LANEX=/no",
                                    "HEADROOM_LANE=/l",
                                    "HEADROOM_GATE=0",
                                    "HEADROOM_TOOLS=+x",
                                    "HEADROOM_CORES=7",
                                    "XHEADROOM_LANE=/no",
                                    "MAKEFLAGSX=no",
                                    "MAKEFLAGS= -j2",
                                    "HEADROOM_LAN=/no",
                                    "HEADROOM_LANE",
                                    "H",
                                    "HE",
                                    ""};
  std::vector<char*> entries;
  for (std::string& text : texts) entries.push_back(text.data());
  entries.push_back(nullptr);
  const Environment environment = ReadEnvironment(entries.data());
  CHECK(Equal(environment.lane, "/l"));
  CHECK(Equal(environment.gate, "0"));
  CHECK(Equal(environment.tools, "+x"));
  CHECK(Equal(environment.cores, "7"));
  REQUIRE(environment.makeflags != nullptr);
  CHECK(std::string(*environment.makeflags) == "MAKEFLAGS= -j2");
  CHECK(!environment.empty());
}

TEST_CASE("an empty environment") {
  char* entries[] = {nullptr};
  CHECK(ReadEnvironment(entries).empty());
  CHECK(ReadEnvironment(nullptr).empty());
}

}  // namespace
}  // namespace headroom::preload
