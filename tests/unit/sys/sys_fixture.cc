#include "tests/unit/sys/sys_fixture.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

namespace headroom::sys {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "headroom-sys-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void TempDir::Write(std::string_view name, std::string_view text) const {
  const std::filesystem::path path = *this / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  if (!out.flush()) throw std::runtime_error("can't write " + path.string());
}

void TempDir::MakeFolder(std::string_view name) const {
  std::filesystem::create_directories(*this / name);
}

void TempDir::Remove(std::string_view name) const {
  std::filesystem::remove_all(*this / name);
}

Roots TempDir::roots() const {
  return Roots{path_ + "/proc", path_};
}

std::string KernelText(std::string_view name) {
  const std::string path = HEADROOM_SOURCE_DIR "/tests/fuzz/corpus/sys/" + std::string(name);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("no text " + path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Child::Child(const std::function<int()>& body) {
  const pid_t parent = getpid();
  // Held back until the child has its own way with them: Catch2's handlers, which it inherits,
  // report a signal as a failure of the test.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  pid_ = fork();
  if (pid_ > 0) pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    for (const int number : {SIGINT, SIGHUP, SIGFPE, SIGSEGV, SIGTERM, SIGABRT}) {
      signal(number, SIG_DFL);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    _exit(body());
  }
}

Child::~Child() {
  if (reaped_) return;
  Kill();
  Wait();
}

void Child::Kill() const {
  kill(pid_, SIGKILL);
}

int Child::Wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  return status;
}

int Sleep() {
  while (true) pause();
}

bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace headroom::sys
