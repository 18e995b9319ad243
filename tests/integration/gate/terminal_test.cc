// Job control on a real terminal: an interactive shell must see a gated tool behave as the tool
// itself does. Each case runs with and without the gate and compares what the shell printed.
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <regex>
#include <string>

#include "tests/integration/gate/gate_fixture.h"

namespace headroom::testing {
namespace {

using gate::MessageType;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// An interactive bash on a terminal of its own.
class Shell {
 public:
  explicit Shell(const ProgramOptions& environment) {
    pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      setenv("PS1", "READY> ", 1);
      setenv("TERM", "dumb", 1);
      setenv("LC_ALL", "C", 1);
      for (const auto& [name, value] : environment.env) {
        if (value) {
          setenv(name.c_str(), value->c_str(), 1);
        } else {
          unsetenv(name.c_str());
        }
      }
      execl("/bin/bash", "bash", "--norc", "--noprofile", "--noediting", "-i", nullptr);
      _exit(99);
    }
    Expect("READY> ");
    // noflsh: or each ^Z and ^C would throw away what was printed and not read yet.
    Type("bind 'set enable-bracketed-paste off' 2>/dev/null; stty -echo noflsh\n");
    Expect("READY> ");
    Type("export PS1='READY> '; probe=" + Probe() + "\n");
    Expect("READY> ");
    text_.clear();
    expected_ = 0;
  }
  ~Shell() {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    close(terminal_);
    waitpid(pid_, nullptr, 0);
  }

  void Type(const std::string& text) {
    REQUIRE(write(terminal_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  // Waits until `wanted` has appeared behind what was expected before.
  bool Sees(const std::string& wanted, milliseconds timeout = seconds(10)) {
    const auto until = Clock::now() + timeout;
    for (;;) {
      const std::size_t at = text_.find(wanted, expected_);
      if (at != std::string::npos) {
        expected_ = at + wanted.size();
        return true;
      }
      pollfd descriptor = {terminal_, POLLIN, 0};
      const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
      if (left <= 0 || poll(&descriptor, 1, static_cast<int>(left)) <= 0) return false;
      char data[4096];
      const ssize_t size = read(terminal_, data, sizeof(data));
      if (size <= 0) return false;
      text_.append(data, static_cast<std::size_t>(size));
    }
  }
  void Expect(const std::string& wanted) {
    const bool seen = Sees(wanted);
    INFO("so far: " << text_);
    REQUIRE(seen);
  }
  // ^Z until the shell says so: right after fg it gets lost at times, with any program.
  void Stop() {
    for (int i = 0; i < 20; ++i) {
      Type("\x1a");
      if (Sees("Stopped", milliseconds(500))) return;
    }
    FAIL("^Z stops nothing; so far: " << text_);
  }
  // What was printed, without pids and blanks at line ends.
  std::string Text() const {
    std::string text = std::regex_replace(text_, std::regex("\r"), "");
    text = std::regex_replace(text, std::regex("(\\[[0-9]\\]) [0-9]+"), "$1 PID");
    text = std::regex_replace(text, std::regex("headroom-mk-[0-9]+"), "headroom-mk-PID");
    return std::regex_replace(text, std::regex("[ ]+\n"), "\n");
  }
  // From here on nothing is compared, up to Resume().
  void Pause() { paused_at_ = expected_; }
  void Resume() {
    text_.erase(paused_at_, expected_ - paused_at_);
    expected_ = paused_at_;
  }
  pid_t pid() const { return pid_; }

 private:
  int terminal_ = -1;
  pid_t pid_ = 0;
  std::string text_;
  std::size_t expected_ = 0;
  std::size_t paused_at_ = 0;
};

// Runs the case with and without the gate. `act` gets the gate only where there is one.
void Compare(const std::function<void(Shell&, FakeGate*)>& act) {
  Lane lane;
  FakeGate gate(lane.path());
  std::string with;
  std::string without;
  {
    Shell shell(lane.Options({}));
    act(shell, &gate);
    with = shell.Text();
  }
  {
    Shell shell(Ungated(lane.Options({})));
    act(shell, nullptr);
    without = shell.Text();
  }
  CHECK(with == without);
  CHECK(!with.empty());
  CHECK(gate.Count(MessageType::kStarted) >= 1);
  CHECK(gate.problems().empty());
}

TEST_CASE("^C and ^backslash end it, and the shell says so") {
  const std::string key = GENERATE(std::string("\x03"), std::string("\x1c"));
  Compare([&](Shell& shell, FakeGate*) {
    shell.Type("$probe say up sleep 30\n");
    shell.Expect("up");
    shell.Type(key);
    shell.Expect("READY> ");
    shell.Type("echo code $?\n");
    shell.Expect("code ");
    shell.Expect("READY> ");
  });
}

TEST_CASE("^C that the tool handles doesn't end it") {
  Compare([](Shell& shell, FakeGate*) {
    shell.Type("$probe handle 2 say up sleep 1 say done exit 3\n");
    shell.Expect("up");
    shell.Type("\x03");
    shell.Expect("signal 2");
    shell.Expect("done");
    shell.Expect("READY> ");
    shell.Type("echo code $?\n");
    shell.Expect("code 3");
    shell.Expect("READY> ");
  });
}

TEST_CASE("^Z stops it, fg and bg go on") {
  Compare([](Shell& shell, FakeGate* gate) {
    shell.Type("$probe say up sleep 1 say done exit 3\n");
    shell.Expect("up");
    shell.Stop();
    shell.Expect("READY> ");
    if (gate != nullptr) {
      const auto started = gate->WaitFor(MessageType::kStarted);
      REQUIRE(started);
      CHECK(ProcessState(started->started.worker_pid) == 'T');
      CHECK(ProcessState(started->keeper) == 'T');
    }
    shell.Type("jobs\n");
    shell.Expect("Stopped");
    shell.Expect("READY> ");
    shell.Type("fg\n");
    shell.Expect("done");
    shell.Expect("READY> ");
    shell.Type("echo code $?\n");
    shell.Expect("code 3");
    shell.Expect("READY> ");
    shell.Type("$probe say up sleep 1 say done exit 3\n");
    shell.Expect("up");
    shell.Stop();
    shell.Expect("READY> ");
    shell.Type("bg >/dev/null; wait; echo code $?\n");
    shell.Expect("done");
    shell.Expect("code ");
    shell.Expect("READY> ");
  });
}

TEST_CASE("^Z many times") {
  Compare([](Shell& shell, FakeGate*) {
    shell.Type("$probe say up sleep 2 say done\n");
    shell.Expect("up");
    for (int i = 0; i < 10; ++i) {
      shell.Stop();
      shell.Expect("READY> ");
      shell.Type("fg\n");
      shell.Expect("sleep 2");  // The shell repeats the command.
      usleep(20'000);
    }
    shell.Expect("done");
    shell.Expect("READY> ");
  });
}

TEST_CASE("^Z on a waiter, on a frozen worker, and after an eviction") {
  Lane lane;
  FakeGate gate(lane.path());
  Shell shell(lane.Options({}));
  const std::string flag = (lane / "flag").string();
  gate.SetAutoAdmit(false);
  shell.Type("$probe once " + flag + " sleep 30 say up sleep 1 say done exit 3\n");
  const auto request = gate.WaitFor(MessageType::kRequest);
  REQUIRE(request);
  shell.Stop();
  shell.Expect("READY> ");
  shell.Type("fg\n");
  gate.Admit(request->peer);
  REQUIRE(WaitUntil([&] { return fs::exists(flag); }));
  gate.Freeze(request->peer);
  REQUIRE(gate.WaitFor(MessageType::kFrozen));
  shell.Stop();
  shell.Expect("READY> ");
  shell.Type("fg\n");
  usleep(200'000);
  // Continued by the shell, it stands still by the daemon's word.
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  CHECK(WaitUntil([&] { return ProcessState(started->started.worker_pid) == 'T'; }, seconds(2)));
  gate.Thaw(request->peer);
  REQUIRE(gate.WaitFor(MessageType::kThawed));
  gate.Evict(request->peer);
  REQUIRE(gate.WaitFor(MessageType::kRequest, 2));
  shell.Stop();
  shell.Expect("READY> ");
  gate.Admit(request->peer);
  shell.Type("fg\n");
  shell.Expect("up");
  shell.Stop();
  shell.Expect("READY> ");
  shell.Type("fg\n");
  shell.Expect("done");
  shell.Expect("READY> ");
  shell.Type("echo code $?\n");
  shell.Expect("code 3");
}

TEST_CASE("^C on a frozen worker ends it at once") {
  Lane lane;
  FakeGate gate(lane.path());
  Shell shell(lane.Options({}));
  shell.Type("$probe say up sleep 30\n");
  shell.Expect("up");
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  gate.Freeze(started->peer);
  REQUIRE(gate.WaitFor(MessageType::kFrozen));
  shell.Type("\x03");
  CHECK(shell.Sees("READY> ", seconds(2)));
  shell.Type("echo code $?\n");
  shell.Expect("code 130");
  CHECK(WaitUntil([&] { return Gone(started->started.worker_pid); }, seconds(2)));
}

TEST_CASE("background jobs: killed by number, reading and writing the terminal") {
  Compare([](Shell& shell, FakeGate*) {
    shell.Type("$probe sleep 30 &\n");
    shell.Expect("READY> ");
    shell.Type("kill %1; wait %1; echo code $?\n");
    shell.Expect("code 143");
    shell.Expect("READY> ");
    shell.Type("$probe sleep 30 & sleep 0.3; kill -STOP %1; sleep 0.5; jobs\n");
    shell.Expect("Stopped");
    shell.Expect("READY> ");
    shell.Type("kill -9 %1; sleep 0.5; jobs; echo gone\n");
    shell.Expect("Killed");
    shell.Expect("gone");
    shell.Expect("READY> ");
    shell.Type("$probe cat & sleep 0.3; jobs\n");
    shell.Expect("Stopped");
    shell.Expect("READY> ");
    shell.Type("fg\n");
    shell.Type("line\n");
    shell.Expect("line");
    shell.Type("\x04");
    shell.Expect("READY> ");
    shell.Type("echo code $?\n");
    shell.Expect("code 0");
    shell.Expect("READY> ");
    shell.Type("stty tostop; $probe say up exit 4 & sleep 0.3; jobs\n");
    shell.Expect("Stopped");
    shell.Expect("READY> ");
    shell.Type("fg\n");
    shell.Expect("up");
    shell.Expect("READY> ");
    shell.Type("echo code $?\n");
    shell.Expect("code 4");
    shell.Expect("READY> ");
  });
}

TEST_CASE("in a pipeline, and below a build tool") {
  Compare([](Shell& shell, FakeGate*) {
    shell.Type("$probe say a exit 3 | $probe cat; echo codes ${PIPESTATUS[*]}\n");
    shell.Expect("codes 3 0");
    shell.Expect("READY> ");
    shell.Type(
        "printf 'all:\\n\\t@%s say up sleep 1 say done\\nlong:\\n\\t@%s say up sleep 30\\n' "
        "$probe $probe > /tmp/headroom-mk-$$; make -f /tmp/headroom-mk-$$\n");
    shell.Expect("up");
    shell.Stop();
    shell.Expect("READY> ");
    shell.Type("fg > /dev/null\n");
    shell.Expect("done");
    shell.Expect("READY> ");
    shell.Type("make -f /tmp/headroom-mk-$$ long 2>/dev/null\n");
    shell.Expect("up");
    // Interrupted, make dies of the signal or, where it sees its child's end first (one time in
    // twenty), leaves with code 2, and so the shell prints an empty line or none. That it fails is
    // what counts.
    shell.Pause();
    shell.Type("\x03");
    shell.Expect("READY> ");
    shell.Resume();
    shell.Type("test $? -ne 0 && echo failed; rm -f /tmp/headroom-mk-$$\n");
    shell.Expect("failed");
    shell.Expect("READY> ");
  });
}

TEST_CASE("the terminal hangs up: nothing is left") {
  Lane lane;
  FakeGate gate(lane.path());
  pid_t keeper = 0;
  pid_t worker = 0;
  {
    Shell shell(lane.Options({}));
    shell.Type("$probe say up sleep 30\n");
    shell.Expect("up");
    const auto started = gate.WaitFor(MessageType::kStarted);
    REQUIRE(started);
    keeper = started->keeper;
    worker = started->started.worker_pid;
  }
  CHECK(WaitUntil([&] { return Gone(worker) && Gone(keeper); }, seconds(2)));
}

}  // namespace
}  // namespace headroom::testing
