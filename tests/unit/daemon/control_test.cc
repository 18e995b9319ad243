#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "server/daemon/control_server.h"
#include "server/daemon/frame.h"
#include "server/trace/reader.h"
#include "server/trace/recorder.h"

using namespace headroom;
using namespace std::chrono_literals;
using daemon::ControlOptions;
using daemon::ControlServer;
using daemon::Peer;

namespace {

struct FakeHandler : daemon::ControlHandler {
  std::vector<std::string> calls;
  std::vector<Peer> dropped;
  Peer last;
  int statuses = 0;
  absl::Status fails;
  v1::Status status;
  std::vector<std::string> trace;
  bool pidfd_was_open_when_dropped = false;

  absl::StatusOr<v1::Status> OnStatus(const Peer& peer) override {
    ++statuses;
    return Note("status", peer, status);
  }
  absl::StatusOr<v1::Explanation> OnExplain(const Peer& peer,
                                            const v1::ExplainRequest& request) override {
    v1::Explanation explanation;
    explanation.add_decisions()->set_count(static_cast<int>(request.last()));
    return Note("explain", peer, explanation);
  }
  absl::StatusOr<v1::Attached> OnAttach(const Peer& peer,
                                        const v1::AttachRequest& request) override {
    v1::Attached attached;
    attached.set_cores(request.jobs());
    return Note("attach", peer, attached);
  }
  absl::StatusOr<v1::LaneSummary> OnDetach(const Peer& peer, const v1::DetachRequest&) override {
    v1::LaneSummary summary;
    summary.set_jobs_max(3);
    return Note("detach", peer, summary);
  }
  absl::StatusOr<v1::Environment> OnEnv(const Peer& peer) override {
    v1::Environment environment;
    environment.set_lane_dir("/lane");
    return Note("env", peer, environment);
  }
  absl::Status OnReload(const Peer& peer) override { return Note("reload", peer, 0).status(); }
  absl::Status OnSet(const Peer& peer, const v1::SetRequest&) override {
    return Note("set", peer, 0).status();
  }
  absl::StatusOr<std::vector<std::string>> OnTrace(const Peer& peer) override {
    return Note("trace", peer, trace);
  }
  void OnDropped(const Peer& peer) override {
    dropped.push_back(peer);
    pidfd_was_open_when_dropped = peer.pidfd >= 0 && fcntl(peer.pidfd, F_GETFD) >= 0;
  }

 private:
  template <typename T>
  absl::StatusOr<T> Note(const char* what, const Peer& peer, T result) {
    calls.emplace_back(what);
    last = peer;
    if (!fails.ok()) return fails;
    return result;
  }
};

std::string TempDir() {
  std::string pattern = "/tmp/headroom-control-XXXXXX";
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  return pattern;
}

// A server, its loop, and a folder for its socket. Everything runs on the test's own thread.
struct World {
  std::string dir = TempDir();
  boost::asio::io_context io;
  FakeHandler handler;
  ControlOptions options;
  std::unique_ptr<ControlServer> server;

  World() {
    options.path = dir + "/control.sock";
    options.owner = getuid();
  }
  ~World() {
    server.reset();
    std::filesystem::remove_all(dir);
  }
  void Start() {
    server = std::make_unique<ControlServer>(io, handler, options);
    const auto started = server->Start();
    INFO(started);
    REQUIRE(started.ok());
  }
  // Runs the loop until `done`, at most 5 s.
  bool Pump(const std::function<bool()>& done) {
    const auto until = std::chrono::steady_clock::now() + 5s;
    while (!done()) {
      if (std::chrono::steady_clock::now() > until) return false;
      io.run_for(1ms);
      io.restart();
    }
    return true;
  }
  void PumpFor(std::chrono::milliseconds time) {
    io.run_for(time);
    io.restart();
  }
};

class Client {
 public:
  explicit Client(World& world) : world_(world) {
    fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    world.options.path.copy(address.sun_path, sizeof address.sun_path - 1);
    connected = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // What the kernel takes of it at once.
  size_t SendRaw(std::string_view bytes) {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return n < 0 ? 0 : static_cast<size_t>(n);
  }
  void Send(const v1::Request& request) {
    std::string frame;
    daemon::AppendFrame(request, frame);
    REQUIRE(SendRaw(frame) == frame.size());
  }
  // The next answer; unset: the connection ended, or nothing came.
  std::optional<v1::Response> Receive() {
    std::optional<v1::Response> response;
    world_.Pump([&] {
      auto frame = parser_.Next();
      REQUIRE(frame.ok());
      if (*frame) {
        response.emplace();
        REQUIRE(response->ParseFromString(**frame));
        return true;
      }
      return !Take();
    });
    return response;
  }
  std::optional<v1::Response> Ask(const v1::Request& request) {
    Send(request);
    return Receive();
  }
  // Whether the server ends the connection, within 5 s.
  bool Ended() {
    return world_.Pump([&] { return !Take(); });
  }
  bool ended_now() { return !Take(); }

  bool connected = false;

 private:
  // False: at the end.
  bool Take() {
    char buffer[65536];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) parser_.Feed({buffer, static_cast<size_t>(n)});
    return n > 0 || (n < 0 && errno == EAGAIN);
  }

  World& world_;
  int fd_ = -1;
  daemon::FrameParser parser_{size_t{64} << 20};
};

v1::Request Ping() {
  v1::Request request;
  request.mutable_ping();
  return request;
}
v1::Request StatusRequest() {
  v1::Request request;
  request.mutable_status();
  return request;
}
v1::Request Attach(int32_t pid = getpid()) {
  v1::Request request;
  request.mutable_attach()->mutable_root()->set_pid(pid);
  request.mutable_attach()->set_jobs(16);
  return request;
}
v1::Request Detach() {
  v1::Request request;
  request.mutable_detach();
  return request;
}
v1::Request Watch(uint32_t ms) {
  v1::Request request;
  request.mutable_watch()->set_interval_ms(ms);
  return request;
}
v1::Request Trace() {
  v1::Request request;
  request.mutable_trace();
  return request;
}

bool Alive(World& world) {
  Client client(world);
  const auto answer = client.Ask(Ping());
  return answer && answer->has_done();
}

// One answer by blocking reads, for a process that does not run the server's loop.
std::optional<v1::Response> AskBlocking(const std::string& path, const v1::Request& request) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  std::string frame;
  daemon::AppendFrame(request, frame);
  if (send(fd, frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size()))
    return {};
  daemon::FrameParser parser;
  char buffer[4096];
  for (;;) {
    const auto got = parser.Next();
    if (!got.ok()) return {};
    if (*got) {
      v1::Response response;
      if (!response.ParseFromString(**got)) return {};
      return response;
    }
    const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) return {};
    parser.Feed({buffer, static_cast<size_t>(n)});
  }
}

// Asks as nobody, from a child; true: `expected` took the answer. Needs root.
bool AsNobody(World& world, const v1::Request& request,
              const std::function<bool(const v1::Response&)>& expected) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(3);
    const auto answer = AskBlocking(world.options.path, request);
    _exit(answer && expected(*answer) ? 0 : 1);
  }
  int status = 0;
  const bool ended = world.Pump([&] { return waitpid(child, &status, WNOHANG) == child; });
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("every request reaches the handler with who asked") {
  World world;
  world.handler.status.set_version("7");
  world.Start();
  Client client(world);
  CHECK(client.Ask(Ping())->has_done());
  const auto status = client.Ask(StatusRequest());
  REQUIRE(status);
  CHECK(status->status().version() == "7");
  CHECK(world.handler.last.pid == getpid());
  CHECK(world.handler.last.uid == getuid());
  CHECK(world.handler.last.gid == getgid());
  CHECK(world.handler.last.connection == 1);

  v1::Request explain;
  explain.mutable_explain()->set_last(5);
  CHECK(client.Ask(explain)->explanation().decisions(0).count() == 5);
  v1::Request env;
  env.mutable_env();
  CHECK(client.Ask(env)->environment().lane_dir() == "/lane");
  v1::Request reload;
  reload.mutable_reload();
  CHECK(client.Ask(reload)->has_done());
  v1::Request set;
  set.mutable_set()->set_lane(0);
  CHECK(client.Ask(set)->has_done());
  CHECK(world.handler.calls ==
        std::vector<std::string>{"status", "explain", "env", "reload", "set"});

  // Several requests in one packet are answered in order.
  std::string frames;
  daemon::AppendFrame(Ping(), frames);
  daemon::AppendFrame(StatusRequest(), frames);
  daemon::AppendFrame(Ping(), frames);
  client.SendRaw(frames);
  CHECK(client.Receive()->has_done());
  CHECK(client.Receive()->has_status());
  CHECK(client.Receive()->has_done());
  // And in single bytes.
  for (const char byte : frames) {
    client.SendRaw({&byte, 1});
    world.PumpFor(1ms);
  }
  CHECK(client.Receive()->has_done());
  CHECK(client.Receive()->has_status());
  CHECK(client.Receive()->has_done());
}

TEST_CASE("an error of the handler is an error of the request alone") {
  World world;
  world.Start();
  Client client(world);
  world.handler.fails = absl::NotFoundError("lane 7 is not there: headroom status lists them");
  const auto answer = client.Ask(StatusRequest());
  REQUIRE(answer);
  CHECK(answer->error().kind() == v1::Error::NOT_FOUND);
  CHECK(answer->error().text() == "lane 7 is not there: headroom status lists them");
  world.handler.fails = absl::OkStatus();
  CHECK(client.Ask(StatusRequest())->has_status());

  CHECK(daemon::ToErrorKind(absl::StatusCode::kInvalidArgument) == v1::Error::BAD_REQUEST);
  CHECK(daemon::ToErrorKind(absl::StatusCode::kPermissionDenied) == v1::Error::NOT_ALLOWED);
  CHECK(daemon::ToErrorKind(absl::StatusCode::kResourceExhausted) == v1::Error::BUSY);
  CHECK(daemon::ToErrorKind(absl::StatusCode::kInternal) == v1::Error::FAILED);
}

TEST_CASE("a lane's connection that ends without Detach is reported once") {
  World world;
  world.Start();
  auto client = std::make_unique<Client>(world);
  const auto attached = client->Ask(Attach());
  REQUIRE(attached);
  CHECK(attached->attached().cores() == 16);
  const Peer peer = world.handler.last;
  CHECK(peer.pidfd >= 0);

  CHECK(client->Ask(Attach())->error().kind() == v1::Error::BAD_REQUEST);
  SECTION("closed") {
    client.reset();
    REQUIRE(world.Pump([&] { return !world.handler.dropped.empty(); }));
    CHECK(world.handler.dropped[0].connection == peer.connection);
    CHECK(world.handler.pidfd_was_open_when_dropped);
    world.PumpFor(20ms);
    CHECK(world.handler.dropped.size() == 1);
    CHECK(fcntl(peer.pidfd, F_GETFD) < 0);
  }
  SECTION("thrown out") {
    client->SendRaw("\xff\xff\xff\xff\xff\xff");
    CHECK(client->Receive()->error().kind() == v1::Error::BAD_REQUEST);
    REQUIRE(world.Pump([&] { return !world.handler.dropped.empty(); }));
  }
  SECTION("detached") {
    CHECK(client->Ask(Detach())->summary().jobs_max() == 3);
    CHECK(client->Ask(Detach())->error().kind() == v1::Error::BAD_REQUEST);
    client.reset();
    REQUIRE(world.Pump([&] { return world.server->connections() == 0; }));
    world.PumpFor(20ms);
    CHECK(world.handler.dropped.empty());
  }
  SECTION("a Detach that fails keeps the lane") {
    world.handler.fails = absl::InternalError("x");
    CHECK(client->Ask(Detach())->has_error());
    client.reset();
    REQUIRE(world.Pump([&] { return !world.handler.dropped.empty(); }));
  }
  SECTION("the server stops") {
    world.server->Stop();
    world.PumpFor(20ms);
    CHECK(world.handler.dropped.empty());
    CHECK(client->Ended());
  }
}

TEST_CASE("a process attaches only itself") {
  World world;
  world.Start();
  Client client(world);
  const auto answer = client.Ask(Attach(1));
  REQUIRE(answer);
  CHECK(answer->error().kind() == v1::Error::NOT_ALLOWED);
  CHECK(answer->error().text().find("pid 1 ") != std::string::npos);
  CHECK(world.handler.calls.empty());
  world.handler.fails = absl::ResourceExhaustedError("no more lanes");
  CHECK(client.Ask(Attach())->error().kind() == v1::Error::BUSY);
  world.handler.fails = absl::OkStatus();
  CHECK(client.Ask(Attach())->has_attached());
}

TEST_CASE("hostile frames end their own connection and no other") {
  World world;
  world.Start();
  Client good(world);
  REQUIRE(good.Ask(Attach())->has_attached());

  SECTION("a length above the limit") {
    Client bad(world);
    bad.SendRaw(std::string("\x81\x80\x40", 3));  // 1 MiB + 1
    const auto answer = bad.Receive();
    REQUIRE(answer);
    CHECK(answer->error().kind() == v1::Error::BAD_REQUEST);
    CHECK(answer->error().text().find("1048577") != std::string::npos);
    CHECK(bad.Ended());
  }
  SECTION("no length at all") {
    Client bad(world);
    bad.SendRaw(std::string(20, '\xff'));
    CHECK(bad.Receive()->error().kind() == v1::Error::BAD_REQUEST);
    CHECK(bad.Ended());
  }
  SECTION("no message") {
    Client bad(world);
    bad.SendRaw(std::string("\x03\xff\xff\xff", 4));
    CHECK(bad.Receive()->error().kind() == v1::Error::BAD_REQUEST);
    CHECK(bad.Ended());
  }
  SECTION("HTTP") {
    Client bad(world);
    bad.SendRaw("GET / HTTP/1.1\r\n\r\n");
    bad.Close();
  }
  SECTION("a request of the future is refused, and the connection goes on") {
    Client newer(world);
    newer.SendRaw(std::string("\x03\xfa\x3e\x00", 4));  // field 1007
    CHECK(newer.Receive()->error().kind() == v1::Error::BAD_REQUEST);
    newer.SendRaw(std::string("\x00", 1));  // an empty message
    CHECK(newer.Receive()->error().kind() == v1::Error::BAD_REQUEST);
    CHECK(newer.Ask(Ping())->has_done());
  }
  SECTION("noise") {
    std::mt19937_64 rng(7);
    for (int i = 0; i < 300; ++i) {
      Client bad(world);
      std::string noise(rng() % 3000, '\0');
      for (char& byte : noise) byte = static_cast<char>(rng());
      bad.SendRaw(noise);
      if (i % 2 == 0) world.PumpFor(1ms);
    }
    REQUIRE(world.Pump([&] { return world.server->connections() == 1; }));
  }
  CHECK(good.Ask(Ping())->has_done());
  CHECK(world.handler.dropped.empty());
  CHECK(Alive(world));
}

TEST_CASE("silent and slow peers meet their deadlines") {
  World world;
  world.options.frame_deadline = 60ms;
  world.options.idle_deadline = 120ms;
  world.options.write_deadline = 100ms;
  world.Start();

  SECTION("half a frame, and byte by byte") {
    Client half(world);
    half.SendRaw(std::string("\x10\x01", 2));
    CHECK(half.Ended());
    Client slow(world);
    // A byte each 20 ms never finishes the frame of 16 in time.
    slow.SendRaw("\x10");
    const auto begin = std::chrono::steady_clock::now();
    CHECK(world.Pump([&] {
      world.PumpFor(20ms);
      slow.SendRaw("\x01");
      return slow.ended_now();
    }));
    CHECK(std::chrono::steady_clock::now() - begin < 2s);
  }
  SECTION("nothing at all") {
    Client silent(world);
    CHECK(silent.Ended());
  }
  SECTION("a lane or a watch may be silent") {
    Client lane(world);
    REQUIRE(lane.Ask(Attach())->has_attached());
    Client watch(world);
    REQUIRE(watch.Ask(Watch(100))->has_status());
    world.PumpFor(400ms);
    CHECK_FALSE(lane.ended_now());
    CHECK_FALSE(watch.ended_now());
    CHECK(lane.Ask(Ping())->has_done());
    // Without its lane it is a connection as any other.
    REQUIRE(lane.Ask(Detach())->has_summary());
    CHECK(lane.Ended());
  }
  SECTION("who does not read is served no more than the socket holds, and then dropped") {
    world.handler.status.set_version(std::string(200'000, 'v'));
    Client deaf(world);
    std::string frames;
    for (int i = 0; i < 1000; ++i) daemon::AppendFrame(StatusRequest(), frames);
    deaf.SendRaw(frames);
    CHECK(world.Pump([&] { return world.server->connections() == 0; }));
    CHECK(world.handler.statuses < 20);
    CHECK(Alive(world));
  }
  SECTION("a watcher that does not read gets fewer, then none") {
    world.handler.status.set_version(std::string(200'000, 'v'));
    world.options.min_watch_interval = 1ms;
    Client deaf(world);
    deaf.Send(Watch(100));
    CHECK(world.Pump([&] { return world.handler.statuses > 0; }));
    CHECK(world.Pump([&] { return world.server->connections() == 0; }));
    CHECK(world.handler.statuses < 20);
  }
}

TEST_CASE("a watch goes on until its connection ends, and is told nothing else") {
  World world;
  world.options.min_watch_interval = 10ms;
  world.Start();
  Client client(world);
  client.Send(Watch(1));  // raised to 10 ms
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 6; ++i) REQUIRE(client.Receive()->has_status());
  CHECK(std::chrono::steady_clock::now() - begin >= 45ms);
  client.Send(Ping());
  for (;;) {
    const auto answer = client.Receive();
    REQUIRE(answer);
    if (answer->has_status()) continue;
    CHECK(answer->error().kind() == v1::Error::BAD_REQUEST);
    break;
  }
  CHECK(client.Ended());

  // Also where both came in one packet.
  Client both(world);
  std::string frames;
  daemon::AppendFrame(Watch(50), frames);
  daemon::AppendFrame(Ping(), frames);
  both.SendRaw(frames);
  CHECK(both.Receive()->has_status());
  CHECK(both.Receive()->has_error());
  CHECK(both.Ended());

  // The watcher's end stops the polling.
  auto watcher = std::make_unique<Client>(world);
  REQUIRE(watcher->Ask(Watch(10))->has_status());
  watcher.reset();
  REQUIRE(world.Pump([&] { return world.server->connections() == 0; }));
  const int statuses = world.handler.statuses;
  world.PumpFor(50ms);
  CHECK(world.handler.statuses == statuses);
}

TEST_CASE("connections are counted per user and in all") {
  World world;
  size_t limit = 3;
  SECTION("per user") {
    world.options.max_connections_per_uid = limit;
  }
  SECTION("in all") {
    world.options.max_connections = limit;
    // The owner and root have some more: who has to look into a crowded daemon must get in.
    limit += 16;
  }
  world.Start();
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < limit; ++i) {
    clients.push_back(std::make_unique<Client>(world));
    REQUIRE(clients.back()->Ask(Ping())->has_done());
  }
  Client one_more(world);
  const auto answer = one_more.Receive();
  REQUIRE(answer);
  CHECK(answer->error().kind() == v1::Error::BUSY);
  CHECK(one_more.Ended());
  clients.pop_back();
  REQUIRE(world.Pump([&] { return world.server->connections() == limit - 1; }));
  CHECK(Alive(world));
}

TEST_CASE("a full descriptor table turns peers away and is got over") {
  // The server logs it. Formatting is checked by UBSan, which opens pipes to look at memory and
  // reports a fault where it can't.
  const auto level = spdlog::get_level();
  spdlog::set_level(spdlog::level::off);
  World world;
  world.Start();
  Client before(world);
  REQUIRE(before.Ask(Ping())->has_done());
  Client waiting(world);  // connected before the table is full; accepted after
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit small{64, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &small) == 0);
  std::vector<int> filler;
  for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) filler.push_back(fd);
  REQUIRE(errno == EMFILE);

  CHECK(waiting.Ended());
  CHECK(before.Ask(Ping())->has_done());
  for (const int fd : filler) close(fd);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  spdlog::set_level(level);
  CHECK(Alive(world));
}

TEST_CASE("the socket file: replaced only when nobody answers, private, removed at the end") {
  World world;
  struct stat file {};
  SECTION("a stale one is replaced") {
    world.Start();
    // As after kill -9: the file stays, nobody listens.
    std::filesystem::rename(world.options.path, world.dir + "/kept");
    world.server->Stop();
    std::filesystem::rename(world.dir + "/kept", world.options.path);
    world.Start();
    CHECK(Alive(world));
    REQUIRE(stat(world.options.path.c_str(), &file) == 0);
    CHECK((file.st_mode & 0777U) == 0600);
    world.server->Stop();
    CHECK(stat(world.options.path.c_str(), &file) != 0);
    world.server->Stop();
  }
  SECTION("one in use is not") {
    world.Start();
    ControlServer second(world.io, world.handler, world.options);
    const auto started = second.Start();
    CHECK(started.code() == absl::StatusCode::kAlreadyExists);
    CHECK(std::string(started.message()).find(world.options.path) != std::string::npos);
    CHECK(std::string(started.message()).find("HEADROOM_RUNTIME_DIR") != std::string::npos);
    second.Stop();
    CHECK(Alive(world));
  }
  SECTION("the system's is open to all") {
    world.options.mode = 0666;
    world.Start();
    REQUIRE(stat(world.options.path.c_str(), &file) == 0);
    CHECK((file.st_mode & 0777U) == 0666);
  }
  SECTION("another's file is not removed") {
    world.Start();
    std::filesystem::remove(world.options.path);
    std::ofstream(world.options.path) << "another's";
    world.server->Stop();
    CHECK(std::filesystem::exists(world.options.path));
    ControlServer second(world.io, world.handler, world.options);
    CHECK(second.Start().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(std::filesystem::file_size(world.options.path) == 9);
  }
  SECTION("paths that can't be") {
    for (const std::string& path : {world.dir + "/none/control.sock",
                                    world.dir + "/" + std::string(120, 'x'), std::string()}) {
      world.options.path = path;
      ControlServer server(world.io, world.handler, world.options);
      const auto started = server.Start();
      INFO(path);
      CHECK_FALSE(started.ok());
      CHECK(std::string(started.message()).find(path) != std::string::npos);
    }
  }
}

TEST_CASE("who may ask for what") {
  using R = v1::Request;
  for (const auto request :
       {R::kStatus, R::kWatch, R::kExplain, R::kAttach, R::kDetach, R::kEnv, R::kPing, R::kSet}) {
    CHECK(daemon::MayAsk(request, 1000, 0).ok());
    CHECK(daemon::MayAsk(request, 1000, 1000).ok());
    CHECK(daemon::MayAsk(request, 0, 1000).ok());
  }
  for (const auto request : {R::kReload, R::kTrace}) {
    CHECK(absl::IsPermissionDenied(daemon::MayAsk(request, 1000, 0)));
    CHECK(absl::IsPermissionDenied(daemon::MayAsk(request, 1001, 1000)));
    CHECK(daemon::MayAsk(request, 1000, 1000).ok());
    CHECK(daemon::MayAsk(request, 0, 1000).ok());
  }
  CHECK(absl::IsInvalidArgument(daemon::MayAsk(R::REQUEST_NOT_SET, 0, 0)));
}

TEST_CASE("another user may look, but not change the daemon or read its trace") {
  if (getuid() != 0) {
    std::puts("SKIPPED: needs root, to become another user");
    return;
  }
  World world;
  world.options.mode = 0666;
  chmod(world.dir.c_str(), 0755);
  world.Start();
  const auto kind = [&](const v1::Request& request, v1::Error::Kind wanted) {
    return AsNobody(world, request, [wanted](const v1::Response& answer) {
      return wanted == v1::Error::UNKNOWN ? !answer.has_error() : answer.error().kind() == wanted;
    });
  };
  CHECK(kind(StatusRequest(), v1::Error::UNKNOWN));
  CHECK(world.handler.last.uid == 65534);
  CHECK(kind(Trace(), v1::Error::NOT_ALLOWED));
  v1::Request reload;
  reload.mutable_reload();
  CHECK(kind(reload, v1::Error::NOT_ALLOWED));
  v1::Request set;
  set.mutable_set()->set_lane(0);
  CHECK(kind(set, v1::Error::NOT_ALLOWED));
  set.mutable_set()->set_lane(3);
  CHECK(kind(set, v1::Error::UNKNOWN));
  CHECK(world.handler.calls == std::vector<std::string>{"status", "set"});
}

TEST_CASE("the trace is streamed whole, in frames, whatever its size") {
  World world;
  auto storage = trace::MakePosixStorage();
  trace::Recorder recorder(*storage, {.dir = world.dir + "/trace", .version = "test"});
  policy::State state;
  recorder.Begin(state, policy::Time{});
  policy::Sample sample;
  for (int32_t i = 0; i < 1000; ++i)
    sample.procs.push_back({{i, 1}, policy::MiB(i), policy::Duration(i)});
  for (int i = 0; i < 500; ++i) recorder.Record(sample, policy::Time{}, {}, state);
  recorder.Flush();
  world.handler.trace = recorder.SegmentPaths();
  world.Start();

  Client client(world);
  client.Send(Trace());
  std::string all;
  int chunks = 0;
  for (;;) {
    const auto answer = client.Receive();
    REQUIRE(answer);
    REQUIRE(answer->has_trace());
    all += answer->trace().data();
    ++chunks;
    if (answer->trace().last()) break;
  }
  CHECK(chunks > 5);
  auto reader = trace::Reader::FromBytes(all, "test");
  REQUIRE(reader.ok());
  int records = 0;
  while (reader->Next()) ++records;
  CHECK(records == 501);
  CHECK_FALSE(reader->torn());
  // The connection goes on.
  CHECK(client.Ask(Ping())->has_done());

  world.handler.trace = {"/dev/null"};
  CHECK(client.Ask(Trace())->has_error());
  world.handler.trace = {};
  CHECK(client.Ask(Trace())->trace().last());
}

TEST_CASE("answers that can't be sent as they are") {
  World world;
  world.Start();
  Client client(world);
  world.handler.status.set_version(std::string(2'000'000, 'x'));
  const auto large = client.Ask(StatusRequest());
  REQUIRE(large);
  CHECK(large->error().kind() == v1::Error::FAILED);
  CHECK(large->error().text().find("ask for less") != std::string::npos);

  // Names are bytes: a source of another encoding must not make the answer unreadable.
  world.handler.status.Clear();
  world.handler.status.add_notes("na\xefve");
  world.handler.status.add_lanes()->add_jobs()->set_source("caf\xe9.cu");
  const auto answer = client.Ask(StatusRequest());
  REQUIRE(answer);
  CHECK(answer->status().notes(0) == "na\xef\xbf\xbdve");
  CHECK(answer->status().lanes(0).jobs(0).source() == "caf\xef\xbf\xbd.cu");
}
