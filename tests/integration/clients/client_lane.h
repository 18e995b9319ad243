// A lane without a daemon for real build tools: tokens that the test put in, and a gate that admits
// at once and remembers who asked.
#ifndef HEADROOM_TESTS_INTEGRATION_CLIENTS_CLIENT_LANE_H_
#define HEADROOM_TESTS_INTEGRATION_CLIENTS_CLIENT_LANE_H_

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/gate/fake_gate.h"
#include "tests/support/testing.h"

namespace headroom::testing {

using Words = std::vector<std::string>;

bool Contains(const std::string& text, const std::string& part);

class ClientLane {
 public:
  explicit ClientLane(int tokens);
  ~ClientLane();
  ClientLane(const ClientLane&) = delete;
  ClientLane& operator=(const ClientLane&) = delete;

  const fs::path& dir() const { return dir_.path(); }  // of the build; the lane is below it
  int Idle() const;
  void Add(int tokens);
  // Fewest tokens in the fifo since the start: what the clients took is the rest.
  int FewestIdle() const { return fewest_; }
  const FakeGate& gate() const { return *gate_; }
  // How many processes of a tool asked the gate.
  int Asked(const std::string& tool) const;

  // `argv` as a member of the lane, told of it as `headroom run` does, in the build's folder.
  ProgramOptions Options(Words argv) const;

 private:
  TempDir dir_;
  fs::path lane_;
  int fd_ = -1;
  std::atomic<int> fewest_;
  std::atomic<bool> stop_{false};
  std::optional<FakeGate> gate_;
  std::thread watcher_;
};

// What was seen of a client, as docs/clients.md shows it: "yes", "no", "-" (does not apply).
struct ClientRow {
  std::string name;  // with its version: "ninja 1.11"
  std::string tokens = "-";
  std::string gate = "-";
  std::string cap = "-";    // -jN is a cap of its own
  std::string wakes = "-";  // notices new tokens
  std::string leaks = "-";  // tokens are lost with kill -9
  std::string note;         // what a user has to know
};

// Compares with the row in docs/clients.md, or writes it there if HEADROOM_UPDATE_DOCS is set. A
// tool of another version than the page's is not compared.
void CheckDocumented(const ClientRow& row);

// Prints why the test can't run, for ctest to show.
void Skip(const std::string& reason);

// "4.3" of the first "N.N" in what `argv` prints.
std::string VersionOf(const Words& argv);

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_INTEGRATION_CLIENTS_CLIENT_LANE_H_
