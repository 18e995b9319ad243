// cores and limits.
#include "server/sys/cores.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "server/sys/limits.h"
#include "tests/unit/sys/sys_fixture.h"

namespace headroom::sys {
namespace {

TEST_CASE("CPU lists") {
  CHECK(ParseCpuList(KernelText("cpu_list")) == 7);
  CHECK(ParseCpuList("0\n") == 1);
  CHECK(ParseCpuList("0-127") == 128);
  CHECK(ParseCpuList("\n") == 0);
  CHECK_FALSE(ParseCpuList("3-1"));
  CHECK_FALSE(ParseCpuList("a"));
  CHECK_FALSE(ParseCpuList("0-"));
  CHECK_FALSE(ParseCpuList("-1"));
  CHECK_FALSE(ParseCpuList("1,,2"));
  CHECK_FALSE(ParseCpuList("0-2147483647"));
  CHECK(ParseAllowedCpus(KernelText("linux_6_18_status")) == 2);
  CHECK_FALSE(ParseAllowedCpus("Cpus_allowed:\t3\n"));
}

TEST_CASE("CFS quotas") {
  const auto millicores = [](const std::optional<CpuQuota>& quota) {
    REQUIRE(quota);
    return quota->millicores;
  };
  CHECK(millicores(ParseCpuMax(KernelText("cpu_max"))) == 1500);
  CHECK_FALSE(millicores(ParseCpuMax(KernelText("cpu_max_unlimited"))));
  CHECK(millicores(ParseCpuMax("50000")) == 500);
  CHECK(millicores(ParseCfsQuota("250000\n", "100000\n")) == 2500);
  CHECK_FALSE(millicores(ParseCfsQuota("-1\n", "100000\n")));
  CHECK_FALSE(ParseCfsQuota("100000", "0"));
  CHECK_FALSE(ParseCfsQuota("9223372036854775807", "1"));
  CHECK_FALSE(ParseCpuMax(""));
}

TEST_CASE("the least of affinity, cpuset and quota") {
  CHECK(Cores{}.Count() == 1);
  CHECK(Cores{8, 4, 2500}.Count() == 3);  // a part of a core is one more job
  CHECK(Cores{8, 4, 2000}.Count() == 2);
  CHECK(Cores{8, 4, {}}.Count() == 4);
  CHECK(Cores{2, 4, 16000}.Count() == 2);
  CHECK(Cores{2, {}, 100}.Count() == 1);
  CHECK(Cores{2, {}, 0}.Count() == 1);
}

TEST_CASE("cores of a v2 tree: the tightest quota is the grandparent's") {
  const TempDir tree;
  CHECK(ReadCores(tree.roots()).Count() == 1);
  CHECK_FALSE(ReadCores(tree.roots()).affinity);
  tree.Write("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-63\n");
  CHECK(ReadCores(tree.roots()).Count() == 64);
  tree.Write("proc/self/mountinfo", KernelText("v2_ubuntu_mountinfo"));
  tree.Write("proc/self/cgroup", "0::/a/b/c\n");
  tree.MakeFolder("sys/fs/cgroup/a/b/c");
  CHECK(ReadCores(tree.roots()).Count() == 64);
  tree.Write("sys/fs/cgroup/a/cpu.max", "550000 100000\n");
  tree.Write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  tree.Write("sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
  tree.Write("sys/fs/cgroup/a/cpuset.cpus.effective", "0-31\n");
  tree.Write("sys/fs/cgroup/a/b/cpuset.cpus", "\n");
  const Cores cores = ReadCores(tree.roots());
  CHECK(cores.affinity == 64);
  CHECK(cores.cpuset == 32);
  CHECK(cores.quota_millicores == 5500);
  CHECK(cores.Count() == 6);
}

TEST_CASE("cores of a v1 tree") {
  const TempDir tree;
  tree.Write("proc/7/status", "Cpus_allowed_list:\t0-7\n");
  tree.Write("proc/7/cgroup", KernelText("v1_rhel7_cgroup"));
  tree.Write("proc/self/mountinfo", KernelText("v1_rhel7_mountinfo"));
  tree.Write("sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_quota_us", "400000\n");
  tree.Write("sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_period_us", "100000\n");
  tree.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  tree.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  tree.Write("sys/fs/cgroup/cpuset/cpuset.effective_cpus", "0-2\n");
  tree.Write("sys/fs/cgroup/cpuset/cpuset.cpus", "0-7\n");
  const Cores cores = ReadCores(tree.roots(), 7);
  CHECK(cores.affinity == 8);
  CHECK(cores.quota_millicores == 4000);
  CHECK(cores.cpuset == 3);
  CHECK(cores.Count() == 3);
}

TEST_CASE("the real cores") {
  const Cores cores = ReadCores(Roots());
  REQUIRE(cores.affinity);
  CHECK(cores.Count() >= 1);
  CHECK(cores.Count() <= sysconf(_SC_NPROCESSORS_CONF));
}

TEST_CASE("resource limits") {
  const ResourceLimits limits = ParseLimits(KernelText("linux_6_18_limits"));
  CHECK_FALSE(limits.address_space_bytes);
  CHECK(limits.processes == 96363);
  CHECK(limits.open_files == 20000);
  const ResourceLimits tight = ParseLimits(
      "Max address space         1073741824           unlimited            bytes     \n");
  CHECK(tight.address_space_bytes == 1073741824);
  const TempDir tree;
  CHECK_FALSE(ReadLimits(tree.roots()).open_files);
  CHECK(ReadLimits(Roots()).open_files);
}

TEST_CASE("pids left: the tightest of all ancestors") {
  const TempDir tree;
  CHECK_FALSE(ReadPidsLeft(tree.roots()));
  tree.Write("proc/self/mountinfo", KernelText("v2_ubuntu_mountinfo"));
  tree.Write("proc/self/cgroup", "0::/a/b\n");
  CHECK_FALSE(ReadPidsLeft(tree.roots()));
  tree.Write("sys/fs/cgroup/a/b/pids.max", "max\n");
  tree.Write("sys/fs/cgroup/a/b/pids.current", "3\n");
  CHECK_FALSE(ReadPidsLeft(tree.roots()));
  tree.Write("sys/fs/cgroup/a/pids.max", "100\n");
  tree.Write("sys/fs/cgroup/a/pids.current", "40\n");
  CHECK(ReadPidsLeft(tree.roots()) == 60);
  tree.Write("sys/fs/cgroup/a/pids.current", "140\n");
  CHECK(ReadPidsLeft(tree.roots()) == 0);
}

}  // namespace
}  // namespace headroom::sys
