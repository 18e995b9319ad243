#include "client/preload/proc.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/testing.h"

namespace headroom::preload {
namespace {

TEST_CASE("status") {
  const Status status = ParseStatus("Name:\tcicc\nTracerPid:\t7\nThreads:\t3\n");
  CHECK(status.known);
  CHECK(status.tracer == 7);
  CHECK(status.threads == 3);
  CHECK(!ParseStatus("Name:\tcicc\nTracerPid:\t0\n").known);
  CHECK(!ParseStatus("").known);
}

TEST_CASE("stat with a hostile name") {
  const std::string rest = " 1 1 0 -1 4 0 0 0 0 1 2 3 4 20 0 1 0 98765 1000 200";
  for (const std::string name : {"cicc", "a b", ") S 9", "x) R 1 2 (y", ""}) {
    const Stat stat = ParseStat(View(("42 (" + name + ") S 17" + rest).c_str()));
    CHECK(stat.known);
    CHECK(stat.state == 'S');
    CHECK(stat.parent == 17);
    CHECK(stat.start == 98765);
  }
  CHECK(!ParseStat("42 (x) S 1").known);
  CHECK(!ParseStat("rubbish").known);
  CHECK(!ParseStat("").known);
}

std::string PathOf(const char* cgroup, const char* mounts) {
  const MemoryCgroup found = ParseMemoryCgroup(cgroup, mounts);
  if (!found.known) return "";
  return std::string(found.path, found.top) + "|" + std::string(found.path).substr(found.top);
}

TEST_CASE("the memory cgroup in real mount tables") {
  // A host with version 1 beside version 2.
  const char hybrid[] =
      "25 20 0:22 / /sys rw - sysfs sysfs rw\n"
      "30 25 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
      "31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
      "32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  CHECK(PathOf("5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/c\n", hybrid) == "/sys/fs/cgroup/memory|/a/b");
  CHECK(!ParseMemoryCgroup("4:memory:/a\n", hybrid).v2);
  CHECK(PathOf("4:memory:/\n", hybrid) == "/sys/fs/cgroup/memory|");
  // Version 2 alone.
  const char v2[] = "30 25 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
  CHECK(PathOf("0::/user.slice/x\n", v2) == "/sys/fs/cgroup|/user.slice/x");
  CHECK(ParseMemoryCgroup("0::/user.slice/x\n", v2).v2);
  // A container that sees its own part only, and names counted from the host's root.
  const char container[] =
      "30 25 0:26 /docker/7 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  CHECK(PathOf("4:memory:/docker/7\n", container) == "/sys/fs/cgroup/memory|");
  CHECK(PathOf("4:memory:/docker/7/build\n", container) == "/sys/fs/cgroup/memory|/build");
  CHECK(PathOf("4:memory:/docker/77\n", container) == "/sys/fs/cgroup/memory|");
  // A mount point with a blank in it.
  const char blank[] = "30 25 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n";
  CHECK(PathOf("0::/x\n", blank) == "/my groups|/x");
  CHECK(PathOf("", hybrid) == "");
  CHECK(PathOf("0::/x\n", "") == "");
  CHECK(PathOf("rubbish\n:\n::\n", "rubbish\n - \n") == "");
  CHECK(PathOf(("0::/" + std::string(600, 'x') + "\n").c_str(), v2) == "");
}

TEST_CASE("memory of this machine and of a cgroup") {
  const MemoryCgroup none;
  const Memory host = ReadMemory(none);
  CHECK(host.limit > 0);
  CHECK(host.available < host.limit);
  uint64_t count = 0;
  CHECK(ReadOomKills(none, &count));
  if (headroom::testing::MemoryCgroup::WhyUnavailable()) {
    WARN("SKIPPED: " + *headroom::testing::MemoryCgroup::WhyUnavailable());
    return;
  }
  const headroom::testing::MemoryCgroup made(100 << 20);
  MemoryCgroup cgroup;
  cgroup.known = true;
  cgroup.v2 = made.is_v2();
  cgroup.top = std::string(made.is_v2() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory").size();
  Copy(View(made.path().c_str()), cgroup.path);
  const Memory memory = ReadMemory(cgroup);
  CHECK(memory.limit == 100 << 20);
  // All but the reserve of 7 %.
  CHECK(memory.available > 92u << 20);
  CHECK(memory.available < 94u << 20);
  CHECK(ReadOomKills(cgroup, &count));
  CHECK(count == 0);
}

TEST_CASE("descendants, and where not to look") {
  const headroom::testing::ProgramOptions options = [] {
    headroom::testing::ProgramOptions result;
    result.argv = {"/bin/sh", "-c", "sleep 20 & sleep 21 & wait"};
    return result;
  }();
  headroom::testing::Program program(options);
  std::vector<int> seen;
  const auto see = [](void* context, int pid) {
    static_cast<std::vector<int>*>(context)->push_back(pid);
  };
  CHECK(headroom::testing::WaitUntil([&] {
    seen.clear();
    return ForEachDescendant(View(), see, &seen) == 3;
  }));
  CHECK(seen.size() == 3);
  seen.clear();
  // Behind the shell nothing is seen.
  CHECK(ForEachDescendant("sh", see, &seen) == 0);
  seen.clear();
  CHECK(ForEachDescendant("sleep", see, &seen) == 1);
  CHECK(seen[0] == program.pid());
  CHECK(HasName(program.pid(), "sh"));
  CHECK(!HasName(program.pid(), "s"));
  CHECK(!HasName(1 << 30, "sh"));
  CHECK(ReadStat(program.pid()).parent == getpid());
  CHECK(!ReadStat(1 << 30).known);
}

}  // namespace
}  // namespace headroom::preload
