#include "client/cli/launcher.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace headroom::cli {
namespace {

// The log of a private daemon is for looking at after a fault; older text than this has no use.
constexpr off_t kMaxLog = 256 << 10;

// What the grandchild reports: its pid, or why it couldn't start.
struct Report {
  pid_t pid = 0;
  int error = 0;
};

// Between fork and exec: only calls that are safe there (signal-safety(7)).
[[noreturn]] void BecomeDaemon(const char* program, char* const* argv, int log, int report) {
  setsid();
  const pid_t pid = fork();
  if (pid != 0) _exit(pid < 0 ? 1 : 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGPIPE, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM})
    signal(number, SIG_DFL);
  umask(077);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, 0);
  dup2(log, 1);
  dup2(log, 2);
  // Nothing of the build's may stay open as long as the daemon lives: not its pipes, not an outer
  // jobserver, not our fifo. The report pipe is close-on-exec and moves to 3.
  dup2(report, 3);
  fcntl(3, F_SETFD, FD_CLOEXEC);
  // By the system call: the C library has had the function only since 2.34.
  syscall(SYS_close_range, 4u, ~0u, 0u);
  if (chdir("/") != 0) _exit(1);
  Report done{getpid(), 0};
  if (write(3, &done, sizeof(done)) != sizeof(done)) _exit(1);
  execv(program, argv);
  done.error = errno;
  if (write(3, &done, sizeof(done)) != sizeof(done)) _exit(1);
  _exit(127);
}

}  // namespace

DaemonProcess::DaemonProcess(DaemonProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), pidfd_(std::exchange(other.pidfd_, -1)) {}

DaemonProcess& DaemonProcess::operator=(DaemonProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}

DaemonProcess::~DaemonProcess() {
  if (pidfd_ >= 0) close(pidfd_);
}

bool DaemonProcess::Ended() const {
  if (pidfd_ < 0) return pid_ == 0 || kill(pid_, 0) != 0;
  pollfd entry{pidfd_, POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

void DaemonProcess::Kill() const {
  if (pidfd_ >= 0) syscall(SYS_pidfd_send_signal, pidfd_, SIGKILL, nullptr, 0);
}

std::string LogPath(const std::string& runtime_dir) {
  return runtime_dir + "/headroomd.log";
}

std::string LastLogLine(const std::string& runtime_dir) {
  std::ifstream log(LogPath(runtime_dir));
  std::string last;
  for (std::string line; std::getline(log, line);)
    if (!line.empty()) last = line;
  return last;
}

absl::StatusOr<DaemonProcess> StartPrivateDaemon(const std::string& program,
                                                 const std::string& runtime_dir) {
  const std::string log_path = LogPath(runtime_dir);
  const int log =
      open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (log < 0)
    return absl::FailedPreconditionError(
        absl::StrCat(log_path, ": can't write the daemon's log: ", std::strerror(errno)));
  struct stat status {};
  if (fstat(log, &status) == 0 && status.st_size > kMaxLog && ftruncate(log, 0) != 0) {
    // It grows on then; the daemon says little.
  }
  std::array<int, 2> report{};
  if (pipe2(report.data(), O_CLOEXEC) != 0) {
    close(log);
    return absl::ResourceExhaustedError(absl::StrCat("can't make a pipe: ", std::strerror(errno)));
  }
  std::string runtime_argument = runtime_dir;
  std::string program_argument = program;
  std::array<std::string, 2> options = {"--private", "--runtime-dir"};
  std::array<char*, 5> argv = {program_argument.data(), options[0].data(), options[1].data(),
                               runtime_argument.data(), nullptr};
  // Not our orphan: we may be a child subreaper.
  int subreaper = 0;
  prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
  if (subreaper != 0) prctl(PR_SET_CHILD_SUBREAPER, 0);
  // Not Boost.Process: its child can't be let go of before it ends.
  const pid_t middle = fork();
  if (middle == 0) BecomeDaemon(program.c_str(), argv.data(), log, report[1]);
  const int fork_error = errno;
  close(log);
  close(report[1]);
  if (middle > 0) {
    int ended = 0;
    while (waitpid(middle, &ended, 0) < 0 && errno == EINTR) {
    }
  }
  if (subreaper != 0) prctl(PR_SET_CHILD_SUBREAPER, 1);
  Report started;
  Report failed;
  const auto read_report = [&report](Report& into) {
    ssize_t got = 0;
    do {
      got = read(report[0], &into, sizeof(into));
    } while (got < 0 && errno == EINTR);
    return got == static_cast<ssize_t>(sizeof(into));
  };
  const bool has_started = middle > 0 && read_report(started);
  const bool has_failed = has_started && read_report(failed);
  close(report[0]);
  if (middle < 0 || !has_started)
    return absl::ResourceExhaustedError(
        absl::StrCat("can't start ", program, ": ",
                     middle < 0 ? std::strerror(fork_error) : "no process could be made"));
  if (has_failed)
    return absl::FailedPreconditionError(
        absl::StrCat("can't start ", program, ": ", std::strerror(failed.error)));
  return DaemonProcess(started.pid, static_cast<int>(syscall(SYS_pidfd_open, started.pid, 0)));
}

}  // namespace headroom::cli
