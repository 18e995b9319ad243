// A headroomd of the test's own, a client of its control socket, and builds below its lanes.
#ifndef HEADROOM_TESTS_INTEGRATION_DAEMON_DAEMON_FIXTURE_H_
#define HEADROOM_TESTS_INTEGRATION_DAEMON_DAEMON_FIXTURE_H_

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headroom/v1/control.pb.h"
#include "server/daemon/frame.h"
#include "server/sys/fifo.h"
#include "tests/support/testing.h"

namespace headroom::testing {

// One connection to the control socket. Calls wait for their answer for at most 20 s and throw
// std::runtime_error where there is none, or an Error (with its text).
class ControlClient {
 public:
  explicit ControlClient(const fs::path& socket);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  v1::Response Call(const v1::Request& request);
  v1::Status Status();
  // A lane of its own, with this process as its root; `jobs` 0: the daemon's default.
  std::string Attach(uint32_t jobs = 0, const std::string& lane_dir = "");
  v1::LaneSummary Detach();
  std::string SharedLane();

 private:
  int fd_ = -1;
  daemon::FrameParser parser_;
};

class TestDaemon {
 public:
  // Starts it and waits until it answers.
  explicit TestDaemon(std::vector<std::string> options = {});
  ~TestDaemon();
  TestDaemon(const TestDaemon&) = delete;
  TestDaemon& operator=(const TestDaemon&) = delete;

  void Start();
  void KillHard();  // kill -9
  ProgramResult Terminate();
  pid_t pid() const { return program_->pid(); }
  std::string Log() const { return program_->Err(); }
  const fs::path& runtime_dir() const { return runtime_; }
  fs::path socket() const { return runtime_ / "control.sock"; }
  // The options that it is started with.
  ProgramOptions Command() const;

  std::optional<v1::Lane> Lane(const std::string& dir) const;

 private:
  TempDir dir_;
  fs::path runtime_;
  std::vector<std::string> options_;
  std::unique_ptr<Program> program_;
};

// What lies in a lane's fifo now.
int Idle(const std::string& lane_dir);
// Whether the lane's fifo holds `count` tokens, within `timeout`.
bool WaitForIdle(const std::string& lane_dir, int count,
                 std::chrono::milliseconds timeout = std::chrono::seconds(10));

// Takes part in a lane: environment for a client that speaks fifo:.
ProgramOptions InLane(const std::string& lane_dir, std::vector<std::string> argv, int jobs,
                      const fs::path& cwd);
// The same for one that has to inherit descriptors of the fifo (make 4.3).
ProgramOptions InLaneByDescriptor(const std::string& lane_dir, std::vector<std::string> argv,
                                  int jobs, const fs::path& cwd);

// `count` edges of stand-in compilers that take `seconds` each and hardly any memory.
StandinBuild LightBuild(int count, double seconds);

// Time until `condition` holds, or nothing after `timeout`.
std::optional<double> SecondsUntil(const std::function<bool()>& condition,
                                   std::chrono::milliseconds timeout);

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_INTEGRATION_DAEMON_DAEMON_FIXTURE_H_
