// pidfd and proc_connector.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <iostream>
#include <thread>

#include "server/sys/pidfd.h"
#include "server/sys/proc_connector.h"
#include "tests/unit/sys/sys_fixture.h"

namespace headroom::sys {
namespace {

TEST_CASE("pidfd: signal, end, and a pid that is another's") {
  Child child(Sleep);
  const auto id = ReadProcessId(Roots(), child.pid());
  REQUIRE(id);
  const auto pidfd = PidFd::Open(Roots(), *id);
  REQUIRE(pidfd.ok());
  CHECK_FALSE(pidfd->Exited());
  CHECK(pidfd->Send(0).ok());
  CHECK(PidFd::Open(Roots(), {id->pid, id->start_ticks + 1}).status().code() ==
        absl::StatusCode::kNotFound);
  REQUIRE(pidfd->Send(SIGSTOP).ok());
  CHECK(Eventually([&] { return ReadProcStat(Roots(), child.pid())->state == 'T'; }));
  REQUIRE(pidfd->Send(SIGCONT).ok());
  CHECK(Eventually([&] { return ReadProcStat(Roots(), child.pid())->state != 'T'; }));
  REQUIRE(pidfd->Send(SIGTERM).ok());
  pollfd poll_fd = {pidfd->fd(), POLLIN, 0};
  CHECK(poll(&poll_fd, 1, 10000) == 1);
  CHECK(pidfd->Exited());
  CHECK(WTERMSIG(child.Wait()) == SIGTERM);
  CHECK(pidfd->Send(SIGKILL).code() == absl::StatusCode::kNotFound);
  CHECK(PidFd::Open(Roots(), *id).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("connector datagrams") {
  const auto fork = ParseProcEvents(KernelText("proc_event_fork"));
  REQUIRE(fork.size() == 1);
  CHECK(fork[0].kind == ProcEvent::Kind::kFork);
  CHECK(fork[0].pid == 200);
  CHECK(fork[0].parent == 100);
  CHECK(fork[0].timestamp_ns == 123456789);
  CHECK(ParseProcEvents(KernelText("proc_event_thread")).empty());
  const auto exec = ParseProcEvents(KernelText("proc_event_exec"));
  REQUIRE(exec.size() == 1);
  CHECK(exec[0].kind == ProcEvent::Kind::kExec);
  CHECK(exec[0].pid == 200);
  const auto exit = ParseProcEvents(KernelText("proc_event_exit"));
  REQUIRE(exit.size() == 1);
  CHECK(exit[0].kind == ProcEvent::Kind::kExit);
  CHECK(exit[0].parent == 100);
  CHECK(WTERMSIG(exit[0].wait_status) == 9);
  const auto both = ParseProcEvents(KernelText("proc_event_exec") + KernelText("proc_event_exit"));
  CHECK(both.size() == 2);
  // Another connector's message, and one that is cut off.
  std::string other = KernelText("proc_event_exec");
  other[16] = 7;
  CHECK(ParseProcEvents(other).empty());
  CHECK(ParseProcEvents(KernelText("proc_event_exec").substr(0, 50)).empty());
}

TEST_CASE("the real connector: fork, exec and exit of a child, none of threads, or execs alone") {
  const auto connector = ProcConnector::Open();
  const auto execs = ProcConnector::Open(ProcConnector::Wanted::kExecs);
  if (!connector.ok()) {
    const auto code = connector.status().code();
    CHECK(
        (code == absl::StatusCode::kPermissionDenied || code == absl::StatusCode::kUnimplemented));
    std::cout << "SKIPPED: " << connector.status().message() << "\n";
    return;
  }
  Child child([] {
    std::thread([] {}).join();
    execl("/bin/sh", "sh", "-c", "exit 3", static_cast<char*>(nullptr));
    return 1;
  });
  bool forked = false, executed = false, ended = false;
  int others = 0;
  const bool all = Eventually([&] {
    pollfd poll_fd = {connector->fd(), POLLIN, 0};
    poll(&poll_fd, 1, 100);
    for (const ProcEvent& event : connector->Read()) {
      if (event.kind == ProcEvent::Kind::kLost || event.pid != child.pid()) continue;
      if (event.kind == ProcEvent::Kind::kFork) forked = event.parent == getpid();
      if (event.kind == ProcEvent::Kind::kExec) executed = true;
      if (event.kind == ProcEvent::Kind::kExit) {
        ended = true;
        CHECK(WEXITSTATUS(event.wait_status) == 3);
        CHECK(event.parent == getpid());
      }
      ++others;
    }
    return ended;
  });
  CHECK(all);
  CHECK(forked);
  CHECK(executed);
  CHECK(others == 3);
  CHECK(connector->Read().size() < 4096);
  REQUIRE(execs.ok());
  const auto rings = [&] {
    pollfd poll_fd = {execs->fd(), POLLIN, 0};
    return poll(&poll_fd, 1, 0) == 1;
  };
  CHECK(rings());
  execs->Hush();
  CHECK_FALSE(rings());
  int executions = 0;
  for (const ProcEvent& event : execs->Read()) {
    CHECK((event.kind == ProcEvent::Kind::kExec || event.kind == ProcEvent::Kind::kLost));
    executions += event.kind == ProcEvent::Kind::kExec && event.pid == child.pid() ? 1 : 0;
  }
  CHECK(executions == 1);
  // Hushed or not, what comes after a Read rings.
  Child another([] {
    execl("/bin/true", "true", static_cast<char*>(nullptr));
    return 1;
  });
  CHECK(Eventually(rings));
}

}  // namespace
}  // namespace headroom::sys
