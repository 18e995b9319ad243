#include "tests/integration/gate/fake_gate.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace headroom::testing {
namespace {

double MonotonicSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Message>
bool Take(const unsigned char* data, std::size_t size, Message* message) {
  if (size != sizeof(*message)) return false;
  std::memcpy(message, data, sizeof(*message));
  return true;
}

}  // namespace

FakeGate::FakeGate(const fs::path& lane) : lane_(lane) {
  const fs::path path = lane / gate::kGateSocketName;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // Bound under a short name and moved: a lane's path may be longer than an address.
  const fs::path bound = "/tmp/headroom-gate-" + std::to_string(getpid()) + "-" +
                         std::to_string(reinterpret_cast<std::uintptr_t>(this));
  std::strncpy(address.sun_path, bound.c_str(), sizeof(address.sun_path) - 1);
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0 ||
      bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener_, 1024) != 0) {
    throw std::runtime_error("cannot listen at " + bound.string() + ": " + std::strerror(errno));
  }
  fs::rename(bound, path);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = std::thread([this] { Loop(); });
}

FakeGate::~FakeGate() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  Wake();
  thread_.join();
  for (auto& [number, peer] : peers_) close(peer.fd);
  close(listener_);
  close(wake_);
}

void FakeGate::Wake() const {
  const std::uint64_t one = 1;
  const ssize_t ignored = write(wake_, &one, sizeof(one));
  static_cast<void>(ignored);
}

void FakeGate::SetAutoAdmit(bool on) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto_admit_ = on;
}
void FakeGate::SetAnswersPing(bool on) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answers_ping_ = on;
}
void FakeGate::SetVersion(std::uint16_t version) {
  const std::lock_guard<std::mutex> lock(mutex_);
  version_ = version;
}
void FakeGate::SetVerdict(std::function<std::optional<gate::Verdict>(const GateEvent&)> verdict) {
  const std::lock_guard<std::mutex> lock(mutex_);
  verdict_ = std::move(verdict);
}
void FakeGate::Hang() {
  const std::lock_guard<std::mutex> lock(mutex_);
  hangs_ = true;
  Wake();
}
void FakeGate::Resume() {
  const std::lock_guard<std::mutex> lock(mutex_);
  hangs_ = false;
  Wake();
}

void FakeGate::Loop() {
  for (;;) {
    std::vector<pollfd> descriptors;
    std::vector<int> numbers;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stop_) return;
      descriptors.push_back({wake_, POLLIN, 0});
      if (!hangs_) {
        descriptors.push_back({listener_, POLLIN, 0});
        for (const auto& [number, peer] : peers_) {
          descriptors.push_back({peer.fd, POLLIN, 0});
          numbers.push_back(number);
        }
      }
    }
    poll(descriptors.data(), descriptors.size(), -1);
    std::uint64_t count = 0;
    const ssize_t ignored = read(wake_, &count, sizeof(count));
    static_cast<void>(ignored);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return;
    if (hangs_ || descriptors.size() < 2) continue;
    if (descriptors[1].revents != 0) Accept();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (descriptors[i + 2].revents != 0) ReadFrom(numbers[i]);
    }
    changed_.notify_all();
  }
}

void FakeGate::Accept() {
  for (;;) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    ucred credentials = {};
    socklen_t size = sizeof(credentials);
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
    Peer peer;
    peer.fd = fd;
    peer.keeper = credentials.pid;
    peer.uid = credentials.uid;
    peers_[++last_peer_] = peer;
  }
}

void FakeGate::ReadFrom(int number) {
  std::vector<unsigned char> data(sizeof(gate::Request) + 1);
  for (;;) {
    const auto at = peers_.find(number);
    if (at == peers_.end()) return;
    const ssize_t size = recv(at->second.fd, data.data(), data.size(), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    // The peer closed with something of ours unread: what it had sent before is still there.
    if (size < 0 && errno == ECONNRESET) continue;
    if (size <= 0) {
      GateEvent event;
      event.peer = number;
      event.keeper = at->second.keeper;
      event.uid = at->second.uid;
      event.closed = true;
      event.attempt = at->second.attempt;
      event.seconds = MonotonicSeconds();
      events_.push_back(event);
      close(at->second.fd);
      peers_.erase(at);
      return;
    }
    Handle(number, data.data(), static_cast<std::size_t>(size));
  }
}

void FakeGate::Handle(int number, const unsigned char* data, std::size_t size) {
  Peer& peer = peers_.at(number);
  gate::Header header = {};
  if (size < sizeof(header)) return problems_.push_back("a packet shorter than a header");
  std::memcpy(&header, data, sizeof(header));
  if (header.magic != gate::kGateMagic) return problems_.push_back("wrong magic number");
  if (header.size != size) return problems_.push_back("the header's size is not the packet's");
  if (header.version != version_) {
    gate::Refuse refuse = {};
    refuse.reason = static_cast<std::uint32_t>(gate::RefuseReason::kVersion);
    refuse.version = version_;
    Send(number, &refuse, sizeof(refuse), gate::MessageType::kRefuse);
    return;
  }
  GateEvent event;
  event.peer = number;
  event.keeper = peer.keeper;
  event.uid = peer.uid;
  event.type = static_cast<gate::MessageType>(header.type);
  event.attempt = header.attempt;
  event.seconds = MonotonicSeconds();
  const bool introduces =
      event.type == gate::MessageType::kRequest || event.type == gate::MessageType::kReregister;
  if (!peer.introduced && !introduces) problems_.push_back("the first message is no request");
  peer.introduced = true;
  bool right_size = false;
  switch (event.type) {
    case gate::MessageType::kRequest:
    case gate::MessageType::kReregister:
      right_size = Take(data, size, &event.request);
      peer.attempt = header.attempt;
      break;
    case gate::MessageType::kStarted:
      right_size = Take(data, size, &event.started);
      break;
    case gate::MessageType::kEnded:
      right_size = Take(data, size, &event.ended);
      break;
    case gate::MessageType::kFrozen:
    case gate::MessageType::kThawed:
    case gate::MessageType::kPing:
      right_size = size == sizeof(gate::Simple);
      break;
    case gate::MessageType::kAdmit:
    case gate::MessageType::kPass:
    case gate::MessageType::kEvict:
    case gate::MessageType::kFreeze:
    case gate::MessageType::kThaw:
    case gate::MessageType::kVerdict:
    case gate::MessageType::kPong:
    case gate::MessageType::kRefuse:
      break;
  }
  if (!right_size) {
    problems_.push_back("message " + std::to_string(header.type) + " of " + std::to_string(size) +
                        " bytes");
    return;
  }
  if (header.attempt != peer.attempt) problems_.push_back("a message about another attempt");
  events_.push_back(event);
  if (event.type == gate::MessageType::kPing && answers_ping_) {
    gate::Simple ping = {};
    Take(data, size, &ping);
    SendSimple(number, gate::MessageType::kPong, ping.value);
  }
  if (event.type == gate::MessageType::kRequest && auto_admit_) {
    gate::Admit admit = {};
    Send(number, &admit, sizeof(admit), gate::MessageType::kAdmit);
  }
  if (event.type == gate::MessageType::kEnded &&
      (event.ended.flags & gate::kEndedWantsVerdict) != 0 && verdict_) {
    if (std::optional<gate::Verdict> verdict = verdict_(event)) {
      Send(number, &*verdict, sizeof(*verdict), gate::MessageType::kVerdict);
    }
  }
}

void FakeGate::Send(int number, void* message, std::size_t size, gate::MessageType type) {
  const auto at = peers_.find(number);
  if (at == peers_.end()) return;
  gate::Header header = {};
  header.magic = gate::kGateMagic;
  header.version = version_;
  header.type = static_cast<std::uint16_t>(type);
  header.size = static_cast<std::uint32_t>(size);
  header.attempt = at->second.attempt;
  std::memcpy(message, &header, sizeof(header));
  send(at->second.fd, message, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void FakeGate::SendSimple(int number, gate::MessageType type, std::uint64_t value) {
  gate::Simple message = {};
  message.value = value;
  Send(number, &message, sizeof(message), type);
}

void FakeGate::Admit(int peer, std::uint64_t predicted_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  gate::Admit admit = {};
  admit.predicted_bytes = predicted_bytes;
  Send(peer, &admit, sizeof(admit), gate::MessageType::kAdmit);
}
void FakeGate::Pass(int peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  SendSimple(peer, gate::MessageType::kPass, 0);
}
void FakeGate::Evict(int peer, std::uint64_t floor_bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  SendSimple(peer, gate::MessageType::kEvict, floor_bytes);
}
void FakeGate::Freeze(int peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  SendSimple(peer, gate::MessageType::kFreeze, 0);
}
void FakeGate::Thaw(int peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  SendSimple(peer, gate::MessageType::kThaw, 0);
}
void FakeGate::SendRaw(int peer, const void* data, std::size_t size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = peers_.find(peer);
  if (at != peers_.end()) send(at->second.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}
void FakeGate::Drop(int peer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = peers_.find(peer);
  if (at == peers_.end()) return;
  close(at->second.fd);
  peers_.erase(at);
  Wake();
}

std::vector<GateEvent> FakeGate::Events() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return events_;
}

std::optional<GateEvent> FakeGate::WaitFor(const std::function<bool(const GateEvent&)>& wanted,
                                           std::chrono::milliseconds timeout,
                                           std::size_t from) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    for (; from < events_.size(); ++from) {
      if (wanted(events_[from])) return events_[from];
    }
    if (changed_.wait_until(lock, until) == std::cv_status::timeout && from >= events_.size()) {
      return std::nullopt;
    }
  }
}

std::optional<GateEvent> FakeGate::WaitFor(gate::MessageType type, std::uint32_t attempt,
                                           std::chrono::milliseconds timeout) const {
  return WaitFor(
      [type, attempt](const GateEvent& event) {
        return !event.closed && event.type == type && event.attempt == attempt;
      },
      timeout);
}

std::size_t FakeGate::Count(gate::MessageType type) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::size_t count = 0;
  for (const GateEvent& event : events_) count += !event.closed && event.type == type ? 1 : 0;
  return count;
}

std::vector<std::string> FakeGate::problems() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return problems_;
}

gate::Verdict RetryVerdict(bool oom, std::uint64_t floor_bytes) {
  gate::Verdict verdict = {};
  verdict.decision = static_cast<std::uint32_t>(gate::Decision::kRetry);
  verdict.flags = oom ? gate::kVerdictOom : 0;
  verdict.floor_bytes = floor_bytes;
  return verdict;
}

gate::Verdict MirrorVerdict(const std::string& line) {
  gate::Verdict verdict = {};
  std::strncpy(verdict.line, line.c_str(), sizeof(verdict.line) - 1);
  return verdict;
}

}  // namespace headroom::testing
