// doctor's eyes, on fake trees and real programs.
#include "client/cli/doctor_facts.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>
#include <string>

#include "tests/support/testing.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  testing::WriteFile(path, text);
}

// A machine with a v2 cgroup /build below /, for process 7.
class FakeMachine {
 public:
  FakeMachine() {
    Write("proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n");
    Write("proc/meminfo",
          "MemTotal: 16000000 kB\nMemFree: 8000000 kB\nMemAvailable: 12000000 kB\n"
          "SwapTotal: 4000 kB\nSwapFree: 3000 kB\n");
    Write("proc/pressure/memory",
          "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
          "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
    Write("proc/vmstat", "oom_kill 3\n");
    Write("proc/stat", "cpu  1 2\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\nintr 5\n");
    Write("proc/sys/vm/overcommit_memory", "2\n");
    Write("proc/sys/vm/panic_on_oom", "1\n");
    Write("proc/7/cgroup", "0::/build\n");
    const std::string mounts =
        "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
        "31 20 0:27 / /proc rw - proc proc rw,hidepid=invisible\n";
    Write("proc/7/mountinfo", mounts);
    Write("proc/self/mountinfo", mounts);
    Write("proc/7/status", "Cpus_allowed_list:\t0-1\n");
    Write("proc/7/limits",
          "Limit                     Soft Limit           Hard Limit           Units\n"
          "Max address space         1048576              unlimited            bytes\n"
          "Max processes             50                   unlimited            processes\n");
    for (const std::string folder : {"", "/build"}) {
      Write("sys/fs/cgroup" + folder + "/cgroup.procs", "");
      Write("sys/fs/cgroup" + folder + "/memory.stat", "anon 5\ninactive_file 6\n");
    }
    Write("sys/fs/cgroup/build/memory.max", "2147483648\n");
    Write("sys/fs/cgroup/build/memory.high", "1073741824\n");
    Write("sys/fs/cgroup/build/memory.current", "4096\n");
    Write("sys/fs/cgroup/build/memory.swap.max", "0\n");
    Write("sys/fs/cgroup/build/memory.events", "oom_kill 1\n");
    Write("sys/fs/cgroup/build/memory.oom.group", "1\n");
    Write("sys/fs/cgroup/build/pids.max", "100\n");
    Write("sys/fs/cgroup/build/pids.current", "90\n");
    Write(".dockerenv", "");
    Write("proc/11/comm", "earlyoom\n");
    fs::create_symlink("/usr/bin/earlyoom", dir_ / "proc/11/exe");
    // One that only calls itself so.
    Write("proc/12/comm", "systemd-oomd\n");
    fs::create_symlink("/home/x/cicc", dir_ / "proc/12/exe");
    Write("proc/13/comm", "earlyoom)\n");
  }
  sys::Roots roots() const { return {(dir_ / "proc").string(), dir_.path().string()}; }

 private:
  void Write(const std::string& path, const std::string& text) { cli::Write(dir_ / path, text); }
  testing::TempDir dir_;
};

TEST_CASE("doctor reads a machine") {
  const FakeMachine machine;
  const MachineFacts facts = CollectMachine(machine.roots(), {}, 1000, 7);
  CHECK(facts.os_release == "6.6.87.2-microsoft-standard-WSL2");
  CHECK(facts.container);
  REQUIRE(facts.memory);
  CHECK(facts.memory->swap_total_bytes == 4000 * 1024);
  CHECK(facts.pressure);
  CHECK(facts.oom_kills == 3);
  INFO(facts.groups_error);
  REQUIRE(facts.groups.size() == 2);
  CHECK(facts.groups[0].memory.limit_bytes == int64_t{1} << 31);
  CHECK(facts.groups[0].memory.high_bytes == int64_t{1} << 30);
  CHECK(facts.groups[0].memory.oom_group);
  CHECK(facts.groups[0].memory.swap_limit_bytes == 0);
  CHECK(facts.cores.affinity == 2);
  CHECK(facts.processors == 4);
  CHECK(facts.limits.address_space_bytes == 1048576);
  CHECK(facts.limits.processes == 50);
  CHECK(facts.pids_left == 10);
  CHECK(facts.overcommit == 2);
  CHECK(facts.panic_on_oom == 1);
  CHECK(facts.hides_processes);
  CHECK(facts.oom_daemons == std::vector<std::string>{"earlyoom"});
  // Root sees all processes.
  CHECK(!CollectMachine(machine.roots(), {}, 0, 7).hides_processes);

  DoctorFacts all;
  all.machine = facts;
  std::string ids;
  for (const Finding& finding : Diagnose(all))
    if (finding.severity != Severity::kOk) ids += finding.id + " ";
  for (const std::string id :
       {"wsl", "overcommit", "panic-on-oom", "hidepid", "memory", "oom-group", "memory-high",
        "cgroup-swap", "oom-daemon", "cores", "address-space", "tasks"}) {
    INFO(id << " in " << ids);
    CHECK(ids.find(id + " ") != std::string::npos);
  }
}

TEST_CASE("doctor on a machine that tells nothing") {
  const testing::TempDir empty;
  const MachineFacts facts =
      CollectMachine({empty.path().string(), empty.path().string()}, {}, 1000, 7);
  CHECK(!facts.memory);
  CHECK(facts.groups.empty());
  CHECK(!facts.groups_error.empty());
  DoctorFacts all;
  all.machine = facts;
  CHECK(NeedsDoing(Diagnose(all)));
}

TEST_CASE("doctor reads this machine") {
  const MachineFacts facts = CollectMachine(sys::Roots(), {}, 0);
  CHECK(facts.memory);
  CHECK(facts.processors >= facts.cores.Count());
  CHECK(!facts.os_release.empty());
}

TEST_CASE("doctor finds room for temporary files") {
  const testing::TempDir dir;
  const TmpFacts there = CollectTmp({{"TMPDIR", dir.path().string()}});
  REQUIRE(there.space);
  CHECK(there.writable);
  CHECK(!CollectTmp({{"TMPDIR", (dir / "none").string()}}).space);
  CHECK(CollectTmp({}).path == "/tmp");
  if (fs::exists("/dev/shm")) CHECK(CollectTmp({{"TMPDIR", "/dev/shm"}}).space->in_memory);
}

TEST_CASE("doctor tells how a program is loaded") {
  const testing::TempDir dir;
  CHECK(InspectTool("sh", fs::canonical("/bin/sh").string()).loading == Loading::kOther);
  const fs::path tests = fs::canonical("/proc/self/exe").parent_path();
  CHECK(InspectTool("standin", (tests / "support/standin_static").string()).loading ==
        Loading::kStatic);
  Write(dir / "script", "#!/bin/sh\n");
  CHECK(InspectTool("script", (dir / "script").string()).loading == Loading::kNotElf);
  CHECK(!InspectTool("script", (dir / "script").string()).set_id);
  fs::copy_file("/bin/true", dir / "setuid");
  REQUIRE(chmod((dir / "setuid").c_str(), 04755) == 0);
  CHECK(InspectTool("setuid", (dir / "setuid").string()).set_id);
  // No reading of what would block, no end of a file that isn't there.
  REQUIRE(mkfifo((dir / "fifo").c_str(), 0600) == 0);
  CHECK(InspectTool("fifo", (dir / "fifo").string()).loading == Loading::kNotElf);
  CHECK(InspectTool("none", (dir / "none").string()).loading == Loading::kNotElf);
}

TEST_CASE("Programs that are cut off or lie about themselves") {
  const std::string whole = testing::ReadFile("/bin/sh").substr(0, 4096);
  for (size_t size = 0; size < whole.size(); size += 7) LoadingOf(whole.substr(0, size));
  // Every byte of the headers wrong in turn.
  for (size_t at = 0; at < 512; ++at) {
    std::string wrong = whole;
    wrong[at] = static_cast<char>(0xff);
    LoadingOf(wrong);
  }
  CHECK(LoadingOf(whole) == Loading::kOther);
  CHECK(LoadingOf("\x7f"
                  "ELF") == Loading::kNotElf);
}

TEST_CASE("doctor reads a build folder") {
  const testing::TempDir dir;
  CHECK(CollectFolder(dir.path().string()).pools.empty());
  const auto script = [&](const std::string& name, const std::string& text) {
    Write(dir / name, "#!/bin/sh\n" + text + "\n");
    fs::permissions(dir / name, fs::perms::owner_all);
    return (dir / name).string();
  };
  const std::string ninja = script("bin/ninja", "echo 1.11.1");
  Write(dir / "build.ninja", "include CMakeFiles/rules.ninja\npool a\n  depth = 2\n");
  Write(dir / "CMakeFiles/rules.ninja", "pool b\n  depth = 3\n");
  Write(dir / "CMakeCache.txt", "CMAKE_MAKE_PROGRAM:FILEPATH=" + ninja +
                                    "\nCMAKE_CXX_COMPILER_LAUNCHER:STRING=/usr/bin/distcc;--x\n"
                                    "CMAKE_CUDA_COMPILER_LAUNCHER:STRING=\n");
  Write(dir / "Makefile", "all:\n\tmake -j4\n");
  Write(dir / "setup.py", "from torch.utils.cpp_extension import BuildExtension\n");
  const FolderFacts facts = CollectFolder(dir.path().string());
  CHECK(facts.has_ninja);
  REQUIRE(facts.pools.size() == 2);
  CHECK(facts.pools[1].name == "b");
  CHECK(facts.ninja == Version{1, 11});
  CHECK(facts.launchers == std::vector<std::string>{"/usr/bin/distcc"});
  CHECK(facts.fixed_jobs == std::vector<std::string>{"Makefile:2: make -j4"});
  CHECK(facts.is_torch_extension);
  // A folder may name any program: only a ninja is run, and only by a full path.
  const std::string evil = script("evil", "touch " + (dir / "was-run").string());
  for (const std::string& name : {evil, std::string("ninja"), std::string("./bin/ninja")}) {
    Write(dir / "CMakeCache.txt", "CMAKE_MAKE_PROGRAM:FILEPATH=" + name + "\n");
    CHECK(!CollectFolder(dir.path().string()).ninja);
  }
  CHECK(!fs::exists(dir / "was-run"));
}

TEST_CASE("doctor finds the tools of PATH") {
  const testing::TempDir dir;
  const auto script = [&](const std::string& name, const std::string& text) {
    Write(dir / name, "#!/bin/sh\n" + text + "\n");
    fs::permissions(dir / name, fs::perms::owner_all);
  };
  script("make", "echo GNU Make 4.4.1");
  script("ninja", "echo 1.13.2");
  script("g++", "case $1 in -print-prog-name=cc1plus) echo " + (dir / "libexec/cc1plus").string() +
                    ";; *) echo ld;; esac");
  Write(dir / "libexec/cc1plus", "#!/bin/sh\n");
  fs::permissions(dir / "libexec/cc1plus", fs::perms::owner_all);
  const auto tools = CollectTools({{"PATH", dir.path().string()}});
  REQUIRE(tools.size() == 3);
  CHECK(tools[0].make == MakeAbility::kFifo);
  CHECK(tools[1].version == Version{1, 13});
  CHECK(tools[2].name == "cc1plus");
  CHECK(tools[2].gated);
}

}  // namespace
}  // namespace headroom::cli
