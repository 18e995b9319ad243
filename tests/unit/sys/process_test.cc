// process, anon_reader, process_table, oom_score.
#include "server/sys/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>

#include "server/sys/anon_reader.h"
#include "server/sys/oom_score.h"
#include "server/sys/process_table.h"
#include "tests/unit/sys/sys_fixture.h"

namespace headroom::sys {
namespace {

std::string StatLine(pid_t pid, const std::string& comm, char state, pid_t ppid, uint64_t start) {
  return std::to_string(pid) + " (" + comm + ") " + state + " " + std::to_string(ppid) +
         " 10 11 34816 10 4194304 129 0 0 0 812 77 0 0 20 0 4 0 " + std::to_string(start) +
         " 4136960 497 18446744073709551615 1 1 1 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 "
         "0\n";
}

TEST_CASE("stat") {
  const auto stat = ParseProcStat(StatLine(11645, "cicc", 'R', 11634, 133135));
  REQUIRE(stat);
  CHECK(stat->pid == 11645);
  CHECK(stat->comm == "cicc");
  CHECK(stat->state == 'R');
  CHECK(stat->ppid == 11634);
  CHECK(stat->pgrp == 10);
  CHECK(stat->session == 11);
  CHECK(stat->user_ticks == 812);
  CHECK(stat->system_ticks == 77);
  CHECK(stat->cpu_ticks() == 889);
  CHECK(stat->threads == 4);
  CHECK(stat->start_ticks == 133135);
  CHECK(stat->rss_pages == 497);
  CHECK_FALSE(stat->dead());
  CHECK(ParseProcStat(KernelText("linux_6_18_stat"))->pid == 1);
}

TEST_CASE("stat with hostile names") {
  const std::vector<std::string> names = {
      "",          " ",      ")",         "(",           ") R 1 (",           "a) R 1 1",
      "\n",        "x\ny",   "((((",      "))))",        "1 (a) S 2",         "\xff\xfe\x80",
      "tab\there", "%s%n%d", "$(reboot)", ") Z 1 1 1 1", "kworker/0:1-ev (x)"};
  for (const std::string& name : names) {
    INFO(name);
    const auto stat = ParseProcStat(StatLine(77, name, 'S', 5, 99));
    REQUIRE(stat);
    CHECK(stat->comm == name);
    CHECK(stat->state == 'S');
    CHECK(stat->ppid == 5);
    CHECK(stat->id() == ProcessId{77, 99});
  }
  CHECK(ParseProcStat(KernelText("stat_hostile_parentheses"))->comm == "a) R 1 (b) c");
  CHECK(ParseProcStat(KernelText("stat_hostile_newline"))->comm == "x\ny) Z 1 1\nz");
}

TEST_CASE("stat that isn't whole is refused") {
  const std::string line = StatLine(77, "x", 'S', 5, 99);
  CHECK_FALSE(ParseProcStat(""));
  CHECK_FALSE(ParseProcStat("77 x S 5"));
  CHECK_FALSE(ParseProcStat(")("));
  CHECK_FALSE(ParseProcStat("x (y) S 1 2 3"));
  CHECK_FALSE(ParseProcStat(line.substr(0, line.find("99"))));
  CHECK_FALSE(ParseProcStat(StatLine(-3, "x", 'S', 5, 99)));
}

TEST_CASE("statm, cmdline, environ, status") {
  const auto statm = ParseStatm("1010 497 456 8 0 98 0\n");
  REQUIRE(statm);
  CHECK(statm->anon_pages() == 41);
  CHECK(ParseStatm("1010 4 5 8 0 98 0\n")->anon_pages() == 0);  // the counters lag
  CHECK_FALSE(ParseStatm("1010 497"));
  CHECK_FALSE(ParseStatm("1010 -1 2"));

  CHECK(ParseCmdline(KernelText("cmdline")) ==
        std::vector<std::string>{"nvcc", "-c", "a b.cu", "", "--threads", "4"});
  CHECK(ParseCmdline("").empty());
  CHECK(ParseCmdline("sshd: user [priv]") == std::vector<std::string>{"sshd: user [priv]"});

  const std::string environ_text = KernelText("environ");
  CHECK(FindInEnviron(environ_text, "HEADROOM_LANE") == "/run/headroom/1000/shared");
  CHECK(FindInEnviron(environ_text, "EMPTY") == "");
  CHECK_FALSE(FindInEnviron(environ_text, "HEADROOM"));
  CHECK_FALSE(FindInEnviron("HEADROOM_LANE", "HEADROOM_LANE"));
  CHECK(FindInEnviron(std::string_view("A=1\0A=2\0", 8), "A") == "1");

  CHECK(ParseStatusUid("Name:\tx\nUid:\t1000\t1001\t0\t0\n") == 1000u);
  CHECK(ParseStatusUid(KernelText("linux_6_18_status")) == 0u);
  CHECK_FALSE(ParseStatusUid("Name:\tUid: 5\n"));
  CHECK(Basename("/usr/lib/gcc/cc1plus") == "cc1plus");
  CHECK(Basename("cc1plus") == "cc1plus");
  CHECK(Basename("/").empty());
}

TEST_CASE("our own process") {
  const Roots roots;
  const auto stat = ReadProcStat(roots, getpid());
  REQUIRE(stat);
  CHECK(stat->ppid == getppid());
  CHECK(ReadProcessId(roots, getpid()) == stat->id());
  CHECK(ReadRealUid(roots, getpid()) == getuid());
  const auto exe = ReadExe(roots, getpid());
  REQUIRE(exe);
  CHECK(Basename(*exe) == "sys_process_test");
  CHECK(ReadCwd(roots, getpid()).has_value());
  const auto cmdline = ReadCmdline(roots, getpid());
  REQUIRE(cmdline);
  CHECK(Basename(cmdline->front()) == "sys_process_test");
}

TEST_CASE("a process that is gone is nullopt everywhere") {
  const Roots roots;
  Child child(Sleep);
  const auto id = ReadProcessId(roots, child.pid());
  REQUIRE(id);
  const auto reader = AnonReader::Open(roots, *id);
  REQUIRE(reader);
  REQUIRE(reader->Read());
  child.Kill();
  // Dead, not yet reaped: a zombie has no memory.
  REQUIRE(Eventually([&] { return ReadProcStat(roots, child.pid())->dead(); }));
  CHECK(reader->ReadAnonBytes() == 0);
  CHECK_FALSE(reader->Read());
  child.Wait();
  CHECK_FALSE(reader->ReadAnonBytes());
  CHECK_FALSE(reader->Read());
  CHECK_FALSE(AnonReader::Open(roots, *id));
  CHECK_FALSE(ReadProcStat(roots, id->pid));
  CHECK_FALSE(ReadProcessId(roots, id->pid));
  CHECK_FALSE(ReadCmdline(roots, id->pid));
  CHECK_FALSE(ReadEnvironVariable(roots, id->pid, "PATH"));
  CHECK_FALSE(ReadCwd(roots, id->pid));
  CHECK_FALSE(ReadExe(roots, id->pid));
  CHECK_FALSE(ReadRealUid(roots, id->pid));
  CHECK(FindOpeners(roots, FileId{1, 1}, {id->pid}).pids.empty());
  CHECK(FindOpeners(roots, FileId{1, 1}, {id->pid}).denied.empty());
}

TEST_CASE("a pid that is used again is not taken for the old process") {
  const TempDir tree;
  tree.Write("proc/77/stat", StatLine(77, "cicc", 'R', 1, 99));
  tree.Write("proc/77/statm", "1010 497 456 8 0 98 0\n");
  REQUIRE(AnonReader::Open(tree.roots(), {77, 99}));
  CHECK_FALSE(AnonReader::Open(tree.roots(), {77, 98}));
  tree.Remove("proc/77/statm");
  CHECK_FALSE(AnonReader::Open(tree.roots(), {77, 99}));
}

TEST_CASE("anonymous memory is seen, mapped files and shared memory are not") {
  constexpr size_t kBytes = size_t{64} << 20;
  int pipe_fds[2];
  REQUIRE(pipe(pipe_fds) == 0);
  Child child([&] {
    void* shared = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    void* own = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || own == MAP_FAILED) return 1;
    for (size_t i = 0; i < kBytes; i += 4096) {
      static_cast<volatile char*>(shared)[i] = 1;
      static_cast<volatile char*>(own)[i] = 1;
    }
    if (write(pipe_fds[1], "x", 1) != 1) return 1;
    return Sleep();
  });
  char byte = 0;
  REQUIRE(read(pipe_fds[0], &byte, 1) == 1);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  const auto reader = AnonReader::Open(Roots(), *ReadProcessId(Roots(), child.pid()));
  REQUIRE(reader);
  const auto sample = reader->Read();
  REQUIRE(sample);
  // The child keeps a copy of what the test program itself had, which is little without sanitizers.
  const auto bytes = static_cast<int64_t>(kBytes);
  CHECK(sample->anon_bytes > bytes - (4 << 20));
  if (!UnderSanitizer()) CHECK(sample->anon_bytes < bytes + (16 << 20));
  CHECK(sample->resident_bytes > 2 * bytes - (8 << 20));
  CHECK(reader->ReadAnonBytes() == sample->anon_bytes);
}

TEST_CASE("a process may call itself anything") {
  Child child([] {
    prctl(PR_SET_NAME, ") R 1 1\n(");
    return Sleep();
  });
  REQUIRE(Eventually([&] { return ReadProcStat(Roots(), child.pid())->comm == ") R 1 1\n("; }));
  CHECK(ReadProcStat(Roots(), child.pid())->ppid == getpid());
  const auto table = ProcessTable::Scan(Roots());
  REQUIRE(table.ok());
  const ProcessInfo* info = table->Find(child.pid());
  REQUIRE(info != nullptr);
  CHECK(info->ppid == getpid());
}

ProcessInfo Info(pid_t pid, pid_t ppid, uint64_t start = 1) {
  ProcessInfo info;
  info.id = {pid, start};
  info.ppid = ppid;
  return info;
}

std::vector<pid_t> Pids(const std::vector<const ProcessInfo*>& infos) {
  std::vector<pid_t> pids;
  for (const ProcessInfo* info : infos) pids.push_back(info->id.pid);
  return pids;
}

TEST_CASE("the process tree") {
  const ProcessTable table({Info(40, 20), Info(1, 0), Info(20, 10), Info(10, 1), Info(30, 10),
                            Info(50, 40), Info(60, 1), Info(70, 999)});
  CHECK(Pids(table.Children(10)) == std::vector<pid_t>{20, 30});
  CHECK(table.Children(50).empty());
  CHECK(Pids(table.Children(999)) == std::vector<pid_t>{70});  // its parent was missed
  CHECK(Pids(table.Subtree(10)) == std::vector<pid_t>{10, 20, 30, 40, 50});
  CHECK(Pids(table.Subtree(999)) == std::vector<pid_t>{70});
  CHECK(table.Subtree(12345).empty());
  CHECK(Pids(table.Ancestors(50)) == std::vector<pid_t>{40, 20, 10, 1});
  CHECK(table.Ancestors(70).empty());
  CHECK(table.Find(60) != nullptr);
  CHECK(table.Find(61) == nullptr);
  CHECK(table.Find(ProcessId{60, 1}) != nullptr);
  CHECK(table.Find(ProcessId{60, 2}) == nullptr);
  CHECK(ProcessTable().Subtree(1).empty());
}

TEST_CASE("an impossible circle of parents ends") {
  const ProcessTable table({Info(10, 30), Info(20, 10), Info(30, 20), Info(5, 5)});
  CHECK(table.Subtree(10).size() == 3);
  CHECK(table.Ancestors(10).size() == 2);
  CHECK(table.Subtree(5).size() == 1);
  CHECK(table.Ancestors(5).empty());
}

TEST_CASE("a scan of a fake /proc") {
  const TempDir tree;
  CHECK(ProcessTable::Scan(tree.roots()).status().code() == absl::StatusCode::kNotFound);
  tree.Write("proc/100/stat", StatLine(100, "ninja", 'S', 1, 5));
  tree.Write("proc/101/stat", StatLine(101, "sh (x) R", 'S', 100, 6));
  tree.Write("proc/102/stat", "half a li");
  tree.MakeFolder("proc/103");
  tree.Write("proc/self/stat", StatLine(100, "self", 'S', 1, 5));
  tree.Write("proc/1x/stat", StatLine(9, "x", 'S', 1, 5));
  const auto table = ProcessTable::Scan(tree.roots());
  REQUIRE(table.ok());
  REQUIRE(table->Find(100) != nullptr);
  CHECK(table->Find(100)->comm == "ninja");
  CHECK(table->Find(100)->uid == getuid());
  CHECK(table->Find(100)->cpu_ticks == 889);
  CHECK(table->Find(100)->threads == 4);
  CHECK(table->Find(100)->rss_bytes == 497 * PageBytes());
  CHECK(Pids(table->Subtree(100)) == std::vector<pid_t>{100, 101});
  CHECK(table->Find(102) == nullptr);
}

TEST_CASE("a scan of the real /proc") {
  Child child(Sleep);
  const auto table = ProcessTable::Scan(Roots());
  REQUIRE(table.ok());
  REQUIRE(table->Find(child.pid()) != nullptr);
  CHECK(table->Find(child.pid())->ppid == getpid());
  CHECK(table->Find(child.pid())->uid == geteuid());
  const auto subtree = Pids(table->Subtree(getpid()));
  CHECK(std::find(subtree.begin(), subtree.end(), child.pid()) != subtree.end());
  CHECK(std::is_sorted(table->processes().begin(), table->processes().end(),
                       [](const auto& a, const auto& b) { return a.id.pid < b.id.pid; }));
}

TEST_CASE("who has a file open") {
  const TempDir dir;
  const std::string path = dir / "fifo";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  const auto id = IdOf(fd);
  REQUIRE(id.ok());
  Child holder(Sleep);
  Child other([fd] {
    close(fd);
    return Sleep();
  });
  CHECK(Eventually([&] {
    return FindOpeners(Roots(), *id, {holder.pid(), other.pid()}).pids ==
           std::vector<pid_t>{holder.pid()};
  }));
  CHECK(FindOpeners(Roots(), *id, {getpid()}).pids == std::vector<pid_t>{getpid()});
  close(fd);
  CHECK(FindOpeners(Roots(), *id, {getpid()}).pids.empty());
}

TEST_CASE("oom_score_adj is raised, never lowered") {
  Child child(Sleep);
  const Roots roots;
  const auto id = ReadProcessId(roots, child.pid());
  REQUIRE(id);
  const std::string file = "/proc/" + std::to_string(child.pid()) + "/oom_score_adj";
  const auto value = [&file] { return std::stoi(*ReadFile(file)); };
  REQUIRE(RaiseOomScoreAdj(roots, *id, 500).ok());
  CHECK(value() == 500);
  REQUIRE(RaiseOomScoreAdj(roots, *id, 300).ok());
  CHECK(value() == 500);
  REQUIRE(RaiseOomScoreAdj(roots, *id, 5000).ok());
  CHECK(value() == 1000);
  CHECK(RaiseOomScoreAdj(roots, {id->pid, id->start_ticks + 1}, 900).code() ==
        absl::StatusCode::kNotFound);
  child.Kill();
  child.Wait();
  CHECK(RaiseOomScoreAdj(roots, *id, 900).code() == absl::StatusCode::kNotFound);
}

TEST_CASE("reading stays cheap") {
  // Bars are ten times what an idle machine takes: they catch an accidental second pass, no more.
  if (UnderSanitizer()) {
    std::cout << "SKIPPED: timings mean nothing under a sanitizer\n";
    return;
  }
  const auto reader = AnonReader::Open(Roots(), *ReadProcessId(Roots(), getpid()));
  REQUIRE(reader);
  const auto seconds_of = [](const auto& body) {
    timespec before = {}, after = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    body();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    return static_cast<double>(after.tv_sec - before.tv_sec) +
           static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9;
  };
  const double anon = seconds_of([&] {
                        for (int i = 0; i < 10000; ++i) reader->ReadAnonBytes();
                      }) /
                      10000;
  size_t processes = 0;
  constexpr int kScans = 20;
  const double scan = seconds_of([&] {
    for (int i = 0; i < kScans; ++i) processes += ProcessTable::Scan(Roots())->processes().size();
  });
  const double per_thousand = scan / static_cast<double>(processes) * 1000;
  WARN("anon read " << anon * 1e6 << " us; scan " << per_thousand * 1e3
                    << " ms per 1,000 processes (" << processes / kScans << " here)");
  CHECK(anon < 20e-6);
  CHECK(per_thousand < 0.17);
}

}  // namespace
}  // namespace headroom::sys
