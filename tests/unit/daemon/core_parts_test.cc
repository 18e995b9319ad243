// The daemon's parts that touch the system, each alone: lane folders, the thawing helper, domains,
// the catalog of processes; and the accounts and the core without any system.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "server/daemon/accounting.h"
#include "server/daemon/catalog.h"
#include "server/daemon/core.h"
#include "server/daemon/domains.h"
#include "server/daemon/hints.h"
#include "server/daemon/lanes.h"
#include "server/daemon/temp_space.h"
#include "server/daemon/thawer.h"
#include "server/sys/process.h"
#include "tests/support/testing.h"

namespace headroom::daemon {
namespace {

using headroom::testing::Program;
using headroom::testing::TempDir;
using headroom::testing::WaitUntil;
using headroom::testing::WriteFile;
using policy::Bytes;
using policy::DomainId;
using policy::LaneId;
using policy::LaneKind;
using policy::ProcId;
using policy::Time;
using std::chrono::milliseconds;
using std::chrono::seconds;

ProcId IdOf(pid_t pid) {
  const std::optional<sys::ProcessId> id = sys::ReadProcessId(sys::Roots{}, pid);
  REQUIRE(id);
  return {id->pid, id->start_ticks};
}

headroom::testing::ProgramOptions Command(std::vector<std::string> argv) {
  headroom::testing::ProgramOptions options;
  options.argv = std::move(argv);
  return options;
}

// --- Lane folders
// ---------------------------------------------------------------------------------

LaneFolders OpenFolders(const TempDir& dir) {
  absl::StatusOr<LaneFolders> folders = LaneFolders::Open(dir.path().string());
  REQUIRE(folders.ok());
  return *std::move(folders);
}

TEST_CASE("only lanes' names are lanes") {
  CHECK(LaneKindOf("shared") == LaneKind::kShared);
  CHECK(LaneKindOf("run-12-1") == LaneKind::kOwn);
  for (const char* name : {"", "run-", "run-1", "run--1", "run-1-", "run-x-1", "run-1-x", "shared2",
                           "../shared", "run-1-1/..", "trace"}) {
    CHECK_FALSE(LaneKindOf(name));
  }
}

TEST_CASE("a lane's folder is found again with its tokens and what it was attached with") {
  const TempDir dir;
  LaneFolders folders = OpenFolders(dir);
  v1::AttachRequest request;
  request.mutable_root()->set_pid(42);
  request.set_jobs(7);
  absl::StatusOr<LaneFolder> own = folders.CreateOwn(getuid(), 42, request);
  REQUIRE(own.ok());
  CHECK(own->name() == "run-42-1");
  CHECK(own->ReadMinted() == 0);
  REQUIRE(own->WriteMinted(6).ok());
  REQUIRE(own->fifo().Put(4).value() == 4);
  absl::StatusOr<LaneFolder> second = folders.CreateOwn(getuid(), 42, request);
  REQUIRE(second.ok());
  CHECK(second->name() == "run-42-2");
  REQUIRE(folders.OpenShared(getuid()).ok());

  std::vector<std::string> problems;
  std::vector<LaneFolder> left = folders.FindLeft(&problems);
  CHECK(problems.empty());
  REQUIRE(left.size() == 3);
  CHECK(left[0].name() == "run-42-1");
  CHECK(left[0].ReadMinted() == 6);
  CHECK(left[0].fifo().Idle().value() == 4);
  REQUIRE(left[0].attach());
  CHECK(left[0].attach()->jobs() == 7);
  CHECK(left[2].kind() == LaneKind::kShared);
  CHECK_FALSE(folders.Remove(left[2]).ok());

  // Files of gated tools in it don't keep it.
  WriteFile(std::filesystem::path(left[0].dir()) / "slots" / "3", "x");
  CHECK(folders.Remove(left[0]).ok());
  CHECK_FALSE(std::filesystem::exists(own->dir()));
  CHECK(std::filesystem::exists(left[1].dir()));
}

TEST_CASE("the fifo and its folder are its user's alone") {
  const TempDir dir;
  LaneFolders folders = OpenFolders(dir);
  const absl::StatusOr<LaneFolder> lane = folders.OpenShared(getuid());
  REQUIRE(lane.ok());
  struct stat info {};
  REQUIRE(stat((lane->dir() + "/fifo").c_str(), &info) == 0);
  CHECK(S_ISFIFO(info.st_mode));
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(info.st_uid == getuid());
  if (getuid() != 0) return;
  // Another user's lane of the system's daemon: his fifo, in folders that he can't change.
  const absl::StatusOr<LaneFolder> other = folders.OpenShared(12345);
  REQUIRE(other.ok());
  REQUIRE(stat((other->dir() + "/fifo").c_str(), &info) == 0);
  CHECK(info.st_uid == 12345);
  CHECK((info.st_mode & 0777) == 0600);
  REQUIRE(stat(other->dir().c_str(), &info) == 0);
  CHECK(info.st_uid == 0);
  CHECK((info.st_mode & 022) == 0);
}

TEST_CASE("a lane without its fifo, or with something else in its place, is said and left alone") {
  const TempDir dir;
  LaneFolders folders = OpenFolders(dir);
  for (const pid_t pid : {1, 2, 3}) REQUIRE(folders.CreateOwn(getuid(), pid, {}).ok());
  const std::filesystem::path lanes = dir / std::to_string(getuid());
  std::filesystem::remove(lanes / "run-1-1" / "fifo");
  std::filesystem::remove(lanes / "run-2-1" / "fifo");
  WriteFile(lanes / "run-2-1" / "fifo", "no fifo");
  std::vector<std::string> problems;
  const std::vector<LaneFolder> left = folders.FindLeft(&problems);
  CHECK(left.size() == 1);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].find("run-1-1/fifo") != std::string::npos);
  CHECK(problems[1].find("is not a fifo") != std::string::npos);
}

TEST_CASE("a damaged minted file reads as what lies in the fifo") {
  const TempDir dir;
  LaneFolders folders = OpenFolders(dir);
  absl::StatusOr<LaneFolder> lane = folders.OpenShared(getuid());
  REQUIRE(lane.ok());
  REQUIRE(lane->fifo().Put(3).value() == 3);
  const std::string file = lane->dir() + "/minted";
  for (const std::string& text :
       {std::string(), std::string("abc"), std::string(8, '\xff'), std::string(100, 'x')}) {
    WriteFile(file, text);
    CHECK(lane->ReadMinted() == 3);
  }
  REQUIRE(lane->WriteMinted(300).ok());
  std::filesystem::resize_file(file, 8);
  CHECK(lane->ReadMinted() == 300);
}

// --- Thawer
// -----------------------------------------------------------------------------------------

bool Stopped(pid_t pid) {
  return headroom::testing::ProcessState(pid) == 'T';
}

void Freeze(Thawer& thawer, pid_t pid) {
  absl::StatusOr<sys::PidFd> pidfd = sys::PidFd::Open(sys::Roots{}, {pid, IdOf(pid).start});
  REQUIRE(pidfd.ok());
  REQUIRE(thawer.Hold(IdOf(pid), *std::move(pidfd)).ok());
  REQUIRE(thawer.held().at(IdOf(pid)).Send(SIGSTOP).ok());
  REQUIRE(WaitUntil([&] { return Stopped(pid); }));
}

TEST_CASE("what is frozen is thawed when its daemon ends, and what was released stays as it is") {
  Program first(Command({"sleep", "100"}));
  Program second(Command({"sleep", "100"}));
  {
    Thawer thawer;
    Freeze(thawer, first.pid());
    Freeze(thawer, second.pid());
    thawer.Release(IdOf(second.pid()));
  }
  CHECK(WaitUntil([&] { return !Stopped(first.pid()); }));
  CHECK(Stopped(second.pid()));
  second.Signal(SIGCONT);
}

TEST_CASE("kill -9 of the daemon thaws what it had frozen") {
  Program frozen(Command({"sleep", "100"}));
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  const pid_t daemon = fork();
  REQUIRE(daemon >= 0);
  if (daemon == 0) {
    Thawer thawer;
    absl::StatusOr<sys::PidFd> pidfd =
        sys::PidFd::Open(sys::Roots{}, *sys::ReadProcessId(sys::Roots{}, frozen.pid()));
    const std::optional<sys::ProcessId> id = sys::ReadProcessId(sys::Roots{}, frozen.pid());
    const ProcId proc{id->pid, id->start_ticks};
    const bool held =
        thawer.Hold(proc, *std::move(pidfd)).ok() && thawer.held().at(proc).Send(SIGSTOP).ok();
    const char answer = held ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char answer = 0;
  REQUIRE(read(ready[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  REQUIRE(WaitUntil([&] { return Stopped(frozen.pid()); }));
  kill(daemon, SIGKILL);
  waitpid(daemon, nullptr, 0);
  CHECK(WaitUntil([&] { return !Stopped(frozen.pid()); }, std::chrono::seconds(2)));
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("a helper that was killed is replaced, and what it held is handed on") {
  Program frozen(Command({"sleep", "100"}));
  {
    Thawer thawer;
    Freeze(thawer, frozen.pid());
    const pid_t helper = thawer.helper();
    // It ignores what a terminal or a service manager sends to all.
    kill(helper, SIGTERM);
    kill(helper, SIGINT);
    CHECK_FALSE(WaitUntil([&] { return kill(helper, 0) != 0; }, milliseconds(100)));
    kill(helper, SIGKILL);
    CHECK(WaitUntil([&] {
      thawer.Tend();
      return thawer.helper() != helper && thawer.helper() != 0;
    }));
    CHECK(Stopped(frozen.pid()));
  }
  CHECK(WaitUntil([&] { return !Stopped(frozen.pid()); }));
}

// --- Domains
// ----------------------------------------------------------------------------------------

// A host with v2 cgroups: /a/b/c, the limit where the test puts it.
struct FakeHost {
  TempDir dir;
  sys::Roots roots;

  FakeHost() {
    roots.proc = (dir / "proc").string();
    roots.prefix = dir.path().string();
    WriteFile(dir / "proc/meminfo",
              "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nMemAvailable: 4194304 kB\n"
              "Buffers: 0 kB\nCached: 0 kB\nShmem: 1024 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n");
    WriteFile(dir / "proc/vmstat", "pswpin 5\npswpout 0\noom_kill 3\n");
    WriteFile(dir / "proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    WriteFile(dir / "proc/77/cgroup", "0::/a/b/c\n");
    for (const char* path : {"", "/a", "/a/b", "/a/b/c"}) Cgroup(path, "max");
  }
  std::filesystem::path Folder(const std::string& path) {
    return dir.path() / "sys/fs/cgroup" / path.substr(path.empty() ? 0 : 1);
  }
  void Cgroup(const std::string& path, const std::string& limit, int64_t usage = 100 << 20) {
    WriteFile(Folder(path) / "memory.max", limit + "\n");
    WriteFile(Folder(path) / "memory.high", "max\n");
    WriteFile(Folder(path) / "memory.current", std::to_string(usage) + "\n");
    WriteFile(Folder(path) / "memory.stat",
              "anon 0\nfile 0\ninactive_file 1048576\n"
              "active_file 1048576\nshmem 0\n");
    WriteFile(Folder(path) / "memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 2\n");
  }
};

struct Heard {
  std::vector<policy::DomainSeen> seen;
  std::vector<DomainId> gone;
  Domains::Emit Emit() {
    return [this](policy::Event event) {
      if (auto* domain = std::get_if<policy::DomainSeen>(&event)) seen.push_back(*domain);
      if (auto* domain = std::get_if<policy::DomainGone>(&event)) gone.push_back(domain->id);
    };
  }
};

TEST_CASE("the host is a domain, without limits it is the only one") {
  FakeHost host;
  absl::StatusOr<Domains> domains = Domains::Open(host.roots);
  REQUIRE(domains.ok());
  Heard heard;
  domains->Start(heard.Emit());
  REQUIRE(heard.seen.size() == 1);
  CHECK(heard.seen[0].name == "host");
  CHECK(heard.seen[0].limit == policy::GiB(8));
  CHECK(domains->Hold(LaneId{1}, 77) == domains->host());
  const std::vector<policy::DomainSample> samples = domains->ReadAll();
  REQUIRE(samples.size() == 1);
  CHECK(samples[0].available == policy::GiB(4));
  CHECK(samples[0].oom_kills == 3);
  CHECK(samples[0].swap_in_pages == 5);
  CHECK_FALSE(samples[0].psi_full_avg10);
  const std::vector<std::string> notes = domains->notes();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("PSI") != std::string::npos);
}

TEST_CASE("the file system of temporary files is found by text, local ones alone") {
  const std::vector<sys::Mount> mounts = {
      {"/", "/", "ext4", "rw"},    {"/", "/tmp", "tmpfs", "rw"},
      {"/", "/net", "nfs4", "rw"}, {"/", "/net/disk", "ext4", "rw"},
      {"/", "/mnt", "xfs", "rw"},  {"/", "/mnt", "fuse.x", "rw"}};
  CHECK(LocalMountOf("/tmp", mounts) == "/tmp");
  CHECK(LocalMountOf("/tmp/a/../b", mounts) == "/tmp");
  CHECK(LocalMountOf("/tmpx", mounts) == "/");
  CHECK(LocalMountOf("/tmp/../var", mounts) == "/");
  CHECK(LocalMountOf("/net/x", mounts) == std::nullopt);
  CHECK(LocalMountOf("/net/disk/x", mounts) == std::nullopt);  // the way there could hang
  CHECK(LocalMountOf("/mnt/x", mounts) == std::nullopt);       // covered
  CHECK(LocalMountOf("tmp", mounts) == std::nullopt);
  CHECK(LocalMountOf("", mounts) == std::nullopt);
  CHECK(LocalMountOf("/tmp", {}) == std::nullopt);

  TempSpace space((sys::Roots()));
  space.Hold(LaneId{1}, getpid());
  space.Hold(LaneId{2}, 0);
  const auto read = space.Read();
  REQUIRE(read.size() <= 1);  // none where /tmp is no local file system
  if (!read.empty()) CHECK(read[0].free.count > 0);
  space.Drop(LaneId{1});
  CHECK(space.Read().empty());
}

TEST_CASE("memory.oom.group counts at the limits above it, not below") {
  FakeHost host;
  host.Cgroup("/a", "1073741824");
  host.Cgroup("/a/b/c", "536870912");
  WriteFile(host.Folder("/a/b") / "memory.oom.group", "1\n");
  WriteFile(host.Folder("/a/b/c") / "memory.oom.group", "0\n");
  absl::StatusOr<Domains> domains = Domains::Open(host.roots);
  REQUIRE(domains.ok());
  Heard heard;
  domains->Start(heard.Emit());
  const DomainId inner = domains->Hold(LaneId{1}, 77);
  // Twice: what is found below is told of those above at the next look.
  domains->ReadAll();
  domains->ReadAll();
  std::map<std::string, bool> kills;
  for (const policy::DomainSeen& seen : heard.seen) kills[seen.name] = seen.kills_group;
  REQUIRE(kills.size() == 3);
  CHECK(kills.at("host"));
  for (const policy::DomainSeen& seen : heard.seen) {
    INFO(seen.name);
    CHECK((seen.id != inner || !seen.kills_group));
  }
  bool outer_told = false;
  for (const policy::DomainSeen& seen : heard.seen)
    outer_told |= seen.limit == policy::GiB(1) && seen.kills_group;
  CHECK(outer_told);

  WriteFile(host.Folder("/a/b") / "memory.oom.group", "0\n");
  domains->ReadAll();
  domains->ReadAll();
  CHECK_FALSE(heard.seen.back().kills_group);
}

TEST_CASE("a limit on the grandparent alone is found (K6, v2)") {
  FakeHost host;
  host.Cgroup("/a", "1073741824", 200 << 20);
  absl::StatusOr<Domains> domains = Domains::Open(host.roots);
  REQUIRE(domains.ok());
  Heard heard;
  domains->Start(heard.Emit());
  const DomainId id = domains->Hold(LaneId{1}, 77);
  REQUIRE(heard.seen.size() == 2);
  CHECK(heard.seen[1].id == id);
  CHECK(heard.seen[1].parent == domains->host());
  CHECK(heard.seen[1].limit == policy::GiB(1));
  CHECK(domains->Lookup(77) == id);
  const std::vector<policy::DomainSample> samples = domains->ReadFast();
  REQUIRE(samples.size() == 2);
  CHECK(samples[1].id == id);
  CHECK(samples[1].available == policy::MiB(1024 - 200 + 2));
  CHECK(domains->OomKills(id) == 2);

  // A limit that is set later below it nests into it; the lane is then in the inner one.
  host.Cgroup("/a/b/c", "536870912");
  domains->ReadAll();
  REQUIRE(heard.seen.size() == 3);
  CHECK(heard.seen[2].parent == id);
  CHECK(domains->Hold(LaneId{1}, 77) == heard.seen[2].id);
  // And one that is lifted is no domain any more.
  host.Cgroup("/a/b/c", "max");
  domains->ReadAll();
  CHECK(heard.gone == std::vector<DomainId>{heard.seen[2].id});
  CHECK(domains->Lookup(77) == id);
}

TEST_CASE("a cgroup that vanishes leaves its parent, a lane that ends leaves nothing") {
  FakeHost host;
  host.Cgroup("/a", "1073741824");
  host.Cgroup("/a/b/c", "536870912");
  absl::StatusOr<Domains> domains = Domains::Open(host.roots);
  REQUIRE(domains.ok());
  Heard heard;
  domains->Start(heard.Emit());
  const DomainId inner = domains->Hold(LaneId{1}, 77);
  REQUIRE(heard.seen.size() == 3);
  const DomainId outer = heard.seen[1].id;
  CHECK(domains->Tightest({inner, outer}) != domains->host());
  std::filesystem::remove_all(host.Folder("/a/b/c"));
  domains->ReadAll();
  CHECK(heard.gone == std::vector<DomainId>{inner});
  CHECK(domains->Hold(LaneId{1}, 77) == outer);
  domains->Drop(LaneId{1});
  CHECK(heard.gone == std::vector<DomainId>{inner, outer});
  CHECK(domains->ReadAll().size() == 1);
  // Gone altogether: the host counts.
  std::filesystem::remove_all(host.dir / "proc/77");
  CHECK(domains->Hold(LaneId{1}, 77) == domains->host());
}

TEST_CASE("OOM kills below a v1 domain stay counted when the cgroup of the victim is gone") {
  FakeHost host;
  WriteFile(host.dir / "proc/self/mountinfo",
            "30 1 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  const auto pid_in = [&](int pid, const std::string& path) {
    WriteFile(host.dir / "proc" / std::to_string(pid) / "cgroup", "4:memory:" + path + "\n");
  };
  const auto folder = [&](const std::string& path) {
    return host.dir.path() / ("sys/fs/cgroup/memory" + path);
  };
  const auto cgroup = [&](const std::string& path, int64_t limit, int kills) {
    WriteFile(folder(path) / "memory.limit_in_bytes", std::to_string(limit) + "\n");
    WriteFile(folder(path) / "memory.usage_in_bytes", "4096\n");
    WriteFile(folder(path) / "memory.stat",
              "cache 0\nrss 0\ntotal_inactive_file 0\ntotal_active_file 0\n");
    WriteFile(folder(path) / "memory.oom_control",
              "oom_kill_disable 0\nunder_oom 0\noom_kill " + std::to_string(kills) + "\n");
  };
  constexpr int64_t kNone = 9223372036854771712;
  cgroup("", kNone, 0);
  cgroup("/a", int64_t{1} << 30, 5);
  cgroup("/a/x", kNone, 7);  // killed before anybody looked: no news of /a
  cgroup("/a/y", int64_t{1} << 29, 0);
  pid_in(77, "/a/x");
  pid_in(78, "/a/y");
  absl::StatusOr<Domains> domains = Domains::Open(host.roots);
  REQUIRE(domains.ok());
  Heard heard;
  domains->Start(heard.Emit());
  const DomainId a = domains->Hold(LaneId{1}, 77);
  const DomainId y = domains->Hold(LaneId{1}, 78);
  REQUIRE(a != domains->host());
  const auto kills = [&](DomainId id, const std::vector<policy::DomainSample>& samples) {
    for (const policy::DomainSample& sample : samples) {
      if (sample.id == id) return static_cast<int>(sample.oom_kills);
    }
    return -1;
  };
  // The first that is heard of a domain is no rise, whichever look it was.
  CHECK(kills(a, domains->ReadFast()) == 5);
  CHECK(kills(a, domains->ReadAll()) == 5);
  cgroup("/a/x", kNone, 9);
  cgroup("/a/y", int64_t{1} << 29, 1);
  CHECK(kills(a, domains->ReadAll()) == 8);
  CHECK(kills(y, domains->ReadAll()) == 1);
  CHECK(domains->OomKills(a) == 8);
  std::filesystem::remove_all(folder("/a/x"));
  CHECK(kills(a, domains->ReadAll()) == 8);
  CHECK(domains->OomKills(a) == 8);
  cgroup("/a", int64_t{1} << 30, 6);
  CHECK(kills(a, domains->ReadAll()) == 9);
  // Made again under the same name: its counter begins anew, that of /a goes on.
  cgroup("/a/x", kNone, 0);
  domains->Hold(LaneId{1}, 77);
  cgroup("/a/x", kNone, 1);
  CHECK(domains->OomKills(a) == 10);
  CHECK(kills(a, domains->ReadAll()) == 10);
  domains->Drop(LaneId{1});
}

TEST_CASE("ZFS's cache is credited in slices, never whole (K8)") {
  CHECK(ArcCredit(0, policy::GiB(8).count) == 0);
  CHECK(ArcCredit(-5, policy::GiB(8).count) == 0);
  CHECK(ArcCredit(policy::MiB(100).count, policy::GiB(8).count) == policy::MiB(100).count);
  CHECK(ArcCredit(policy::GiB(6).count, policy::GiB(8).count) == policy::MiB(256).count);
  CHECK(ArcCredit(policy::GiB(200).count, policy::GiB(500).count) == policy::GiB(10).count);

  FakeHost host;
  WriteFile(host.dir / "proc/spl/kstat/zfs/arcstats",
            "13 1 0x01 123 33456 1 2\nname type data\nsize 4 2147483648\nc_min 4 1073741824\n");
  absl::StatusOr<Domains> domains = Domains::Open(host.roots);
  REQUIRE(domains.ok());
  Heard heard;
  domains->Start(heard.Emit());
  CHECK(domains->ReadAll()[0].available == policy::GiB(4) + policy::MiB(256));
  CHECK(domains->host_extras().arc_credit_bytes == policy::MiB(256).count);
  CHECK(domains->host_extras().shmem_bytes == policy::MiB(1).count);
}

TEST_CASE("a glance sees what is left without the file pages, and those too where they may go") {
  FakeHost host;
  host.Cgroup("/a", "1073741824", 200 << 20);
  absl::StatusOr<Domains> domains = Domains::Open(host.roots);
  REQUIRE(domains.ok());
  Heard heard;
  domains->Start(heard.Emit());
  domains->Hold(LaneId{1}, 77);
  domains->ReadAll();
  const auto left = [](const std::vector<policy::DomainSample>& samples) {
    REQUIRE(samples.size() == 2);
    return samples[1].available;
  };
  CHECK(left(domains->Glance()) == policy::MiB(1024 - 200 + 2));
  const auto file_pages = [&](int64_t bytes) {
    WriteFile(host.Folder("/a") / "memory.stat",
              "inactive_file " + std::to_string(bytes) + "\nactive_file 0\n");
  };
  const auto usage = [&](int64_t bytes) {
    WriteFile(host.Folder("/a") / "memory.current", std::to_string(bytes) + "\n");
  };
  file_pages(0);
  usage(300 << 20);
  CHECK(left(domains->Glance()) == policy::MiB(1024 - 300 + 2));
  CHECK(left(domains->ReadFast()) == policy::MiB(1024 - 300));
  // At the limit usage stands still while anonymous memory takes the place of file pages.
  file_pages(400 << 20);
  usage(1020 << 20);
  CHECK(left(domains->Glance()) == policy::MiB(1024 - 1020 + 400));
  file_pages(100 << 20);
  CHECK(left(domains->Glance()) == policy::MiB(1024 - 1020 + 100));
}

// --- Catalog
// ----------------------------------------------------------------------------------------

TEST_CASE("the catalog sees processes come, exec and go, and their lane") {
  const sys::Roots roots;
  Catalog catalog(roots);
  catalog.SetUsers({getuid()});
  Time now{};
  catalog.Refresh(now, {});
  // Not the daemon itself, nor what it starts: so what is watched here is a grandchild.
  headroom::testing::ProgramOptions options = Command({"sh", "-c", "sleep 100 & echo $!; wait"});
  options.env["HEADROOM_LANE"] = "/run/headroom/0/shared";
  Program child(options);
  REQUIRE(WaitUntil([&] { return !child.Out().empty(); }));
  const pid_t pid = std::stoi(child.Out());
  REQUIRE(WaitUntil([&] { return headroom::testing::ProcessName(pid) == "sleep"; }));
  now += seconds(1);
  catalog.Refresh(now, {});
  CHECK_FALSE(catalog.processes().contains(child.pid()));
  REQUIRE(catalog.processes().contains(pid));
  const KnownProcess& known = catalog.processes().at(pid);
  CHECK(known.comm == "sleep");
  CHECK(known.ppid == child.pid());
  CHECK(known.lane_dir == "/run/headroom/0/shared");
  CHECK(known.uid == getuid());
  kill(pid, SIGKILL);
  child.Wait();
  now += seconds(2);
  const Catalog::Changes changes = catalog.Refresh(now, {});
  const std::vector<KnownProcess>& gone = changes.gone;
  CHECK(std::any_of(gone.begin(), gone.end(),
                    [&](const KnownProcess& process) { return process.id.pid == pid; }));
  CHECK_FALSE(catalog.processes().contains(pid));
}

TEST_CASE("the catalog lists nothing and tells of no change where nothing came or went") {
  FakeHost host;
  const auto stat = [&](int pid, const std::string& comm, char state, int ppid, int threads) {
    WriteFile(host.dir / "proc" / std::to_string(pid) / "stat",
              std::to_string(pid) + " (" + comm + ") " + state + " " + std::to_string(ppid) +
                  " 1 1 0 0 0 0 0 0 0 5 5 0 0 20 0 " + std::to_string(threads) +
                  " 0 99 4136960 497 0\n");
  };
  const auto tasks = [&](const std::string& count) {
    WriteFile(host.dir / "proc/loadavg", "0.20 0.18 0.12 1/" + count + "\n");
  };
  stat(500, "make", 'S', 1, 1);
  stat(501, "sh", 'S', 500, 1);
  tasks("80 501");
  Catalog catalog(host.roots);
  Time now{seconds(100)};
  const ProcId member{501, 99};
  CHECK(catalog.Refresh(now, {member}).any);
  now += milliseconds(100);
  CHECK_FALSE(catalog.Refresh(now, {member}).any);
  // Not told by the count: not there for up to a second.
  stat(502, "cc1plus", 'S', 501, 1);
  now += milliseconds(100);
  CHECK_FALSE(catalog.Refresh(now, {member}).any);
  CHECK_FALSE(catalog.processes().contains(502));
  tasks("81 502");
  now += milliseconds(100);
  CHECK(catalog.Refresh(now, {member}).any);
  CHECK(catalog.processes().contains(502));
  stat(503, "cc1plus", 'S', 501, 1);
  now += seconds(1);
  CHECK(catalog.Refresh(now, {member}).any);
  CHECK(catalog.processes().contains(503));
  // A member that has been what it is for 40 s is looked at each 10 s, whatever it becomes,
  now += seconds(40);
  catalog.Refresh(now, {member});
  stat(501, "make", 'S', 500, 1);
  now += seconds(9);
  CHECK_FALSE(catalog.Refresh(now, {member}).any);
  now += milliseconds(1100);
  CHECK(catalog.Refresh(now, {member}).any);
  stat(501, "sh", 'S', 500, 1);
  now += seconds(1);
  CHECK(catalog.Refresh(now, {member}).any);
  now += seconds(40);
  catalog.Refresh(now, {member});
  // but at once after the end of a child of its: sh -c 'a; exec b'.
  std::filesystem::remove_all(host.dir / "proc/502");
  tasks("80 503");
  now += milliseconds(100);
  catalog.Refresh(now, {member, {502, 99}});
  stat(501, "cc1plus", 'S', 500, 3);
  now += milliseconds(100);
  CHECK(catalog.Refresh(now, {member}).any);
  CHECK(catalog.processes().at(501).comm == "cc1plus");
  CHECK(catalog.processes().at(501).threads == 3);
  // Just exec'ed: looked at each time.
  stat(501, "cc1plus", 'Z', 500, 1);
  now += milliseconds(50);
  CHECK(catalog.Refresh(now, {member}).any);
  CHECK(catalog.processes().at(501).dead);
  // What no lane has to do with comes and goes unheard, but is known; a root's child is heard of.
  stat(600, "bash", 'S', 1, 1);
  tasks("81 600");
  now += milliseconds(50);
  CHECK_FALSE(catalog.Refresh(now, {member}).any);
  CHECK(catalog.processes().contains(600));
  stat(601, "bash", 'S', 600, 1);
  tasks("82 601");
  now += milliseconds(50);
  CHECK(catalog.Refresh(now, {member}, {600}).any);
  // One that is learned of by other means is not taken for one that is gone.
  stat(504, "cicc", 'R', 501, 1);
  REQUIRE(catalog.Learn({504, 99}, now) != nullptr);
  now += milliseconds(50);
  CHECK(catalog.Refresh(now, {member}).gone.empty());
  CHECK(catalog.processes().contains(504));
}

// --- Accounts
// ---------------------------------------------------------------------------------------

TEST_CASE("jobs are averaged over the wall time, frozen and idle time included as none") {
  const Time start{seconds(100)};
  LaneAccount account(start);
  account.Saw(start + seconds(2), 4, 6, 1000);
  account.Saw(start + seconds(4), 2, 2, 5000);
  account.Saw(start + seconds(6), 0, 0, 0);
  const v1::LaneSummary summary = account.Summary(start + seconds(12));
  CHECK(summary.wall_ns() == 12'000'000'000u);
  CHECK(summary.jobs_min() == 2);
  CHECK(summary.jobs_max() == 4);
  CHECK(summary.jobs_mean() == Approx(1.0));
  CHECK(summary.tools_mean() == Approx(16.0 / 12));
  CHECK(summary.peak_bytes() == 5000);
  CHECK(LaneAccount(start).Summary(start).jobs_mean() == 0);
}

TEST_CASE("incidents are told with what was lost, and bounded") {
  LaneAccount account(Time{});
  for (int i = 0; i < 10000; ++i) {
    account.AddIncident(v1::Incident::FREEZE, "cicc", "a.cu", 7, 9, "/x", Time{seconds(i)});
  }
  account.AddUngated("ld");
  account.AddUngated("ld");
  account.AddOomKills(2);
  const v1::LaneSummary summary = account.Summary(Time{seconds(20000)});
  CHECK(summary.freezes() == 10000);
  CHECK(summary.incidents_size() == 500);
  CHECK(summary.incidents(3).at_ns() == 3'000'000'000u);
  CHECK(summary.incidents(3).tool() == "cicc");
  CHECK(summary.oom_kills() == 2);
  CHECK(summary.ungated() == 2);
  CHECK(summary.ungated_tools_size() == 1);
}

// --- Core
// -------------------------------------------------------------------------------------------

struct Carried : Interpreter {
  Core* core = nullptr;
  std::vector<policy::Action> actions;
  void Carry(const policy::Action& action) override {
    actions.push_back(action);
    // What a real one reports: it comes back as an event, after this one.
    if (const auto* mint = std::get_if<policy::Mint>(&action)) {
      core->Feed(policy::TokensMoved{mint->lane, mint->count, 0, mint->count});
    }
  }
};

TEST_CASE("an event's actions are carried out, remembered with their names, and answered") {
  Carried carried;
  Time now{seconds(1)};
  Core core({[&] { return now; }, [] { return std::chrono::system_clock::time_point{}; }}, carried,
            nullptr);
  carried.core = &core;
  core.Feed(
      policy::DomainSeen{DomainId{1}, DomainId::kNone, "host", policy::GiB(64), false, false});
  policy::Sample sample;
  sample.domains.push_back({DomainId{1}, policy::GiB(60), 0, {}, 0});
  core.Feed(sample);
  policy::LaneOpened lane;
  lane.id = LaneId{3};
  lane.uid = 1000;
  lane.name = "run-5-1";
  lane.domain = DomainId{1};
  lane.cores = 4;
  core.Feed(lane);
  for (int i = 0; i < 5; ++i) {
    now += seconds(1);
    core.Feed(sample);
  }
  const policy::LaneState& state = core.state().lanes.at(LaneId{3});
  CHECK(state.minted > 0);
  CHECK(state.minted == state.idle);
  REQUIRE_FALSE(core.decisions().empty());
  const Decision& decision = core.decisions().front();
  CHECK(decision.lane_name == "run-5-1");
  CHECK(decision.uid == 1000);
  const v1::Decision shown = ToProto(decision);
  CHECK(shown.action() == "mint");
  CHECK(shown.count() > 0);
  CHECK_FALSE(shown.reason().empty());
  CHECK(core.broken_invariants() == 0);
}

TEST_CASE("every reason and every input has a name of its own") {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(policy::ReasonCode::kPredictionOff); ++i) {
    names.push_back(NameOf(static_cast<policy::ReasonCode>(i)));
  }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK_FALSE(std::binary_search(names.begin(), names.end(), "unknown"));
  names.clear();
  for (int i = 0; i <= static_cast<int>(policy::Input::kExplained); ++i) {
    names.push_back(NameOf(static_cast<policy::Input>(i)));
  }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK_FALSE(std::binary_search(names.begin(), names.end(), "unknown"));
}

// --- Hints from the real file system
// ----------------------------------------------------------------

TEST_CASE("a client's build file is read through its folder, a fifo in its place is not") {
  const TempDir dir;
  WriteFile(dir / "build.ninja", "rule c\n  command = nvcc -c $in -o $out\nbuild a.o: c a.cu\n");
  WriteFile(dir / "other.ninja", "rule c\n  command = g++ -c $in -o $out\nbuild b.o: c b.cc\n");
  headroom::testing::ProgramOptions options = Command({"sleep", "100"});
  options.cwd = dir.path();
  Program client(options);
  const auto read = [&](const std::vector<std::string>& argv) {
    return ReadNinjaHints("/proc", client.pid(), argv);
  };
  REQUIRE(WaitUntil([&] { return !read({"ninja"}).empty(); }));
  CHECK(read({"ninja"})[0].driver == "nvcc");
  CHECK(read({"ninja", "-f", "other.ninja"})[0].driver == "c++");
  CHECK(read({"ninja", "-fother.ninja"})[0].driver == "c++");
  WriteFile(dir / "b.o", "");
  CHECK(read({"ninja", "-f", "other.ninja"}).empty());
  REQUIRE(mkfifo((dir / "fifo.ninja").c_str(), 0600) == 0);
  CHECK(read({"ninja", "-f", "fifo.ninja"}).empty());
  CHECK(read({"ninja", "-f", "/dev/zero"}).empty());
  CHECK(ReadNinjaHints("/proc", 0x7ffffff0, {"ninja"}).empty());
}

}  // namespace
}  // namespace headroom::daemon
