// process, anon_reader, process_table, oom_score.
#include "server/sys/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <iostream>
#include <thread>

#include "server/sys/anon_reader.h"
#include "server/sys/oom_score.h"
#include "server/sys/process_table.h"
#include "tests/support/sanitizers.h"
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

TEST_CASE("response files") {
  using Words = std::vector<std::string>;
  CHECK(ParseResponseFile("").empty());
  CHECK(ParseResponseFile(" \n\t ").empty());
  CHECK(ParseResponseFile("-c a.cu\n-o a.o") == Words{"-c", "a.cu", "-o", "a.o"});
  CHECK(ParseResponseFile("\"two words.cu\" 'x y'z \\ w \"\"") ==
        Words{"two words.cu", "x yz", " w", ""});
  CHECK(ParseResponseFile("\"open end") == Words{"open end"});
  CHECK(ParseResponseFile("end\\") == Words{"end\\"});

  const TempDir dir;
  dir.MakeFolder("proc/7/cwd/folder");
  dir.Write("proc/7/cwd/a.rsp", "-c @b.rsp kernel.cu");
  dir.Write("absolute.rsp", "-O2");
  REQUIRE(mkfifo((dir / "proc/7/cwd/fifo").c_str(), 0600) == 0);
  const auto with = [&](Words argv) { return WithResponseFiles(dir.roots(), 7, std::move(argv)); };
  CHECK(with({"nvcc", "@a.rsp", "-o", "x.o"}) ==
        Words{"nvcc", "-c", "@b.rsp", "kernel.cu", "-o", "x.o"});
  CHECK(with({"nvcc", "@" + (dir / "absolute.rsp")}) == Words{"nvcc", "-O2"});
  // What can't be read is left as it is, and nothing hangs.
  CHECK(with({"ld", "@gone", "@fifo", "@folder", "@"}) ==
        Words{"ld", "@gone", "@fifo", "@folder", "@"});
  CHECK(with({"@a.rsp"}) == Words{"@a.rsp"});
  CHECK(with({}) == Words{});
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
  CHECK(Basename(*exe) == "sys_test");
  CHECK(ReadCwd(roots, getpid()).has_value());
  const auto cmdline = ReadCmdline(roots, getpid());
  REQUIRE(cmdline);
  CHECK(Basename(cmdline->front()) == "sys_test");
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
  CHECK_FALSE(reader->ReadMemory());
  CHECK_FALSE(reader->Read());
  child.Wait();
  CHECK_FALSE(reader->ReadMemory());
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

TEST_CASE("CPU time comes from stat where /proc is not our own namespace's") {
  const TempDir tree;
  tree.Write("proc/77/stat", StatLine(77, "cicc", 'R', 1, 99));
  tree.Write("proc/77/statm", "1010 497 456 8 0 98 0\n");
  const auto reader = AnonReader::Open(tree.roots(), {77, 99});
  REQUIRE(reader);
  const auto sample = reader->Read();
  REQUIRE(sample);
  CHECK(sample->cpu == std::chrono::nanoseconds(std::chrono::seconds(889)) / TicksPerSecond());
  CHECK(sample->memory.anon_bytes == 41 * PageBytes());
  CHECK(sample->memory.resident_bytes == 497 * PageBytes());
  // A zombie: no address space, and a stat that says so.
  tree.Write("proc/77/statm", "0 0 0 0 0 0 0\n");
  CHECK_FALSE(reader->ReadMemory());
  CHECK_FALSE(reader->Read());
}

TEST_CASE("CPU time is that of all threads, and never more than there was") {
  const auto reader = AnonReader::Open(Roots(), *ReadProcessId(Roots(), getpid()));
  REQUIRE(reader);
  const auto of_clock = [] {
    timespec time = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  std::thread([&] {
    const auto until = of_clock() + std::chrono::milliseconds(30);
    while (of_clock() < until) {
    }
  }).join();
  const auto before = of_clock();
  const auto sample = reader->Read();
  REQUIRE(sample);
  CHECK(sample->cpu >= before);
  CHECK(sample->cpu <= of_clock());
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
  CHECK(sample->memory.anon_bytes > bytes - (4 << 20));
  if (!testing::kSanitized) CHECK(sample->memory.anon_bytes < bytes + (16 << 20));
  CHECK(sample->memory.resident_bytes > 2 * bytes - (8 << 20));
  CHECK(reader->ReadMemory()->anon_bytes == sample->memory.anon_bytes);
}

TEST_CASE("a process may call itself anything") {
  Child child([] {
    prctl(PR_SET_NAME, ") R 1 1\n(");
    return Sleep();
  });
  REQUIRE(Eventually([&] { return ReadProcStat(Roots(), child.pid())->comm == ") R 1 1\n("; }));
  CHECK(ReadProcStat(Roots(), child.pid())->ppid == getpid());
  const auto info = ReadProcessInfo(Roots(), child.pid());
  REQUIRE(info);
  CHECK(info->ppid == getpid());
}

TEST_CASE("a listing of a fake /proc") {
  const TempDir tree;
  ProcessLister lister(tree.roots());
  CHECK(lister.List().status().code() == absl::StatusCode::kNotFound);
  tree.Write("proc/101/stat", StatLine(101, "sh (x) R", 'S', 100, 6));
  tree.Write("proc/100/stat", StatLine(100, "ninja", 'S', 1, 5));
  tree.Write("proc/102/stat", "half a li");
  tree.MakeFolder("proc/103");
  tree.Write("proc/self/stat", StatLine(100, "self", 'S', 1, 5));
  tree.Write("proc/1x/stat", StatLine(9, "x", 'S', 1, 5));
  const auto pids = lister.List();
  REQUIRE(pids.ok());
  CHECK(**pids == std::vector<pid_t>{100, 101, 102, 103});
  const auto info = ReadProcessInfo(tree.roots(), 100);
  REQUIRE(info);
  CHECK(info->comm == "ninja");
  CHECK(info->uid == getuid());
  CHECK(info->cpu_ticks == 889);
  CHECK(info->threads == 4);
  CHECK(info->rss_bytes == 497 * PageBytes());
  CHECK(ReadProcessInfo(tree.roots(), 101)->ppid == 100);
  CHECK_FALSE(ReadProcessInfo(tree.roots(), 102));
  CHECK_FALSE(ReadProcessInfo(tree.roots(), 103));
  tree.MakeFolder("proc/99");
  CHECK((*lister.List())->front() == 99);
}

TEST_CASE("whether a process came or went") {
  const TempDir tree;
  tree.Write("proc/loadavg", "0.20 0.18 0.12 1/80 11206\n");
  ProcessLister lister(tree.roots());
  CHECK(lister.Changed());  // nothing was listed yet
  REQUIRE(lister.List().ok());
  CHECK_FALSE(lister.Changed());
  tree.Write("proc/loadavg", "9.99 0.18 0.12 7/80 11206\n");
  CHECK_FALSE(lister.Changed());
  tree.Write("proc/loadavg", "9.99 0.18 0.12 7/79 11206\n");  // one ended
  CHECK(lister.Changed());
  REQUIRE(lister.List().ok());
  CHECK_FALSE(lister.Changed());
  tree.Write("proc/loadavg", "9.99 0.18 0.12 7/79 11207\n");  // one began and ended
  CHECK(lister.Changed());
  REQUIRE(lister.List().ok());
  tree.Write("proc/loadavg", "what is this?\n");
  CHECK(lister.Changed());

  for (const char* text :
       {"", "0.20 0.18 0.12 80 11206\n", "0.20 0.18 0.12 1/80\n", "0.20 0.18 0.12 1/x 11206\n",
        "0.20 0.18 0.12 1/80 11206 7\n", "0.20 0.18 0.12 1/-80 11206\n"}) {
    INFO(text);
    CHECK_FALSE(ParseTaskCount(text));
  }
  CHECK(ParseTaskCount("0.20 0.18 0.12 1/80 11206\n") == TaskCount{80, 11206});

  // Where there is no such file it must always be listed.
  const TempDir bare;
  bare.MakeFolder("proc/1");
  ProcessLister blind(bare.roots());
  REQUIRE(blind.List().ok());
  CHECK(blind.Changed());
}

TEST_CASE("a listing of the real /proc") {
  ProcessLister lister{Roots()};
  Child child(Sleep);
  const auto pids = lister.List();
  REQUIRE(pids.ok());
  CHECK(std::is_sorted((*pids)->begin(), (*pids)->end()));
  CHECK(std::binary_search((*pids)->begin(), (*pids)->end(), child.pid()));
  CHECK(std::binary_search((*pids)->begin(), (*pids)->end(), getpid()));
  CHECK(ReadProcessInfo(Roots(), child.pid())->ppid == getpid());
  CHECK(ReadProcessInfo(Roots(), child.pid())->uid == geteuid());
  child.Kill();
  child.Wait();
  CHECK(lister.Changed());
  const auto after = lister.List();
  REQUIRE(after.ok());
  CHECK_FALSE(std::binary_search((*after)->begin(), (*after)->end(), child.pid()));
  Child next(Sleep);
  CHECK(lister.Changed());
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
  if (testing::SkipUnderSanitizers("its bars are times of an uninstrumented program")) return;
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
  constexpr int kReads = 10000;
  const double memory = seconds_of([&] {
                          for (int i = 0; i < kReads; ++i) reader->ReadMemory();
                        }) /
                        kReads;
  const double with_cpu = seconds_of([&] {
                            for (int i = 0; i < kReads; ++i) reader->Read();
                          }) /
                          kReads;
  ProcessLister lister{Roots()};
  REQUIRE(lister.List().ok());
  const double unchanged = seconds_of([&] {
                             for (int i = 0; i < kReads; ++i) lister.Changed();
                           }) /
                           kReads;
  size_t processes = 0;
  constexpr int kScans = 20;
  const double scan = seconds_of([&] {
    for (int i = 0; i < kScans; ++i) {
      for (const pid_t pid : **lister.List()) {
        if (ReadProcessInfo(Roots(), pid)) ++processes;
      }
    }
  });
  const double per_thousand = scan / static_cast<double>(processes) * 1000;
  WARN("memory " << memory * 1e6 << " us, with CPU time " << with_cpu * 1e6 << " us; nothing new "
                 << unchanged * 1e6 << " us; all read " << per_thousand * 1e3
                 << " ms per 1,000 processes (" << processes / kScans << " here)");
  CHECK(memory < 20e-6);
  CHECK(with_cpu < 30e-6);
  CHECK(unchanged < 50e-6);
  CHECK(per_thousand < 0.17);
}

}  // namespace
}  // namespace headroom::sys
