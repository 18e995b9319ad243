#include "server/daemon/thawer.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace headroom::daemon {
namespace {

constexpr char kHold = 'H';
constexpr char kRelease = 'R';

struct Message {
  char what;
  int32_t pid;
  uint64_t start;
};

struct Entry {
  int32_t pid;
  uint64_t start;
  int fd;
};

// In the helper, which was forked from a program with threads: no allocation, no locks. Zero pages
// until used.
Entry g_entries[Thawer::kMost];

void SendSignal(int pidfd, int number) {
  syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0);
}

void CloseFrom(unsigned first) {
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  // Before Linux 5.9. The daemon's table is small at the start.
  const long most = sysconf(_SC_OPEN_MAX);
  for (long fd = static_cast<long>(first); fd < most; ++fd) close(static_cast<int>(fd));
}

[[noreturn]] void Helper(int socket) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  prctl(PR_SET_NAME, "headroomd-thaw");
  setsid();
  // Not in anybody's way when a file system is unmounted.
  if (chdir("/") != 0) _exit(1);
  constexpr int kSocket = 3;
  if (socket != kSocket && dup2(socket, kSocket) < 0) _exit(1);
  CloseFrom(kSocket + 1);
  const int null = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3 && null >= 0; ++fd) dup2(null, fd);
  if (null > kSocket) close(null);

  size_t held = 0;
  for (;;) {
    Message message{};
    iovec part{&message, sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(kSocket, &header, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n != static_cast<ssize_t>(sizeof message)) break;  // the daemon is gone
    int fd = -1;
    const cmsghdr* part_header = CMSG_FIRSTHDR(&header);
    if (part_header != nullptr && part_header->cmsg_type == SCM_RIGHTS) {
      memcpy(&fd, CMSG_DATA(part_header), sizeof fd);
    }
    for (size_t i = 0; i < held; ++i) {
      if (g_entries[i].pid != message.pid || g_entries[i].start != message.start) continue;
      close(g_entries[i].fd);
      g_entries[i] = g_entries[--held];
      break;
    }
    if (message.what == kHold && fd >= 0 && held < Thawer::kMost) {
      g_entries[held++] = {message.pid, message.start, fd};
    } else if (fd >= 0) {
      close(fd);
    }
  }
  for (size_t i = 0; i < held; ++i) SendSignal(g_entries[i].fd, SIGCONT);
  _exit(0);
}

}  // namespace

Thawer::~Thawer() {
  socket_.Reset();
  Reap();
}

void Thawer::Reap() {
  if (helper_ == 0) return;
  while (waitpid(helper_, nullptr, 0) < 0 && errno == EINTR) {
  }
  helper_ = 0;
}

absl::Status Thawer::Start() {
  if (socket_) return absl::OkStatus();
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return sys::ErrnoStatus(errno, "cannot make a socket pair for the thawing helper");
  }
  sys::UniqueFd ours(pair[0]);
  const sys::UniqueFd theirs(pair[1]);
  const pid_t pid = fork();
  if (pid < 0) return sys::ErrnoStatus(errno, "cannot start the thawing helper");
  if (pid == 0) Helper(theirs.get());
  helper_ = pid;
  socket_ = std::move(ours);
  for (const auto& [id, pidfd] : held_) {
    if (const absl::Status sent = Send(kHold, id, pidfd.fd()); !sent.ok()) return sent;
  }
  return absl::OkStatus();
}

absl::Status Thawer::Send(char what, const policy::ProcId& id, int fd) {
  if (!socket_) return absl::FailedPreconditionError("the thawing helper does not run");
  Message message{};
  message.what = what;
  message.pid = id.pid;
  message.start = id.start;
  iovec part{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* part_header = CMSG_FIRSTHDR(&header);
    part_header->cmsg_level = SOL_SOCKET;
    part_header->cmsg_type = SCM_RIGHTS;
    part_header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(part_header), &fd, sizeof fd);
  }
  ssize_t n = 0;
  do {
    n = sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof message)) return absl::OkStatus();
  return sys::ErrnoStatus(errno, "cannot reach the thawing helper");
}

absl::Status Thawer::Hold(const policy::ProcId& id, sys::PidFd pidfd) {
  if (held_.size() >= kMost) {
    return absl::ResourceExhaustedError(
        absl::StrCat("already ", kMost, " processes frozen; no more can be thawed safely"));
  }
  const int fd = pidfd.fd();
  if (const absl::Status started = Start(); !started.ok()) return started;
  absl::Status sent = Send(kHold, id, fd);
  if (!sent.ok()) {
    // Killed, by someone with the right to: what it held is thawed by now or is handed to the next.
    socket_.Reset();
    Reap();
    if (sent = Start(); sent.ok()) sent = Send(kHold, id, fd);
  }
  if (!sent.ok()) return sent;
  held_.insert_or_assign(id, std::move(pidfd));
  return absl::OkStatus();
}

void Thawer::Tend() {
  if (helper_ == 0 || waitpid(helper_, nullptr, WNOHANG) != helper_) return;
  helper_ = 0;
  socket_.Reset();
  if (!held_.empty()) Start().IgnoreError();
}

void Thawer::Release(const policy::ProcId& id) {
  if (held_.erase(id) == 0) return;
  // Without a helper there is nothing to forget.
  Send(kRelease, id, -1).IgnoreError();
}

}  // namespace headroom::daemon
