// A terminal with an interactive bash in it, as a user would sit at one.
#ifndef HEADROOM_TESTS_INTEGRATION_CLI_TERMINAL_H_
#define HEADROOM_TESTS_INTEGRATION_CLI_TERMINAL_H_

#include <sys/types.h>

#include <chrono>
#include <string>

namespace headroom::testing {

class Terminal {
 public:
  // Throws std::runtime_error where there is no pty or bash.
  Terminal();
  ~Terminal();  // hangs up
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void Type(const std::string& text);
  // Waits until the screen has shown `text` since the last successful call.
  bool Expect(const std::string& text,
              std::chrono::milliseconds timeout = std::chrono::seconds(10));
  const std::string& screen() const { return screen_; }
  pid_t shell() const { return shell_; }

 private:
  int master_ = -1;
  pid_t shell_ = 0;
  std::string screen_;
  size_t seen_ = 0;
};

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_INTEGRATION_CLI_TERMINAL_H_
