// headroomd as a service: what it tells systemd, its watchdog, its configuration, its exit codes.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/process.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "headroom/v1/control.pb.h"
#include "tests/support/control_client.h"
#include "tests/support/testing.h"

using namespace headroom;
using namespace std::chrono_literals;
using headroom::testing::ControlClient;
using headroom::testing::TempDir;
using headroom::testing::WaitUntil;
using headroom::testing::WriteFile;
namespace bp = boost::process;

namespace {

const std::string kHeadroomd = std::string(HEADROOM_BIN_DIR) + "/headroomd";

// systemd's end of NOTIFY_SOCKET.
class StandIn {
 public:
  explicit StandIn(const TempDir& temp) : path_((temp / "notify").string()) {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~StandIn() { close(fd_); }
  const std::string& path() const { return path_; }

  // How many messages with this line have come so far; takes what has come.
  int Count(const std::string& line) {
    Take();
    return static_cast<int>(
        std::count_if(messages_.begin(), messages_.end(), [&](const std::string& message) {
          return ("\n" + message + "\n").find("\n" + line + "\n") != std::string::npos;
        }));
  }
  bool Heard(const std::string& line) {
    return WaitUntil([&] { return Count(line) > 0; });
  }
  void Forget() {
    Take();
    messages_.clear();
  }

 private:
  void Take() {
    char buffer[4096];
    for (ssize_t n; (n = recv(fd_, buffer, sizeof buffer, 0)) >= 0;)
      messages_.emplace_back(buffer, static_cast<size_t>(n));
  }

  std::string path_;
  int fd_ = -1;
  std::vector<std::string> messages_;
};

struct Ended {
  int code = -1;
  std::string text;
};

// Runs headroomd to its end.
Ended Run(const std::vector<std::string>& arguments, const TempDir& temp) {
  bp::ipstream out;
  bp::environment environment = boost::this_process::environment();
  environment["HEADROOM_RUNTIME_DIR"] = (temp / "run").string();
  bp::child child(kHeadroomd, bp::args = arguments, environment, (bp::std_out & bp::std_err) > out);
  Ended ended;
  for (std::string line; std::getline(out, line);) ended.text += line + "\n";
  child.wait();
  ended.code = child.exit_code();
  return ended;
}

v1::Request Status() {
  v1::Request request;
  request.mutable_status();
  return request;
}

}  // namespace

TEST_CASE("systemd hears when the daemon is ready, alive, reloading and stopping") {
  const TempDir temp;
  StandIn systemd(temp);
  WriteFile(temp / "headroom.toml", "[jobs]\nmax = 3\n");
  bp::environment environment = boost::this_process::environment();
  environment["NOTIFY_SOCKET"] = systemd.path();
  environment["WATCHDOG_USEC"] = "400000";
  const std::string runtime = (temp / "run").string();
  bp::child headroomd(kHeadroomd, "--config", (temp / "headroom.toml").string(), "--runtime-dir",
                      runtime, environment, bp::std_err > (temp / "log").string());
  REQUIRE(systemd.Heard("READY=1"));
  // READY means that it answers.
  ControlClient client(runtime + "/control.sock");
  CHECK(client.Ask(Status()).has_status());

  // At half of its time, again and again.
  CHECK(WaitUntil([&] { return systemd.Count("WATCHDOG=1") >= 5; }));

  // A daemon that hangs is not fed for: that is what the watchdog is there for.
  REQUIRE(kill(headroomd.id(), SIGSTOP) == 0);
  std::this_thread::sleep_for(50ms);
  systemd.Forget();
  std::this_thread::sleep_for(700ms);
  CHECK(systemd.Count("WATCHDOG=1") == 0);
  REQUIRE(kill(headroomd.id(), SIGCONT) == 0);
  CHECK(systemd.Heard("WATCHDOG=1"));

  systemd.Forget();
  REQUIRE(kill(headroomd.id(), SIGHUP) == 0);
  CHECK(systemd.Heard("RELOADING=1"));
  CHECK(systemd.Heard("READY=1"));

  REQUIRE(kill(headroomd.id(), SIGTERM) == 0);
  CHECK(systemd.Heard("STOPPING=1"));
  headroomd.wait();
  CHECK(headroomd.exit_code() == 0);
  CHECK_FALSE(headroom::testing::fs::exists(runtime + "/control.sock"));
}

TEST_CASE("The option --check-config tells every fault and says so by its exit code") {
  const TempDir temp;
  const std::string file = (temp / "headroom.toml").string();
  WriteFile(file, "[memory]\nreserve = \"5%\"\n");
  CHECK(Run({"--check-config", "--config", file}, temp).code == 0);
  WriteFile(file, "[memory]\nreserv = \"5%\"\n[jobs]\nmax = \"many\"\n");
  const Ended bad = Run({"--check-config", "--config", file}, temp);
  CHECK(bad.code == 2);
  INFO(bad.text);
  CHECK(bad.text.find(file + ":2: memory.reserv: ") != std::string::npos);
  CHECK(bad.text.find(file + ":4: jobs.max: 'many'") != std::string::npos);
  const Ended missing = Run({"--check-config", "--config", "/nonexistent.toml"}, temp);
  CHECK(missing.code == 2);
  CHECK(missing.text.find("/nonexistent.toml") != std::string::npos);
  // Nor does it serve with such a file.
  CHECK(Run({"--config", file}, temp).code == 2);
  const Ended unknown = Run({"--colour"}, temp);
  CHECK(unknown.code == 2);
  CHECK(unknown.text.find("--colour") != std::string::npos);
}

TEST_CASE("a second daemon, a socket in use and a folder that can't be have their own exit codes") {
  const TempDir temp;
  const std::string runtime = (temp / "run").string();
  bp::child first(kHeadroomd, "--config", "/dev/null", "--runtime-dir", runtime,
                  bp::std_err > (temp / "log").string());
  ControlClient client(runtime + "/control.sock");
  const std::string pid = std::to_string(first.id());

  const Ended second = Run({"--config", "/dev/null", "--runtime-dir", runtime}, temp);
  INFO(second.text);
  CHECK(second.code == 3);
  CHECK(second.text.find(pid) != std::string::npos);
  CHECK(client.Ask(Status()).has_status());

  // Its lock gone, the socket alone still keeps it.
  headroom::testing::fs::remove(runtime + "/lock");
  const Ended third = Run({"--config", "/dev/null", "--runtime-dir", runtime}, temp);
  INFO(third.text);
  CHECK(third.code == 3);
  CHECK(third.text.find("control.sock") != std::string::npos);
  CHECK(client.Ask(Status()).has_status());

  const Ended nowhere = Run({"--config", "/dev/null", "--runtime-dir", "/proc/none"}, temp);
  INFO(nowhere.text);
  CHECK(nowhere.code == 1);
  CHECK(nowhere.text.find("/proc/none") != std::string::npos);

  first.terminate();
  // What kill -9 left is taken over.
  bp::child next(kHeadroomd, "--config", "/dev/null", "--runtime-dir", runtime,
                 bp::std_err > (temp / "log").string());
  ControlClient again(runtime + "/control.sock");
  CHECK(again.Ask(Status()).status().pid() == next.id());
  next.terminate();
}

TEST_CASE("a trace that can't be written is said in the status, and nothing else happens") {
  const TempDir temp;
  const std::string runtime = (temp / "run").string();
  bp::child headroomd(kHeadroomd, "--config", "/dev/null", "--runtime-dir", runtime, "--state-dir",
                      "/proc/none", bp::std_err > (temp / "log").string());
  ControlClient client(runtime + "/control.sock");
  const v1::Response status = client.Ask(Status());
  bool said = false;
  for (const std::string& note : status.status().notes()) {
    said = said || (note.find("not being recorded") != std::string::npos &&
                    note.find("/proc/none") != std::string::npos);
  }
  CHECK(said);
  v1::Request trace;
  trace.mutable_trace();
  CHECK(client.Ask(trace).error().text().find("/proc/none") != std::string::npos);
  headroomd.terminate();
}

TEST_CASE("a reload takes a good file and keeps what it had from a bad one") {
  const TempDir temp;
  const std::string runtime = (temp / "run").string();
  const std::string file = (temp / "headroom.toml").string();
  WriteFile(file, "[memory]\nreserve = \"10%\"\n");
  bp::child headroomd(kHeadroomd, "--config", file, "--runtime-dir", runtime,
                      bp::std_err > (temp / "log").string());
  ControlClient client(runtime + "/control.sock");
  v1::Request reload;
  reload.mutable_reload();
  const auto reserve_permille = [&] {
    const v1::Memory memory = client.Ask(Status()).status().memory();
    return memory.total() == 0 ? 0 : memory.reserve() * 1000 / memory.total();
  };
  CHECK(WaitUntil([&] { return reserve_permille() >= 99; }));
  CHECK(reserve_permille() <= 100);

  WriteFile(file, "[memory]\nreserve = \"20%\"\n");
  CHECK(client.Ask(reload).has_done());
  CHECK(WaitUntil([&] { return reserve_permille() >= 199; }));

  WriteFile(file, "[memory]\nreserve = \"lots\"\n");
  const v1::Response refused = client.Ask(reload);
  CHECK(refused.error().text().find(file + ":2: memory.reserve: 'lots'") != std::string::npos);
  CHECK(reserve_permille() >= 199);
  headroomd.terminate();
}
