#include "client/cli/tool_version.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "tests/support/testing.h"

namespace headroom::cli {
namespace {

TEST_CASE("Versions, as tools really say them") {
  CHECK(FirstVersion("1.13.2.git.kitware.jobserver-pipe-1\n") == Version{1, 13});
  CHECK(FirstVersion("1.11.1\n") == Version{1, 11});
  CHECK(FirstVersion("cargo 1.63.0\n") == Version{1, 63});
  CHECK(FirstVersion("GNU Make 4.3\nBuilt for x86_64-pc-linux-gnu\n") == Version{4, 3});
  CHECK(FirstVersion("1.9.0") == Version{1, 9});
  CHECK(FirstVersion("") == std::nullopt);
  CHECK(FirstVersion("version 7") == std::nullopt);
  CHECK(FirstVersion("99999999999.1") == std::nullopt);
  CHECK(VersionOfNvcc("nvcc: NVIDIA (R) Cuda compiler driver\n"
                      "Copyright (c) 2005-2025 NVIDIA Corporation\n"
                      "Built on Wed_Aug_20_01:58:59_PM_PDT_2025\n"
                      "Cuda compilation tools, release 13.0, V13.0.88\n") == Version{13, 0});
  CHECK(VersionOfNvcc("Cuda compilation tools, release 12.8, V12.8.93") == Version{12, 8});
  CHECK(VersionOfNvcc("13.0") == std::nullopt);
}

TEST_CASE("Who takes tokens") {
  CHECK(NinjaTakesTokens({1, 13}));
  CHECK(NinjaTakesTokens({2, 0}));
  CHECK(!NinjaTakesTokens({1, 12}));
  CHECK(NvccTakesTokens({13, 0}));
  CHECK(!NvccTakesTokens({12, 9}));
}

TEST_CASE("A tool is asked outside of the lane, and not waited for") {
  const testing::TempDir dir;
  const auto script = [&](const std::string& name, const std::string& text) {
    testing::WriteFile(dir / name, "#!/bin/sh\n" + text + "\n");
    std::filesystem::permissions(dir / name, std::filesystem::perms::owner_all);
    return (dir / name).string();
  };
  setenv("NVCC_APPEND_FLAGS", "--no-such-flag", 1);
  CHECK(OutputOf(script("asks", "echo \"$1 [$NVCC_APPEND_FLAGS]\""), {"--version"}) ==
        "--version []\n");
  unsetenv("NVCC_APPEND_FLAGS");
  CHECK(OutputOf((dir / "none").string(), {}).empty());
  const auto began = std::chrono::steady_clock::now();
  CHECK(OutputOf(script("hangs", "exec sleep 60"), {}).empty());
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(20));
  const Environment env = {{"PATH", dir.path().string()}};
  script("ninja", "echo 1.12.1");
  CHECK(VersionInPath("ninja", env) == Version{1, 12});
  CHECK(VersionInPath("nvcc", env) == std::nullopt);
}

}  // namespace
}  // namespace headroom::cli
