#include "tests/integration/cli/terminal.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

namespace headroom::testing {

Terminal::Terminal() {
  winsize size{};
  size.ws_col = 200;
  size.ws_row = 50;
  shell_ = forkpty(&master_, nullptr, nullptr, &size);
  if (shell_ < 0) throw std::runtime_error("no pseudo-terminal");
  if (shell_ == 0) {
    setenv("PS1", "prompt> ", 1);
    unsetenv("PROMPT_COMMAND");
    unsetenv("MAKEFLAGS");
    setenv("TERM", "dumb", 1);
    execl("/bin/bash", "bash", "--norc", "--noprofile", "-i", nullptr);
    _exit(127);
  }
  if (!Expect("prompt> ")) throw std::runtime_error("no bash: " + screen_);
}

Terminal::~Terminal() {
  close(master_);
  kill(shell_, SIGKILL);
  waitpid(shell_, nullptr, 0);
}

void Terminal::Type(const std::string& text) {
  if (write(master_, text.data(), text.size()) < 0) throw std::runtime_error("terminal is gone");
}

bool Terminal::Expect(const std::string& text, std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const size_t found = screen_.find(text, seen_);
    if (found != std::string::npos) {
      seen_ = found + text.size();
      return true;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd entry{master_, POLLIN, 0};
    if (left.count() <= 0 || poll(&entry, 1, static_cast<int>(left.count())) <= 0) return false;
    std::array<char, 4096> bytes;
    const ssize_t got = read(master_, bytes.data(), bytes.size());
    if (got <= 0) return false;
    screen_.append(bytes.data(), static_cast<size_t>(got));
  }
}

}  // namespace headroom::testing
