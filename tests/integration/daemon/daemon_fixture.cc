#include "tests/integration/daemon/daemon_fixture.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

namespace headroom::testing {
namespace {

constexpr int kAnswerMs = 20'000;

[[noreturn]] void Fail(const std::string& text) {
  throw std::runtime_error(text);
}

}  // namespace

ControlClient::ControlClient(const fs::path& socket_path) {
  fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket_path.string();
  if (path.size() >= sizeof address.sun_path) Fail(path + ": too long");
  std::copy(path.begin(), path.end(), address.sun_path);
  if (fd_ < 0 || connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    if (fd_ >= 0) close(fd_);
    Fail("connect to " + path + ": " + strerror(error));
  }
}

ControlClient::~ControlClient() {
  close(fd_);
}

v1::Response ControlClient::Call(const v1::Request& request) {
  std::string bytes;
  daemon::AppendFrame(request, bytes);
  for (std::string_view left = bytes; !left.empty();) {
    const ssize_t n = send(fd_, left.data(), left.size(), MSG_NOSIGNAL);
    if (n <= 0) Fail(std::string("send: ") + strerror(errno));
    left.remove_prefix(static_cast<size_t>(n));
  }
  for (;;) {
    absl::StatusOr<std::optional<std::string>> frame = parser_.Next();
    if (!frame.ok()) Fail(std::string(frame.status().message()));
    if (*frame) {
      v1::Response response;
      if (!response.ParseFromString(**frame)) Fail("the answer is no Response");
      if (response.has_error()) Fail(response.error().text());
      return response;
    }
    pollfd entry{fd_, POLLIN, 0};
    if (poll(&entry, 1, kAnswerMs) != 1) Fail("no answer");
    char buffer[16384];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) Fail("the daemon closed the connection");
    parser_.Feed({buffer, static_cast<size_t>(n)});
  }
}

v1::Status ControlClient::Status() {
  v1::Request request;
  request.mutable_status();
  return Call(request).status();
}

std::string ControlClient::Attach(uint32_t jobs, const std::string& lane_dir) {
  v1::Request request;
  v1::AttachRequest& attach = *request.mutable_attach();
  attach.mutable_root()->set_pid(getpid());
  if (jobs > 0) attach.set_jobs(jobs);
  attach.set_lane_dir(lane_dir);
  return Call(request).attached().lane_dir();
}

v1::LaneSummary ControlClient::Detach() {
  v1::Request request;
  request.mutable_detach();
  return Call(request).summary();
}

std::string ControlClient::SharedLane() {
  v1::Request request;
  request.mutable_env();
  return Call(request).environment().lane_dir();
}

TestDaemon::TestDaemon(std::vector<std::string> options)
    : runtime_(dir_ / "run"), options_(std::move(options)) {
  // Other users' builds of a root's daemon go through it.
  fs::permissions(dir_.path(),
                  fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  Start();
}

TestDaemon::~TestDaemon() {
  if (program_ != nullptr && program_->Running()) Terminate();
}

ProgramOptions TestDaemon::Command() const {
  ProgramOptions command;
  command.argv = {HEADROOM_BIN_DIR "/headroomd", "--runtime-dir", runtime_.string(), "--state-dir",
                  (dir_ / "state").string()};
  command.argv.insert(command.argv.end(), options_.begin(), options_.end());
  for (const char* name :
       {"NOTIFY_SOCKET", "HEADROOM_LANE", "HEADROOM_RUNTIME_DIR", "MAKEFLAGS", "XDG_CONFIG_HOME"}) {
    command.env[name] = std::nullopt;
  }
  // No configuration of whoever runs the tests.
  command.env["HOME"] = dir_.path().string();
  return command;
}

void TestDaemon::Start() {
  program_ = std::make_unique<Program>(Command());
  const bool answers = WaitUntil(
      [&] {
        try {
          ControlClient(socket()).Status();
          return true;
        } catch (const std::runtime_error&) {
          return !program_->Running();
        }
      },
      std::chrono::seconds(20));
  if (!answers || !program_->Running()) Fail("headroomd did not start: " + program_->Err());
}

void TestDaemon::KillHard() {
  program_->Signal(SIGKILL);
  program_->Wait();
}

ProgramResult TestDaemon::Terminate() {
  program_->Signal(SIGTERM);
  return program_->Wait(std::chrono::seconds(20));
}

std::optional<v1::Lane> TestDaemon::Lane(const std::string& dir) const {
  const v1::Status status = ControlClient(socket()).Status();
  for (const v1::Lane& lane : status.lanes()) {
    if (lane.dir() == dir) return lane;
  }
  return std::nullopt;
}

int Idle(const std::string& lane_dir) {
  const absl::StatusOr<sys::Fifo> fifo = sys::Fifo::Open(lane_dir + "/fifo");
  if (!fifo.ok()) Fail(std::string(fifo.status().message()));
  return static_cast<int>(fifo->Idle().value());
}

bool WaitForIdle(const std::string& lane_dir, int count, std::chrono::milliseconds timeout) {
  // One descriptor all the time: opening it again and again would be seen as clients coming.
  const absl::StatusOr<sys::Fifo> fifo = sys::Fifo::Open(lane_dir + "/fifo");
  if (!fifo.ok()) Fail(std::string(fifo.status().message()));
  return WaitUntil([&] { return fifo->Idle().value() == count; }, timeout);
}

ProgramOptions InLane(const std::string& lane_dir, std::vector<std::string> argv, int jobs,
                      const fs::path& cwd) {
  ProgramOptions options;
  options.argv = std::move(argv);
  options.cwd = cwd;
  options.env["HEADROOM_LANE"] = lane_dir;
  options.env["MAKEFLAGS"] =
      " -j" + std::to_string(jobs) + " --jobserver-auth=fifo:" + lane_dir + "/fifo";
  return options;
}

ProgramOptions InLaneByDescriptor(const std::string& lane_dir, std::vector<std::string> argv,
                                  int jobs, const fs::path& cwd) {
  ProgramOptions options = InLane(lane_dir, {}, jobs, cwd);
  options.env["MAKEFLAGS"] = " -j" + std::to_string(jobs) + " --jobserver-auth=9,9";
  options.argv = {"sh", "-c", "exec 9<>'" + lane_dir + "/fifo'; exec \"$@\"", "sh"};
  options.argv.insert(options.argv.end(), argv.begin(), argv.end());
  return options;
}

StandinBuild LightBuild(int count, double seconds) {
  StandinBuild build;
  for (int i = 0; i < count; ++i) {
    StandinEdge edge;
    edge.name = "e" + std::to_string(i);
    edge.curve = "0:1M," + std::to_string(seconds) + ":1M";
    build.edges.push_back(edge);
  }
  return build;
}

std::optional<double> SecondsUntil(const std::function<bool()>& condition,
                                   std::chrono::milliseconds timeout) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    if (condition()) {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (std::chrono::steady_clock::now() - start > timeout) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace headroom::testing
