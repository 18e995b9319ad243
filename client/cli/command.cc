#include "client/cli/command.h"

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/process/child.hpp>
#include <boost/process/extend.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

namespace headroom::cli {
namespace {

namespace asio = boost::asio;
namespace bp = boost::process;

// Passed on to CMD, where they were sent to us alone. SIGWINCH and the like come from the terminal
// only; SIGTTIN and SIGTTOU mean the process that touched the terminal.
constexpr std::array kPassedOn = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                                  SIGUSR2, SIGALRM, SIGCONT, SIGTSTP};

// The kernel marks the whole group's members one after another; by then it is through.
constexpr timespec kGroupTime{0, 1'000'000};
// The witness answers within microseconds, unless it is stopped.
constexpr int kWitnessMs = 200;

sigset_t PassedOn() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kPassedOn) sigaddset(&set, number);
  return set;
}

struct Question {
  unsigned char signal;
  unsigned char sequence;
};

[[noreturn]] void BeWitness(int socket) {
  prctl(PR_SET_NAME, "headroom-signal");
  Question question{};
  while (recv(socket, &question, sizeof(question), 0) == static_cast<ssize_t>(sizeof(question))) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, question.signal);
    const timespec at_once{0, 0};
    // 0: not pending.
    question.signal = sigtimedwait(&one, nullptr, &at_once) > 0 ? 1 : 0;
    if (send(socket, &question, sizeof(question), MSG_NOSIGNAL) < 0) break;
  }
  _exit(0);
}

// Runs exactly this program with exactly these words and variables, and with the signals that we
// had at our own start.
struct Exactly : bp::extend::handler {
  std::string program;
  std::vector<char*> argv;
  std::vector<char*> environment;
  sigset_t mask{};
  struct sigaction sigchld {};
  std::vector<int> inherit;

  template <class Executor>
  void on_setup(Executor& executor) const {
    executor.exe = program.c_str();
    executor.cmd_line = argv.data();
    executor.env = const_cast<char**>(environment.data());
  }
  template <class Executor>
  void on_exec_setup(Executor&) const {
    for (const int fd : inherit) fcntl(fd, F_SETFD, 0);
    sigaction(SIGCHLD, &sigchld, nullptr);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
  }
};

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::error_code Spawn(const Command::Options& options, const sigset_t& mask,
                      const struct sigaction& sigchld, pid_t& pid) {
  Exactly exactly;
  exactly.program = options.program;
  exactly.argv = Pointers(options.argv);
  exactly.environment = Pointers(options.environment);
  exactly.mask = mask;
  exactly.sigchld = sigchld;
  exactly.inherit = options.inherit;
  std::error_code error;
  bp::child child(exactly, error);
  if (error) return error;
  pid = child.id();
  child.detach();  // We wait for all children ourselves.
  return {};
}

}  // namespace

absl::StatusOr<Witness> Witness::Start() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return absl::ResourceExhaustedError(absl::StrCat("no socket: ", std::strerror(errno)));
  sys::UniqueFd ours(ends[0]);
  sys::UniqueFd its(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    return absl::ResourceExhaustedError(absl::StrCat("no process: ", std::strerror(errno)));
  if (pid == 0) {
    // Every signal but its end: a witness must not fall to what it is to see.
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    // Holds nothing open that somebody may wait for the end of.
    dup2(its.get(), 0);
    syscall(SYS_close_range, 1u, ~0u, 0u);
    BeWitness(0);
  }
  return Witness(pid, std::move(ours));
}

bool Witness::WasForAll(int signal) {
  const std::optional<bool> pending = Ask(signal);
  if (pending) return *pending;
  // It is stopped: somebody stopped the whole group, and continues us alone. Its SIGCONT is ours.
  kill(pid_, SIGCONT);
  Ask(SIGCONT);
  return false;
}

std::optional<bool> Witness::Ask(int signal) {
  const Question question{static_cast<unsigned char>(signal), ++sequence_};
  if (send(socket_.get(), &question, sizeof(question), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    return std::nullopt;
  while (true) {
    pollfd entry{socket_.get(), POLLIN, 0};
    const int ready = poll(&entry, 1, kWitnessMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    Question answer{};
    if (recv(socket_.get(), &answer, sizeof(answer), MSG_DONTWAIT) !=
        static_cast<ssize_t>(sizeof(answer)))
      return std::nullopt;
    // An older answer is of a question that was given up.
    if (answer.sequence == question.sequence) return answer.signal != 0;
  }
}

Command::Command(asio::io_context& io) : signals_(io) {}

Command::~Command() {
  if (witness_) {
    kill(witness_->pid(), SIGKILL);
    waitpid(witness_->pid(), nullptr, 0);
  }
}

absl::Status Command::Start(const Options& options) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t blocked = PassedOn();
  sigaddset(&blocked, SIGCHLD);
  // So that a background job may write its summary to a terminal that says tostop.
  sigaddset(&blocked, SIGTTOU);
  // A closed stderr must not end us before CMD.
  sigaddset(&blocked, SIGPIPE);
  sigprocmask(SIG_BLOCK, &blocked, &mask_before_);
  // Ignored, as it is below some supervisors, children would leave no status.
  struct sigaction child_ended {};
  child_ended.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &child_ended, &sigchld_before_);
  sigset_t read = PassedOn();
  sigaddset(&read, SIGCHLD);
  const int fd = signalfd(-1, &read, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("can't wait for signals: ", std::strerror(errno)));
  signals_.assign(fd);

  auto witness = Witness::Start();
  // Without one a signal to the whole group reaches CMD twice; that is no reason not to build.
  if (witness.ok()) witness_ = std::make_unique<Witness>(*std::move(witness));

  std::error_code error = Spawn(options, mask_before_, sigchld_before_, pid_);
  if (error == std::errc::executable_format_error) {
    // A script without a #! line: execvp(3) and every shell run it with sh.
    Options script = options;
    script.program = "/bin/sh";
    script.argv = {"/bin/sh", options.program};
    script.argv.insert(script.argv.end(), options.argv.begin() + 1, options.argv.end());
    error = Spawn(script, mask_before_, sigchld_before_, pid_);
  }
  if (!error) return absl::OkStatus();
  const std::string text = absl::StrCat(options.program, ": ", error.message());
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory)
    return absl::NotFoundError(text);
  if (error == std::errc::resource_unavailable_try_again || error == std::errc::not_enough_memory)
    return absl::ResourceExhaustedError(text);
  return absl::PermissionDeniedError(text);
}

asio::awaitable<int> Command::Wait() {
  while (!ended_) {
    std::array<signalfd_siginfo, 8> infos;
    const auto [error, size] =
        co_await signals_.async_read_some(asio::buffer(infos), asio::as_tuple(asio::use_awaitable));
    if (error) {
      // Not to be expected; then at least wait.
      while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
      }
      break;
    }
    for (size_t i = 0; i < size / sizeof(signalfd_siginfo); ++i) {
      if (infos[i].ssi_signo == SIGCHLD) {
        Reap();
      } else {
        OnSignal(static_cast<int>(infos[i].ssi_signo), infos[i].ssi_code,
                 static_cast<pid_t>(infos[i].ssi_pid));
      }
    }
  }
  co_return status_;
}

void Command::Kill(int signal) const {
  if (pid_ > 0 && !ended_) kill(pid_, signal);
}

void Command::OnSignal(int signal, int code, pid_t sender) {
  // Always asked, also where we know: what is pending there would be mistaken for the next one.
  bool for_all = false;
  if (witness_) {
    if (code <= 0) nanosleep(&kGroupTime, nullptr);
    for_all = witness_->WasForAll(signal);
  }
  if (code > 0 && signal != SIGCONT) return;  // from the terminal, by way of the kernel
  if (for_all) return;
  // A ^Z right after it has taken the witness's SIGCONT away (signal(7): each clears the other), and
  // ours would undo that ^Z.
  if (signal == SIGCONT && witness_ && witness_->WasForAll(SIGTSTP)) return;
  // CMD may signal its own group's leader, which is us; it need not be told.
  if (sender == pid_ && signal != SIGCONT) return;
  Kill(signal);
}

void Command::Reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
    if (witness_ && pid == witness_->pid()) {
      if (!WIFSTOPPED(status)) witness_.reset();
      continue;
    }
    if (pid != pid_) continue;
    if (!WIFSTOPPED(status)) {
      ended_ = true;
      status_ = status;
      continue;
    }
    const int signal = WSTOPSIG(status);
    if (signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) StopLikeIt(signal);
  }
}

void Command::StopLikeIt(int signal) {
  // Ours of the same ^Z is still pending perhaps; unblocked, it is what stops us, once.
  struct sigaction stop {};
  stop.sa_handler = SIG_DFL;
  struct sigaction before {};
  sigaction(signal, &stop, &before);
  kill(getpid(), signal);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  sigset_t mask;
  sigprocmask(SIG_UNBLOCK, &one, &mask);
  // Stopped here, until somebody sends SIGCONT.
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  sigaction(signal, &before, nullptr);
  if (witness_ && signal == SIGTSTP) witness_->WasForAll(signal);
}

int ExitCodeOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

void EndLike(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    prctl(PR_SET_DUMPABLE, 0);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(number, SIG_DFL);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    sigprocmask(SIG_UNBLOCK, &one, nullptr);
    kill(getpid(), number);
  }
  _exit(ExitCodeOf(wait_status));
}

}  // namespace headroom::cli
