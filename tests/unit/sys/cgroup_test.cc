#include "server/sys/cgroup.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>

#include "tests/unit/sys/sys_fixture.h"

namespace headroom::sys {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

const std::string kDocker =
    "/docker/3a1f0c9bb2d64d0f8b7c5f6e1e2d3c4b5a69788f0e1d2c3b4a59687f8e9dacbd";

std::optional<CgroupLocation> Locate(std::string_view cgroup, std::string_view mounts,
                                     std::string_view controller) {
  return LocateCgroup(ParseProcCgroup(KernelText(cgroup)), ParseMountInfo(KernelText(mounts)),
                      controller);
}

TEST_CASE("mountinfo") {
  const auto mounts = ParseMountInfo(KernelText("v1_hybrid_mountinfo"));
  REQUIRE(mounts.size() > 10);
  CHECK(mounts.back().mount_point == "/sys/fs/cgroup/unified");
  CHECK(mounts.back().type == "cgroup2");
  CHECK(mounts.back().root == "/");
  CHECK(mounts.back().super_options == "rw");

  const auto odd = ParseMountInfo(
      "36 35 98:0 /a\\040b /mnt/c\\011d\\134e rw shared:1 master:2 - ext3 /dev/root rw,x=y\n"
      "37 35 0:40 / /empty-source rw - tmpfs  rw\n"
      "38 35 0:41 / relative rw - tmpfs none rw\n"
      "39 35 0:42 / /no-separator rw tmpfs none rw\n"
      "short\n");
  REQUIRE(odd.size() == 2);
  CHECK(odd[0].root == "/a b");
  CHECK(odd[0].mount_point == "/mnt/c\td\\e");
  CHECK(odd[0].super_options == "rw,x=y");
  CHECK(odd[1].type == "tmpfs");
  CHECK(odd[1].super_options == "rw");
  // A backslash at the very end isn't an escape.
  CHECK(ParseMountInfo("1 1 0:1 /\\04 /m\\1 rw - t s o\n")[0].mount_point == "/m\\1");
}

TEST_CASE("/proc/PID/cgroup") {
  const auto entries = ParseProcCgroup(KernelText("v1_rhel7_cgroup"));
  REQUIRE(entries.size() == 11);
  CHECK(entries[5].controllers == std::vector<std::string>{"cpuacct", "cpu"});
  CHECK(entries[10].controllers == std::vector<std::string>{"name=systemd"});
  const auto odd = ParseProcCgroup("0::/a:b (deleted)\n7:memory:/x (deleted)\nbad\n1:cpu:rel\n");
  REQUIRE(odd.size() == 2);
  CHECK(odd[0].path == "/a:b");
  CHECK(odd[0].deleted);
  CHECK(odd[1].path == "/x (deleted)");  // v1 never says so: that is its name
  CHECK_FALSE(odd[1].deleted);
}

TEST_CASE("the memory cgroup on each kind of system") {
  const auto hybrid = Locate("v1_hybrid_cgroup", "v1_hybrid_mountinfo", "memory");
  REQUIRE(hybrid);
  CHECK(hybrid->version == CgroupVersion::kV1);
  CHECK(hybrid->Path() == "/sys/fs/cgroup/memory/build/job.1");

  const auto rhel7 = Locate("v1_rhel7_cgroup", "v1_rhel7_mountinfo", "memory");
  REQUIRE(rhel7);
  CHECK(rhel7->Path() == "/sys/fs/cgroup/memory/user.slice");
  const auto rhel7_cpu = Locate("v1_rhel7_cgroup", "v1_rhel7_mountinfo", "cpu");
  REQUIRE(rhel7_cpu);
  CHECK(rhel7_cpu->Path() == "/sys/fs/cgroup/cpu,cpuacct/user.slice");

  const auto ubuntu = Locate("v2_ubuntu_session_cgroup", "v2_ubuntu_mountinfo", "memory");
  REQUIRE(ubuntu);
  CHECK(ubuntu->version == CgroupVersion::kV2);
  CHECK(ubuntu->mount_point == "/sys/fs/cgroup");
  CHECK(AncestorPaths(Roots(), *ubuntu).size() == 7);
  CHECK(AncestorPaths(Roots(), *ubuntu)[5] == "/sys/fs/cgroup/user.slice");
  CHECK(AncestorPaths(Roots(), *ubuntu)[6] == "/sys/fs/cgroup");

  // In a container the mount's root is the container's own cgroup.
  const auto docker1 = Locate("v1_docker_cgroup", "v1_docker_mountinfo", "memory");
  REQUIRE(docker1);
  CHECK(docker1->version == CgroupVersion::kV1);
  CHECK(docker1->Path() == "/sys/fs/cgroup/memory");

  const auto docker2 = Locate("v2_docker_cgroup", "v2_docker_mountinfo", "memory");
  REQUIRE(docker2);
  CHECK(docker2->Path() == "/sys/fs/cgroup");

  CHECK_FALSE(Locate("v1_rhel7_cgroup", "v1_rhel7_mountinfo", "io"));
}

TEST_CASE("cgroups outside of what is mounted give the mount's root") {
  const auto mounts = ParseMountInfo(KernelText("v1_docker_mountinfo"));
  // A nested container below ours, one beside it, one whose name begins with ours.
  const auto below =
      LocateCgroup(ParseProcCgroup("12:memory:" + kDocker + "/inner/x\n"), mounts, "memory");
  REQUIRE(below);
  CHECK(below->relative == "/inner/x");
  const auto beside = LocateCgroup(ParseProcCgroup("12:memory:/docker/other\n"), mounts, "memory");
  REQUIRE(beside);
  CHECK(beside->relative.empty());
  const auto alike =
      LocateCgroup(ParseProcCgroup("12:memory:" + kDocker + "2\n"), mounts, "memory");
  REQUIRE(alike);
  CHECK(alike->relative.empty());

  const auto v2 = ParseMountInfo(KernelText("v2_docker_mountinfo"));
  const auto outside = LocateCgroup(ParseProcCgroup("0::/../other.scope\n"), v2, "memory");
  REQUIRE(outside);
  CHECK(outside->Path() == "/sys/fs/cgroup");
  CHECK_FALSE(LocateCgroup(ParseProcCgroup("0::/gone.scope (deleted)\n"), v2, "memory"));
  CHECK_FALSE(LocateCgroup({}, v2, "memory"));
  CHECK_FALSE(LocateCgroup(ParseProcCgroup("0::/x\n"), {}, "memory"));
}

TEST_CASE("of several mounts the one that shows the most ancestors is taken") {
  const auto mounts = ParseMountInfo(
      "1 0 0:30 /a/b /inner rw - cgroup2 cgroup2 rw\n"
      "2 0 0:30 / /outer rw - cgroup2 cgroup2 rw\n"
      "3 0 0:30 /a /middle rw - cgroup2 cgroup2 rw\n");
  const auto location = LocateCgroup(ParseProcCgroup("0::/a/b/c\n"), mounts, "memory");
  REQUIRE(location);
  CHECK(location->Path() == "/outer/a/b/c");
}

TEST_CASE("limits as kernels write them") {
  const auto bytes = [](std::string_view text) {
    const auto limit = ParseLimit(text);
    REQUIRE(limit);
    return limit->bytes;
  };
  CHECK_FALSE(bytes("max\n"));
  CHECK_FALSE(bytes("-1\n"));
  CHECK_FALSE(bytes(KernelText("v1_limit_unlimited")));
  CHECK_FALSE(bytes("9223372036854710272\n"));   // 64 KiB pages
  CHECK_FALSE(bytes("18446744073709551615\n"));  // kernels before 3.19
  CHECK(bytes("536870912\n") == 512 * kMiB);
  CHECK(bytes("0\n") == 0);
  CHECK_FALSE(ParseLimit(""));
  CHECK_FALSE(ParseLimit("-5"));
  CHECK_FALSE(ParseLimit("12 MB"));
}

TEST_CASE("memory.stat") {
  const CgroupStat v2 = ParseCgroupStat(CgroupVersion::kV2, KernelText("v2_memory_stat"));
  CHECK(v2.inactive_file_bytes == 1024 * kMiB);
  CHECK(v2.active_file_bytes == 256 * kMiB);
  CHECK(v2.anon_bytes == 2560 * kMiB);
  CHECK(v2.shmem_bytes == 256 * kMiB);
  // v1: the lines with children.
  const CgroupStat v1 = ParseCgroupStat(CgroupVersion::kV1, KernelText("v1_memory_stat"));
  CHECK(v1.inactive_file_bytes > 50 * kMiB);
  CHECK(v1.active_file_bytes > 50 * kMiB);
  const CgroupStat own_only =
      ParseCgroupStat(CgroupVersion::kV1, "inactive_file 5\nactive_file 6\nrss 7\n");
  CHECK(own_only.inactive_file_bytes == 5);
  CHECK(own_only.anon_bytes == 7);
  const CgroupStat reversed =
      ParseCgroupStat(CgroupVersion::kV1, "total_inactive_file 50\ninactive_file 5\n");
  CHECK(reversed.inactive_file_bytes == 50);
}

TEST_CASE("OOM counters") {
  const CgroupOom v2 = ParseMemoryEvents(KernelText("v2_memory_events"));
  CHECK(v2.oom_kills == 2);
  const CgroupOom v1 = ParseOomControl(KernelText("v1_oom_control"));
  CHECK(v1.oom_kills == 0);
  CHECK_FALSE(v1.under_oom);
  CHECK(ParseOomControl("oom_kill_disable 1\nunder_oom 1\n").under_oom);
  CHECK_FALSE(ParseOomControl("oom_kill_disable 1\nunder_oom 1\n").oom_kills);
  CHECK_FALSE(ParseMemoryEvents("oom 5\n").oom_kills);
}

TEST_CASE("available memory of a cgroup") {
  CgroupMemory memory;
  CHECK_FALSE(memory.AvailableBytes());
  memory.usage_bytes = 700 * kMiB;
  CHECK_FALSE(memory.AvailableBytes());
  memory.limit_bytes = 1000 * kMiB;
  CHECK(memory.AvailableBytes() == 300 * kMiB);
  memory.stat.inactive_file_bytes = 100 * kMiB;
  memory.stat.active_file_bytes = 50 * kMiB;
  CHECK(memory.AvailableBytes() == 450 * kMiB);
  memory.high_bytes = 800 * kMiB;
  CHECK(memory.AvailableBytes() == 250 * kMiB);
  memory.high_bytes = 200 * kMiB;
  CHECK(memory.AvailableBytes() == 0);
  memory.high_bytes.reset();
  // File pages read after the usage, more of them by then: not more than the limit.
  memory.stat.inactive_file_bytes = 5000 * kMiB;
  CHECK(memory.AvailableBytes() == 1000 * kMiB);
  memory.stat.inactive_file_bytes = INT64_MAX;
  CHECK(memory.AvailableBytes() == 1000 * kMiB);
}

// A v2 tree in a temporary folder: root, user.slice, its child and a scope; limits by hand.
struct FakeV2 : TempDir {
  FakeV2() {
    Write("proc/self/mountinfo", KernelText("v2_ubuntu_mountinfo"));
    Write("proc/self/cgroup", "0::/user.slice/user-1000.slice/build.scope\n");
    Write("proc/42/cgroup", "0::/user.slice/other.scope\n");
    Level("", "", "", "");
    Level("/user.slice", "2147483648", "max", "1073741824");
    Level("/user.slice/user-1000.slice", "max", "max", "536870912");
    Level("/user.slice/user-1000.slice/build.scope", "max", "max", "104857600");
    Level("/user.slice/other.scope", "max", "max", "1");
  }
  // An empty limit: no such files, as in the root.
  void Level(const std::string& path, const std::string& max, const std::string& high,
             const std::string& current) const {
    const std::string at = "sys/fs/cgroup" + path + "/";
    Write(at + "memory.stat", "anon 1\nfile 2\ninactive_file 67108864\nactive_file 33554432\n");
    if (max.empty()) return;
    Write(at + "memory.max", max + "\n");
    Write(at + "memory.high", high + "\n");
    Write(at + "memory.current", current + "\n");
    Write(at + "memory.events", KernelText("v2_memory_events"));
    Write(at + "memory.oom.group", "0\n");
    Write(at + "memory.swap.max", "max\n");
    Write(at + "memory.pressure", KernelText("psi_busy"));
  }
};

TEST_CASE("K6: a v2 limit on the grandparent only binds") {
  const FakeV2 tree;
  const auto chain = CgroupChain::OpenFor(tree.roots(), 0);
  REQUIRE(chain.ok());
  REQUIRE(chain->levels().size() == 4);
  CHECK(chain->levels()[0].name() == "/sys/fs/cgroup/user.slice/user-1000.slice/build.scope");
  CHECK(chain->levels()[3].name() == "/sys/fs/cgroup");
  auto reading = chain->Read();
  REQUIRE(reading);
  REQUIRE(reading->levels.size() == 4);
  REQUIRE(reading->tightest);
  CHECK(reading->tightest->level == 2);
  CHECK(reading->tightest->available_bytes == (2048 - 1024 + 64 + 32) * kMiB);
  CHECK_FALSE(reading->levels[3].usage_bytes);  // the root has none
  CHECK_FALSE(reading->levels[0].AvailableBytes());
  CHECK(reading->levels[2].oom.oom_kills == 2);
  CHECK_FALSE(reading->levels[2].oom_group);

  // Limits, usage and flags change under the open files.
  tree.Level("/user.slice/user-1000.slice", "max", "600000000", "500000000");
  tree.Write("sys/fs/cgroup/user.slice/memory.oom.group", "1\n");
  reading = chain->Read();
  REQUIRE(reading);
  REQUIRE(reading->tightest);
  CHECK(reading->tightest->level == 1);
  CHECK(reading->tightest->available_bytes == 600000000 - 500000000 + 96 * kMiB);
  CHECK(reading->levels[2].oom_group);
  const auto fast = chain->ReadFast();
  REQUIRE(fast);
  CHECK(fast->tightest->available_bytes == reading->tightest->available_bytes);
  CHECK_FALSE(fast->levels[2].oom.oom_kills);
  const auto psi = chain->levels()[1].ReadPsi();
  REQUIRE(psi);
  CHECK(psi->some.avg10_permyriad == 1234);
  CHECK_FALSE(chain->levels()[3].ReadPsi());
}

TEST_CASE("another process's cgroup is found through our mounts") {
  const FakeV2 tree;
  const auto location = FindCgroup(tree.roots(), 42);
  REQUIRE(location.ok());
  CHECK(location->Path() == "/sys/fs/cgroup/user.slice/other.scope");
  CHECK(FindCgroup(tree.roots(), 43).status().code() == absl::StatusCode::kNotFound);
  const TempDir empty;
  CHECK(CgroupChain::OpenFor(empty.roots(), 0).status().code() == absl::StatusCode::kNotFound);
  empty.Write("proc/self/cgroup", "0::/x\n");
  CHECK(CgroupChain::OpenFor(empty.roots(), 0).status().code() == absl::StatusCode::kNotFound);
  empty.Write("proc/self/mountinfo", KernelText("v2_ubuntu_mountinfo"));
  // Named, mounted, but not there (any more).
  CHECK(CgroupChain::OpenFor(empty.roots(), 0).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("a hierarchy without the memory controller has no limit") {
  const TempDir tree;
  tree.Write("proc/self/mountinfo", KernelText("v2_ubuntu_mountinfo"));
  tree.Write("proc/self/cgroup", "0::/a\n");
  tree.MakeFolder("sys/fs/cgroup/a");
  const auto chain = CgroupChain::OpenFor(tree.roots(), 0);
  REQUIRE(chain.ok());
  const auto reading = chain->Read();
  REQUIRE(reading);
  CHECK_FALSE(reading->tightest);
  CHECK_FALSE(reading->levels[0].usage_bytes);
}

TEST_CASE("a cgroup that is removed and made again is another one") {
  const FakeV2 tree;
  const auto chain = CgroupChain::OpenFor(tree.roots(), 0);
  REQUIRE(chain.ok());
  REQUIRE(chain->Read());
  tree.Remove("sys/fs/cgroup/user.slice/user-1000.slice/build.scope");
  CHECK_FALSE(chain->Read());
  tree.Level("/user.slice/user-1000.slice/build.scope", "1048576", "max", "0");
  CHECK_FALSE(chain->Read());
  CHECK_FALSE(chain->levels()[0].ReadFast());
  CHECK(chain->levels()[1].ReadFast());
  const auto again = CgroupChain::OpenFor(tree.roots(), 0);
  REQUIRE(again.ok());
  const auto reading = again->Read();
  REQUIRE(reading);
  CHECK(reading->tightest->level == 0);
}

TEST_CASE("a fake v1 tree") {
  const TempDir tree;
  tree.Write("proc/self/mountinfo", KernelText("v1_hybrid_mountinfo"));
  tree.Write("proc/self/cgroup", KernelText("v1_hybrid_cgroup"));
  const auto level = [&tree](const std::string& path, const std::string& limit,
                             const std::string& usage) {
    const std::string at = "sys/fs/cgroup/memory" + path + "/";
    tree.Write(at + "memory.limit_in_bytes", limit);
    tree.Write(at + "memory.usage_in_bytes", usage);
    tree.Write(at + "memory.stat", "inactive_file 9\ntotal_inactive_file 1048576\n");
    tree.Write(at + "memory.oom_control", "oom_kill_disable 0\nunder_oom 1\noom_kill 7\n");
  };
  const std::string unlimited = KernelText("v1_limit_unlimited");
  level("", unlimited, "5000000000\n");
  level("/build", "1073741824\n", "536870912\n");
  level("/build/job.1", unlimited, "1000\n");
  const auto chain = CgroupChain::OpenFor(tree.roots(), 0);
  REQUIRE(chain.ok());
  const auto reading = chain->Read();
  REQUIRE(reading);
  REQUIRE(reading->tightest);
  CHECK(reading->tightest->level == 1);
  CHECK(reading->tightest->available_bytes == 513 * kMiB);
  CHECK(reading->levels[1].oom.oom_kills == 7);
  CHECK(reading->levels[1].oom.under_oom);
}

// A real memory cgroup below our own. Empty where none can be made.
struct RealCgroup {
  RealCgroup() {
    const auto own = FindCgroup(Roots(), 0);
    if (!own.ok()) return;
    version = own->version;
    // Not below ours: on v2 a group with processes can't give controllers to its children.
    outer = own->mount_point + "/headroom-test-" + std::to_string(getpid());
    if (mkdir(outer.c_str(), 0755) != 0) return;
    inner = outer + "/inner";
    if (mkdir(inner.c_str(), 0755) != 0) return;
    std::ofstream limit(outer +
                        (version == CgroupVersion::kV1 ? "/memory.limit_in_bytes" : "/memory.max"));
    limit << 256 * kMiB << std::flush;
    good = static_cast<bool>(limit);
    location = {version, own->mount_point, "/headroom-test-" + std::to_string(getpid()) + "/inner"};
  }
  ~RealCgroup() {
    rmdir(inner.c_str());
    rmdir(outer.c_str());
  }
  CgroupVersion version = CgroupVersion::kV2;
  std::string outer, inner;
  CgroupLocation location;
  bool good = false;
};

TEST_CASE("a real cgroup: limit on the parent, a process in it, its end") {
  const RealCgroup real;
  if (!real.good) {
    std::cout << "SKIPPED: no memory cgroup can be made here\n";
    return;
  }
  const auto chain = CgroupChain::Open(Roots(), real.location);
  REQUIRE(chain.ok());
  REQUIRE(chain->levels().size() == 3);
  auto reading = chain->Read();
  REQUIRE(reading);
  REQUIRE(reading->tightest);
  CHECK(reading->tightest->level == 1);
  CHECK(reading->tightest->available_bytes > 200 * kMiB);
  CHECK(reading->levels[1].limit_bytes == 256 * kMiB);
  CHECK(reading->levels[1].oom.oom_kills == 0);
  {
    Child child([&real] {
      std::ofstream(real.inner + "/cgroup.procs") << getpid() << std::flush;
      std::vector<char> memory(64 * kMiB, 1);
      for (size_t i = 0; i < memory.size(); i += 4096)
        *(static_cast<volatile char*>(memory.data()) + i) = 2;
      return Sleep();
    });
    CHECK(Eventually([&] {
      const auto now = chain->Read();
      return now && now->tightest->available_bytes < 200 * kMiB;
    }));
    const auto found = FindCgroup(Roots(), child.pid());
    REQUIRE(found.ok());
    CHECK(*found == real.location);
    const auto fast = chain->levels()[0].ReadFast();
    REQUIRE(fast);
    CHECK(*fast->usage_bytes > 50 * kMiB);
    CHECK(fast->stat.anon_bytes > 50 * kMiB);
  }
  REQUIRE(Eventually([&] { return rmdir(real.inner.c_str()) == 0; }));
  CHECK_FALSE(chain->Read());
  REQUIRE(mkdir(real.inner.c_str(), 0755) == 0);
  CHECK_FALSE(chain->Read());
  CHECK_FALSE(chain->levels()[0].ReadFast());
  CHECK(chain->levels()[1].Read());
  const auto again = CgroupChain::Open(Roots(), real.location);
  REQUIRE(again.ok());
  CHECK(again->Read());
  CHECK_FALSE(again->levels()[0].id() == chain->levels()[0].id());
}

}  // namespace
}  // namespace headroom::sys
