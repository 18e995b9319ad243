#include "server/sys/proc_connector.h"

#include <arpa/inet.h>
#include <linux/connector.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

namespace headroom::sys {
namespace {

// linux/cn_proc.h by number: its enums moved between headers of different age.
constexpr uint32_t kEventNone = 0;  // the acknowledgement of a request
constexpr uint32_t kEventFork = 1;
constexpr uint32_t kEventExec = 2;
constexpr uint32_t kEventExit = 0x80000000;
constexpr uint32_t kListen = 1;

// A datagram: nlmsghdr (16), cn_msg (20), proc_event: what, cpu, timestamp (16), then its data.
constexpr size_t kConnectorAt = 16;
constexpr size_t kEventAt = kConnectorAt + 20;
constexpr size_t kDataAt = kEventAt + 16;
static_assert(sizeof(nlmsghdr) == kConnectorAt && sizeof(cn_msg) == kEventAt - kConnectorAt);

// Room for some 10,000 events while the daemon is busy elsewhere.
constexpr int kReceiveBytes = 4 << 20;
constexpr int kAcknowledgeMs = 500;

template <typename T>
std::optional<T> At(std::string_view bytes, size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value{};
  memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// One netlink message.
std::optional<ProcEvent> ParseMessage(std::string_view message) {
  const auto group = At<uint32_t>(message, kConnectorAt);
  const auto value = At<uint32_t>(message, kConnectorAt + 4);
  const auto what = At<uint32_t>(message, kEventAt);
  const auto timestamp = At<uint64_t>(message, kEventAt + 8);
  if (group != uint32_t{CN_IDX_PROC} || value != uint32_t{CN_VAL_PROC} || !what || !timestamp) {
    return std::nullopt;
  }
  const auto word = [&](size_t index) { return At<int32_t>(message, kDataAt + 4 * index); };
  ProcEvent event;
  event.timestamp_ns = *timestamp;
  switch (*what) {
    case kEventFork: {  // parent pid, parent tgid, child pid, child tgid
      const auto parent = word(1), child = word(2), child_process = word(3);
      if (!parent || !child || !child_process || *child != *child_process) return std::nullopt;
      event.kind = ProcEvent::Kind::kFork;
      event.pid = *child_process;
      event.parent = *parent;
      return event;
    }
    case kEventExec: {  // pid, tgid
      const auto thread = word(0), process = word(1);
      if (!thread || !process || *thread != *process) return std::nullopt;
      event.kind = ProcEvent::Kind::kExec;
      event.pid = *process;
      return event;
    }
    case kEventExit: {  // pid, tgid, exit code, exit signal, parent pid, parent tgid (since 4.18)
      const auto thread = word(0), process = word(1), status = word(2), parent = word(5);
      if (!thread || !process || !status || *thread != *process) return std::nullopt;
      event.kind = ProcEvent::Kind::kExit;
      event.pid = *process;
      event.wait_status = *status;
      event.parent = parent.value_or(0);
      return event;
    }
    default:
      return std::nullopt;
  }
}

// What error the kernel's answer to our request carries; nullopt: this is no such answer.
std::optional<int> AcknowledgedError(std::string_view message) {
  if (At<uint32_t>(message, kConnectorAt) != uint32_t{CN_IDX_PROC}) return std::nullopt;
  if (At<uint32_t>(message, kEventAt) != kEventNone) return std::nullopt;
  const auto error = At<int32_t>(message, kDataAt);
  if (!error) return std::nullopt;
  return *error < 0 ? -*error : *error;
}

absl::Status AttachFilter(int fd, ProcConnector::Wanted wanted) {
  // Loads are big-endian, the message is in the host's order: compare with swapped constants.
  constexpr int kAccept = 13, kDrop = 14;
  const bool all = wanted == ProcConnector::Wanted::kAll;
  const auto jump_if = [](int code, uint32_t value, int here, int yes, int no) {
    return sock_filter{static_cast<uint16_t>(BPF_JMP | BPF_JEQ | code),
                       static_cast<uint8_t>(yes - here - 1), static_cast<uint8_t>(no - here - 1),
                       value};
  };
  const auto load = [](size_t offset) {
    return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)};
  };
  const sock_filter to_x = {BPF_MISC | BPF_TAX, 0, 0, 0};
  sock_filter code[] = {
      load(kEventAt),                                            // 0: which event?
      jump_if(BPF_K, htonl(kEventFork), 1, all ? 9 : kDrop, 2),  // 1
      jump_if(BPF_K, htonl(kEventExec), 2, 5, 3),                // 2
      jump_if(BPF_K, htonl(kEventExit), 3, all ? 5 : kDrop, 4),  // 3
      jump_if(BPF_K, htonl(kEventNone), 4, kAccept, kDrop),      // 4
      load(kDataAt),                                             // 5: a process's main thread?
      to_x,                                                      // 6
      load(kDataAt + 4),                                         // 7
      jump_if(BPF_X, 0, 8, kAccept, kDrop),                      // 8
      load(kDataAt + 8),                                         // 9: a new process, not a thread?
      to_x,                                                      // 10
      load(kDataAt + 12),                                        // 11
      jump_if(BPF_X, 0, 12, kAccept, kDrop),                     // 12
      {BPF_RET | BPF_K, 0, 0, 0xffffffff},                       // 13: accept
      {BPF_RET | BPF_K, 0, 0, 0},                                // 14: drop
  };
  const sock_fprog program = {sizeof code / sizeof code[0], code};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0) {
    return ErrnoStatus(errno, "filter of the proc connector");
  }
  return absl::OkStatus();
}

constexpr uint32_t kOnce = EPOLLIN | EPOLLONESHOT;

absl::Status RequestEvents(int fd) {
  struct {
    nlmsghdr header;
    char connector_and_operation[sizeof(cn_msg) + sizeof(uint32_t)];
  } request = {};
  static_assert(sizeof request == kEventAt + sizeof(uint32_t));
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = NLMSG_DONE;
  cn_msg connector = {};
  connector.id.idx = CN_IDX_PROC;
  connector.id.val = CN_VAL_PROC;
  connector.len = sizeof(uint32_t);
  memcpy(request.connector_and_operation, &connector, sizeof connector);
  memcpy(request.connector_and_operation + sizeof connector, &kListen, sizeof kListen);
  if (send(fd, &request, sizeof request, 0) < 0) {
    // ECONNREFUSED: nobody serves this connector, the kernel lacks CONFIG_PROC_EVENTS.
    if (errno == ECONNREFUSED) {
      return absl::UnimplementedError("this kernel has no proc connector (CONFIG_PROC_EVENTS)");
    }
    return ErrnoStatus(errno, "ask the proc connector for events");
  }
  return absl::OkStatus();
}

absl::Status AwaitAcknowledgement(int fd) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kAcknowledgeMs);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    pollfd poll_fd = {fd, POLLIN, 0};
    if (poll(&poll_fd, 1, static_cast<int>(left.count())) <= 0) continue;
    char buffer[1024];
    const ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got <= 0) continue;
    const auto error = AcknowledgedError(std::string_view(buffer, static_cast<size_t>(got)));
    if (!error) continue;
    if (*error == 0) return absl::OkStatus();
    return ErrnoStatus(*error, "the proc connector refuses");
  }
  return absl::UnimplementedError(
      "the proc connector does not answer: it serves the first pid namespace only");
}

}  // namespace

std::vector<ProcEvent> ParseProcEvents(std::string_view datagram) {
  std::vector<ProcEvent> events;
  while (true) {
    const auto length = At<uint32_t>(datagram, 0);
    if (!length || *length < sizeof(nlmsghdr) || *length > datagram.size()) break;
    if (auto event = ParseMessage(datagram.substr(0, *length))) events.push_back(*event);
    const size_t aligned = (size_t{*length} + 3) & ~size_t{3};
    if (aligned >= datagram.size()) break;
    datagram.remove_prefix(aligned);
  }
  return events;
}

absl::StatusOr<ProcConnector> ProcConnector::Open(Wanted wanted) {
  UniqueFd fd(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_CONNECTOR));
  if (!fd) return ErrnoStatus(errno, "socket of the proc connector");
  // FORCE goes beyond net.core.rmem_max, for root.
  if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kReceiveBytes, sizeof kReceiveBytes) != 0) {
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kReceiveBytes, sizeof kReceiveBytes);
  }
  if (absl::Status status = AttachFilter(fd.get(), wanted); !status.ok()) return status;
  sockaddr_nl address = {};
  address.nl_family = AF_NETLINK;
  address.nl_groups = CN_IDX_PROC;
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return ErrnoStatus(errno, "join the proc connector");
  }
  if (absl::Status status = RequestEvents(fd.get()); !status.ok()) return status;
  if (absl::Status status = AwaitAcknowledgement(fd.get()); !status.ok()) return status;
  UniqueFd bell(epoll_create1(EPOLL_CLOEXEC));
  if (!bell) return ErrnoStatus(errno, "epoll for the proc connector");
  epoll_event wanted_once = {.events = kOnce, .data = {}};
  if (epoll_ctl(bell.get(), EPOLL_CTL_ADD, fd.get(), &wanted_once) != 0) {
    return ErrnoStatus(errno, "wait for the proc connector");
  }
  return ProcConnector(std::move(fd), std::move(bell));
}

void ProcConnector::Hush() const {
  // What was told once is switched off by the kernel until it is asked for again.
  epoll_event told;
  epoll_wait(bell_.get(), &told, 1, 0);
}

std::vector<ProcEvent> ProcConnector::Read() const {
  constexpr size_t kBatch = 64;
  constexpr size_t kMostEvents = 4096;
  constexpr size_t kDatagramBytes = 256;
  std::vector<ProcEvent> events;
  char buffers[kBatch][kDatagramBytes];
  sockaddr_nl senders[kBatch];
  iovec vectors[kBatch];
  mmsghdr messages[kBatch];
  while (events.size() < kMostEvents) {
    for (size_t i = 0; i < kBatch; ++i) {
      vectors[i] = {buffers[i], kDatagramBytes};
      messages[i] = {};
      messages[i].msg_hdr.msg_name = &senders[i];
      messages[i].msg_hdr.msg_namelen = sizeof senders[i];
      messages[i].msg_hdr.msg_iov = &vectors[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int got = recvmmsg(fd_.get(), messages, kBatch, MSG_DONTWAIT, nullptr);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == ENOBUFS) {
      events.emplace_back();  // kLost
      continue;
    }
    if (got <= 0) break;
    for (size_t i = 0; i < static_cast<size_t>(got); ++i) {
      // Only the kernel (port 0) is believed: any process may send to a netlink port.
      if (senders[i].nl_pid != 0) continue;
      const std::vector<ProcEvent> parsed =
          ParseProcEvents(std::string_view(buffers[i], messages[i].msg_len));
      events.insert(events.end(), parsed.begin(), parsed.end());
    }
    if (static_cast<size_t>(got) < kBatch) break;
  }
  // What came meanwhile rings at once.
  epoll_event again = {.events = kOnce, .data = {}};
  epoll_ctl(bell_.get(), EPOLL_CTL_MOD, fd_.get(), &again);
  return events;
}

}  // namespace headroom::sys
