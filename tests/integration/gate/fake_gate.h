// The daemon's end of the gate, as a test wants it: admits at once, or when told; evicts, freezes,
// gives verdicts, hangs, dies and comes back. No policy.
//
// Runs in a thread of its own; every method may be called from the test's thread. Sockets carry
// what gate_wire.h says; packets that break its rules are recorded in problems().
#ifndef HEADROOM_TESTS_INTEGRATION_GATE_FAKE_GATE_H_
#define HEADROOM_TESTS_INTEGRATION_GATE_FAKE_GATE_H_

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/headroom/v1/gate_wire.h"
#include "tests/support/testing.h"

namespace headroom::testing {

// One packet from a keeper, or the end of its connection.
struct GateEvent {
  int peer = 0;      // number of the connection, from 1
  pid_t keeper = 0;  // from SO_PEERCRED
  uid_t uid = 0;
  bool closed = false;  // the connection's end: no message
  gate::MessageType type = gate::MessageType::kRequest;
  std::uint32_t attempt = 0;
  gate::Request request = {};
  gate::Started started = {};
  gate::Ended ended = {};
  double seconds = 0;  // CLOCK_MONOTONIC
};

class FakeGate {
 public:
  // Listens in `lane`, which exists.
  explicit FakeGate(const fs::path& lane);
  ~FakeGate();
  FakeGate(const FakeGate&) = delete;
  FakeGate& operator=(const FakeGate&) = delete;

  // --- how it answers ---
  void SetAutoAdmit(bool on);
  void SetAnswersPing(bool on);
  void SetVersion(std::uint16_t version);  // 1; others: every first message is refused
  // What an Ended that wants a verdict gets; nothing by default, so that the keeper runs into its
  // time limit.
  void SetVerdict(std::function<std::optional<gate::Verdict>(const GateEvent&)> verdict);
  // Stops taking connections and reading, as a daemon does that hangs; and goes on.
  void Hang();
  void Resume();

  // --- what it does by itself ---
  void Admit(int peer, std::uint64_t predicted_bytes = 0);
  void Pass(int peer);
  void Evict(int peer, std::uint64_t floor_bytes = 0);
  void Freeze(int peer);
  void Thaw(int peer);
  void SendRaw(int peer, const void* data, std::size_t size);
  void Drop(int peer);  // closes that connection

  // --- what it saw ---
  std::vector<GateEvent> Events() const;
  // Waits for an event that `wanted` likes, from the `from`th on; nothing after `timeout`.
  std::optional<GateEvent> WaitFor(const std::function<bool(const GateEvent&)>& wanted,
                                   std::chrono::milliseconds timeout = std::chrono::seconds(10),
                                   std::size_t from = 0) const;
  std::optional<GateEvent> WaitFor(
      gate::MessageType type, std::uint32_t attempt = 1,
      std::chrono::milliseconds timeout = std::chrono::seconds(10)) const;
  std::size_t Count(gate::MessageType type) const;
  std::vector<std::string> problems() const;

 private:
  struct Peer {
    int fd = -1;
    pid_t keeper = 0;
    uid_t uid = 0;
    std::uint32_t attempt = 1;
    bool introduced = false;
  };

  void Loop();
  void Accept();
  void ReadFrom(int number);
  void Handle(int number, const unsigned char* data, std::size_t size);
  void Send(int number, void* message, std::size_t size, gate::MessageType type);
  void SendSimple(int number, gate::MessageType type, std::uint64_t value);
  void Wake() const;

  fs::path lane_;
  int listener_ = -1;
  int wake_ = -1;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<int, Peer> peers_;
  int last_peer_ = 0;
  std::vector<GateEvent> events_;
  std::vector<std::string> problems_;
  bool auto_admit_ = true;
  bool answers_ping_ = true;
  std::uint16_t version_ = gate::kGateVersion;
  bool hangs_ = false;
  bool stop_ = false;
  std::function<std::optional<gate::Verdict>(const GateEvent&)> verdict_;
  std::thread thread_;
};

gate::Verdict RetryVerdict(bool oom, std::uint64_t floor_bytes = 0);
gate::Verdict MirrorVerdict(const std::string& line = "");

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_INTEGRATION_GATE_FAKE_GATE_H_
