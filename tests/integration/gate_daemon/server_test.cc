// The gate's server against peers that speak badly, or not at all.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "proto/headroom/v1/gate_wire.h"
#include "tests/integration/gate_daemon/gate_build.h"

namespace headroom::testing {
namespace {

using std::chrono::seconds;

// A `headroom run` that waits, with its daemon and its lane.
class OpenLane {
 public:
  OpenLane() : build_(StandinBuild{}), program_(build_.Run({"--jobs", "2"}, {"sh", "-c", kWait})) {
    if (!WaitUntil([&] { return fs::exists(build_.dir() / "lane"); }, seconds(20))) {
      throw std::runtime_error("no lane: " + program_.Err());
    }
    dir_ = ReadFile(build_.dir() / "lane");
    while (!dir_.empty() && dir_.back() == '\n') dir_.pop_back();
  }
  ~OpenLane() {
    WriteFile(build_.dir() / "stop", "");
    program_.Wait();
  }

  // A connection as a keeper has it.
  int Connect() const {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = dir_ + "/gate.sock";
    std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
    if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("connect to " + path + ": " + std::strerror(errno));
    }
    return fd;
  }
  const std::string& dir() const { return dir_; }
  const GateBuild& build() const { return build_; }

 private:
  static constexpr const char* kWait =
      "echo $HEADROOM_LANE > lane.new; mv lane.new lane; while ! [ -e stop ]; do sleep 0.05; done";
  GateBuild build_;
  Program program_;
  std::string dir_;
};

template <typename Message>
Message Fill(gate::MessageType type) {
  Message message{};
  message.header = {gate::kGateMagic, gate::kGateVersion, static_cast<uint16_t>(type),
                    sizeof message, 1};
  return message;
}

gate::Request Ask() {
  gate::Request request = Fill<gate::Request>(gate::MessageType::kRequest);
  std::strcpy(request.tool, "cc1plus");
  std::strcpy(request.source, "a.cc");
  std::strcpy(request.cwd, "/");
  return request;
}

// The next packet, or nothing: closed, or silent for so long.
std::vector<unsigned char> Next(int fd, int milliseconds = 5000) {
  std::vector<unsigned char> data(4096);
  pollfd entry{fd, POLLIN, 0};
  if (poll(&entry, 1, milliseconds) != 1) return {};
  const ssize_t size = recv(fd, data.data(), data.size(), 0);
  data.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return data;
}

gate::MessageType TypeOf(const std::vector<unsigned char>& data) {
  gate::Header header{};
  if (data.size() >= sizeof header) std::memcpy(&header, data.data(), sizeof header);
  return static_cast<gate::MessageType>(header.type);
}

TEST_CASE("The gate's socket is its user's alone") {
  const OpenLane lane;
  struct stat info {};
  REQUIRE(stat((lane.dir() + "/gate.sock").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(info.st_uid == geteuid());
}

TEST_CASE("Who breaks the rules of the gate ends his own connection alone") {
  const OpenLane lane;
  const int good = lane.Connect();
  const gate::Request request = Ask();
  REQUIRE(send(good, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request));
  CHECK(TypeOf(Next(good)) == gate::MessageType::kAdmit);

  const auto closes = [&](const void* data, size_t size) {
    const int bad = lane.Connect();
    send(bad, data, size, MSG_NOSIGNAL);
    const std::vector<unsigned char> answer = Next(bad);
    pollfd entry{bad, POLLIN, 0};
    char byte = 0;
    const bool closed = poll(&entry, 1, 5000) == 1 && recv(bad, &byte, 1, 0) <= 0;
    close(bad);
    return closed && answer.empty();
  };
  CHECK(closes("x", 1));
  CHECK(closes(&request, sizeof request - 1));
  gate::Request wrong = request;
  wrong.header.magic ^= 1;
  CHECK(closes(&wrong, sizeof wrong));
  wrong = request;
  wrong.header.type = 999;
  CHECK(closes(&wrong, sizeof wrong));
  wrong = request;
  wrong.header.attempt = 0;
  CHECK(closes(&wrong, sizeof wrong));
  const auto ping = Fill<gate::Simple>(gate::MessageType::kPing);
  CHECK(closes(&ping, sizeof ping));  // before it said who it is
  const auto ended = Fill<gate::Ended>(gate::MessageType::kEnded);
  CHECK(closes(&ended, sizeof ended));
  // Of a worker that isn't its child.
  gate::Request lie = Ask();
  lie.header.type = static_cast<uint16_t>(gate::MessageType::kReregister);
  lie.state = static_cast<uint32_t>(gate::KeeperState::kRunning);
  lie.worker_pid = getppid();
  CHECK(closes(&lie, sizeof lie));
  const std::vector<unsigned char> rubbish(sizeof request + 100, 0x5a);
  CHECK(closes(rubbish.data(), rubbish.size()));

  // A version of the future is told what is spoken here.
  const int newer = lane.Connect();
  gate::Request future = request;
  future.header.version = 7;
  send(newer, &future, sizeof future, MSG_NOSIGNAL);
  const std::vector<unsigned char> refused = Next(newer);
  REQUIRE(refused.size() == sizeof(gate::Refuse));
  gate::Refuse refuse{};
  std::memcpy(&refuse, refused.data(), sizeof refuse);
  CHECK(refuse.reason == static_cast<uint32_t>(gate::RefuseReason::kVersion));
  CHECK(refuse.version == gate::kGateVersion);
  close(newer);

  // The first one is still served.
  const auto alive = Fill<gate::Simple>(gate::MessageType::kPing);
  REQUIRE(send(good, &alive, sizeof alive, MSG_NOSIGNAL) > 0);
  CHECK(TypeOf(Next(good)) == gate::MessageType::kPong);
  close(good);
}

TEST_CASE("Figures that make no sense are bounded, and texts without an end") {
  const OpenLane lane;
  const int fd = lane.Connect();
  gate::Request request = Ask();
  std::memset(request.tool, 'x', sizeof request.tool);
  std::memset(request.source, '\x01', sizeof request.source);
  std::memset(request.cwd, 0xff, sizeof request.cwd);
  std::memset(request.args, 'a', sizeof request.args);
  request.args_bytes = 0xffffffff;
  request.floor_bytes = ~uint64_t{0};
  request.oom_kills = request.evictions = request.other_kills = 0xffffffff;
  for (gate::InputSize& input : request.inputs) {
    std::memset(input.suffix, 'i', sizeof input.suffix);
    input.bytes = ~uint64_t{0};
  }
  REQUIRE(send(fd, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request));
  // Nothing else runs, so it is let go whatever it says.
  CHECK(TypeOf(Next(fd)) == gate::MessageType::kAdmit);
  close(fd);
  CHECK(!Contains(lane.build().DaemonLog(), "broken invariant"));
}

TEST_CASE("Five hundred wait at once, all are answered, and none is let go beyond the cores") {
  const OpenLane lane;
  std::vector<int> peers;
  const gate::Request request = Ask();
  for (int i = 0; i < 500; ++i) {
    const int fd = lane.Connect();
    REQUIRE(send(fd, &request, sizeof request, MSG_NOSIGNAL) > 0);
    peers.push_back(fd);
  }
  const auto ping = Fill<gate::Simple>(gate::MessageType::kPing);
  for (const int fd : peers) REQUIRE(send(fd, &ping, sizeof ping, MSG_NOSIGNAL) > 0);
  int admitted = 0;
  int pongs = 0;
  for (const int fd : peers) {
    for (;;) {
      const std::vector<unsigned char> data = Next(fd);
      REQUIRE(!data.empty());
      if (TypeOf(data) == gate::MessageType::kAdmit) ++admitted;
      if (TypeOf(data) != gate::MessageType::kPong) continue;
      ++pongs;
      break;
    }
  }
  CHECK(pongs == 500);
  CHECK(admitted >= 1);
  CHECK(admitted <= 2);
  for (const int fd : peers) close(fd);
}

}  // namespace
}  // namespace headroom::testing
