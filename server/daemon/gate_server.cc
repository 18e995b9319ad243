#include "server/daemon/gate_server.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/policy/tool.h"
#include "server/sys/peer.h"
#include "server/sys/pidfd.h"
#include "server/sys/process.h"

namespace headroom::daemon {
namespace {

using gate::MessageType;
using policy::Bytes;
using policy::GateId;
using policy::LaneId;
using policy::ProcId;
using std::chrono::seconds;

// docs/protocol.md: at least 1024. The kernel cuts it to net.core.somaxconn (4096).
constexpr int kBacklog = 4096;
// Peers taken and messages read in one go: everybody gets a turn.
constexpr int kAcceptsAtOnce = 64;
constexpr int kReadsAtOnce = 16;
// The first message follows connect() at once; Started follows Admit within milliseconds. Both may
// be stopped (^Z) in between, and come back with a new connection after that.
constexpr seconds kFirstWithin{5};
constexpr seconds kStartWithin{10};
constexpr seconds kAskAgainWithin{60};  // killing and reaping a subtree takes time under pressure
constexpr auto kNoDescriptorsPause = std::chrono::milliseconds(100);

// Nobody's figures may overflow the policy's sums.
constexpr uint64_t kMostBytes = uint64_t{1} << 46;
constexpr uint32_t kMostCount = 1000;
constexpr uint32_t kMostAttempts = 1'000'000;

int64_t Clamp(uint64_t bytes) {
  return static_cast<int64_t>(std::min(bytes, kMostBytes));
}
int ClampCount(uint32_t count) {
  return static_cast<int>(std::min(count, kMostCount));
}

template <size_t kSize>
std::string Text(const char (&text)[kSize]) {
  return std::string(text, strnlen(text, kSize));
}

std::chrono::nanoseconds Microseconds(uint64_t us) {
  constexpr uint64_t kMost = uint64_t{1} << 50;  // 35 years
  return std::chrono::microseconds(static_cast<int64_t>(std::min(us, kMost)));
}

std::string Relative(const std::string& path, const std::string& cwd,
                     const std::string& build_dir) {
  if (path.empty() || build_dir.empty()) return path;
  std::string absolute = path;
  if (path.front() != '/') {
    if (cwd == build_dir || cwd.empty()) return path;
    absolute = absl::StrCat(cwd, "/", path);
  }
  if (absolute.size() > build_dir.size() + 1 && absolute.starts_with(build_dir) &&
      absolute[build_dir.size()] == '/') {
    return absolute.substr(build_dir.size() + 1);
  }
  return path;
}

std::string Size(int64_t bytes) {
  std::array<char, 32> text{};
  const double value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) {
    snprintf(text.data(), text.size(), "%.1f GiB", value / 1073741824.0);
  } else {
    snprintf(text.data(), text.size(), "%.0f MiB", std::max(1.0, value / 1048576.0));
  }
  return text.data();
}

}  // namespace

int64_t InputOf(const policy::Reason& reason, policy::Input input) {
  for (const policy::Reason::Value& value : reason.inputs) {
    if (value.input == input) return value.value;
  }
  return 0;
}

bool BlamesMemory(const policy::Reason& reason) {
  if (reason.code == policy::ReasonCode::kRetryOomKill) return true;
  return std::any_of(reason.inputs.begin(), reason.inputs.end(),
                     [](const auto& value) { return value.input == policy::Input::kOomKills; });
}

std::string OutOfMemoryLine(const std::string& tool, const std::string& source,
                            const policy::Reason& reason, const std::string& domain) {
  std::string line = tool;
  if (!source.empty()) absl::StrAppend(&line, " ", source);
  absl::StrAppend(&line, ": killed by the kernel for lack of memory");
  const int64_t kills = InputOf(reason, policy::Input::kOomKills);
  if (kills > 1) absl::StrAppend(&line, " ", kills, " times");
  const int64_t reached = InputOf(reason, policy::Input::kProcBytes);
  const int64_t need = std::max(reached, InputOf(reason, policy::Input::kNeedBytes));
  const int64_t limit = InputOf(reason, policy::Input::kLimitBytes);
  if (need > 0)
    absl::StrAppend(&line, "; it needs more than ", Size(std::max(reached, int64_t{1})));
  if (limit > 0) {
    absl::StrAppend(&line, need > 0 ? ", the limit is " : "; the limit is ", Size(limit));
    if (!domain.empty()) absl::StrAppend(&line, " (", domain, ")");
  }
  if (reason.code == policy::ReasonCode::kTooBig) absl::StrAppend(&line, "; nothing else ran");
  if (reason.code == policy::ReasonCode::kNotReplayable) {
    absl::StrAppend(&line, "; it can't be run again unseen");
  }
  return line;
}

bool IsForsaken(const sys::Roots& roots, const std::vector<Awaited>& awaited) {
  const auto lives = [&](const ProcId& proc) {
    const std::optional<sys::ProcStat> stat = sys::ReadProcStat(roots, proc.pid);
    return stat && stat->start_ticks == proc.start && stat->state != 'Z' && stat->state != 'X';
  };
  return std::any_of(awaited.begin(), awaited.end(),
                     [&](const Awaited& link) { return !lives(link.by) && lives(link.child); });
}

GateServer::GateServer(boost::asio::io_context& io, GateHost& host, const sys::Roots& roots)
    : io_(io),
      host_(host),
      roots_(roots),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      retry_(io),
      // One byte more than the largest: a longer packet shows.
      buffer_(sizeof(gate::Request) + 1) {}

GateServer::~GateServer() {
  Stop();
}

// --- Listening ----------------------------------------------------------------------------------

absl::Status GateServer::Listen(LaneId lane, const std::string& dir, uid_t uid) {
  const std::string path = absl::StrCat(dir, "/", gate::kGateSocketName);
  const sys::UniqueFd folder(open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return sys::ErrnoStatus(errno, absl::StrCat("cannot open ", dir));
  sys::UniqueFd socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_fd) return sys::ErrnoStatus(errno, "socket");
  // Through the folder's descriptor: a path may be longer than an address.
  const std::string fresh = absl::StrCat(gate::kGateSocketName, ".new");
  const std::string bind_to = absl::StrCat("/proc/self/fd/", folder.get(), "/", fresh);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(bind_to.begin(), bind_to.end(), address.sun_path);
  unlinkat(folder.get(), fresh.c_str(), 0);
  // Under another name until somebody listens: nobody finds a socket that refuses him.
  const mode_t before = umask(0177);
  const int bound = bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  const int bind_error = errno;
  umask(before);
  if (bound != 0) return sys::ErrnoStatus(bind_error, absl::StrCat("cannot make ", path));
  if (listen(socket_fd.get(), kBacklog) != 0 ||
      fchownat(folder.get(), fresh.c_str(), uid, static_cast<gid_t>(-1), AT_SYMLINK_NOFOLLOW) !=
          0 ||
      renameat(folder.get(), fresh.c_str(), folder.get(), gate::kGateSocketName) != 0) {
    const int error = errno;
    unlinkat(folder.get(), fresh.c_str(), 0);
    return sys::ErrnoStatus(error, absl::StrCat("cannot make ", path));
  }
  auto listener = std::make_unique<Listener>(Listener{
      lane, uid, path, boost::asio::posix::stream_descriptor(io_, socket_fd.Release()), 0});
  listeners_[lane] = std::move(listener);
  WaitForPeers(lane);
  return absl::OkStatus();
}

void GateServer::WaitForPeers(LaneId lane) {
  const auto listener = listeners_.find(lane);
  if (listener == listeners_.end()) return;
  listener->second->socket.async_wait(boost::asio::posix::descriptor_base::wait_read,
                                      [this, lane](boost::system::error_code error) {
                                        if (error) return;
                                        const auto there = listeners_.find(lane);
                                        if (there != listeners_.end()) Accept(*there->second);
                                      });
}

void GateServer::Accept(Listener& listener) {
  const LaneId lane = listener.lane;
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    int fd =
        accept4(listener.socket.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) break;
      // Everybody gets an answer: with the one descriptor that is kept for this.
      spare_.Reset();
      fd = accept4(listener.socket.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) {
        Refuse(fd, gate::RefuseReason::kBusy, 1);
        close(fd);
      }
      spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (fd >= 0) continue;
      retry_.expires_after(kNoDescriptorsPause);
      retry_.async_wait([this](boost::system::error_code error) {
        if (error) return;
        for (const auto& [id, there] : listeners_) WaitForPeers(id);
      });
      return;
    }
    if (listener.connections >= kMostConnections) {
      Refuse(fd, gate::RefuseReason::kBusy, 1);
      close(fd);
      continue;
    }
    const absl::StatusOr<sys::PeerCredentials> peer = sys::ReadPeerCredentials(fd);
    const std::optional<sys::ProcessId> who =
        peer.ok() && peer->pid > 0 ? sys::ReadProcessId(roots_, peer->pid) : std::nullopt;
    if (!who) {
      // Gone already, or of a pid namespace that we can't see.
      Refuse(fd, gate::RefuseReason::kClosing, 1);
      close(fd);
      continue;
    }
    if (peer->uid != listener.uid) {
      gate::Simple pass{};
      pass.header = {gate::kGateMagic, gate::kGateVersion,
                     static_cast<uint16_t>(MessageType::kPass), sizeof pass, 1};
      send(fd, &pass, sizeof pass, MSG_NOSIGNAL | MSG_DONTWAIT);
      close(fd);
      continue;
    }
    const GateId id = NextId();
    auto connection = std::make_unique<Connection>(
        Connection{.id = id,
                   .lane = lane,
                   .socket = boost::asio::posix::stream_descriptor(io_, fd),
                   .keeper = ProcId{who->pid, who->start_ticks},
                   .since = host_.Now()});
    Connection& there = *connections_.emplace(id, std::move(connection)).first->second;
    keepers_[there.keeper] = id;
    ++listener.connections;
    host_.OnWaits(there.keeper);
    // What it says has mostly come already.
    Read(id);
    if (!listeners_.contains(lane)) return;
  }
  WaitForPeers(lane);
}

void GateServer::CloseLane(LaneId lane) {
  const auto listener = listeners_.find(lane);
  if (listener == listeners_.end()) return;
  std::vector<GateId> ids;
  for (const auto& [id, connection] : connections_) {
    if (connection->lane == lane) ids.push_back(id);
  }
  for (const GateId id : ids) Close(id);
  unlink(listener->second->path.c_str());
  listeners_.erase(listener);
}

void GateServer::Stop() {
  // The sockets stay where they are: a daemon that comes back replaces them, and until then a
  // connect() is refused, as it should be.
  retry_.cancel();
  for (auto& [id, connection] : connections_) DropWorker(*connection);
  connections_.clear();
  keepers_.clear();
  listeners_.clear();
}

// --- One connection -----------------------------------------------------------------------------

void GateServer::Enter(Connection& connection, Phase phase) {
  connection.phase = phase;
  connection.since = host_.Now();
}

void GateServer::Wait(Connection& connection) {
  connection.socket.async_wait(boost::asio::posix::descriptor_base::wait_read,
                               [this, id = connection.id](boost::system::error_code error) {
                                 if (!error) Read(id);
                               });
}

void GateServer::Read(GateId id) {
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = *found->second;
    const ssize_t size = recv(connection.socket.native_handle(), buffer_.data(), buffer_.size(),
                              MSG_DONTWAIT | MSG_TRUNC);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    // It closed with something unread: what it had sent before comes after this.
    if (size < 0 && errno == ECONNRESET) continue;
    if (size <= 0 || static_cast<size_t>(size) > buffer_.size() ||
        !Handle(connection, buffer_.data(), static_cast<size_t>(size))) {
      return Close(id);
    }
  }
  if (const auto found = connections_.find(id); found != connections_.end()) Wait(*found->second);
}

void GateServer::Close(GateId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  DropWorker(*connection);
  if (const auto keeper = keepers_.find(connection->keeper);
      keeper != keepers_.end() && keeper->second == id) {
    keepers_.erase(keeper);
  }
  if (const auto listener = listeners_.find(connection->lane); listener != listeners_.end()) {
    --listener->second->connections;
  }
  boost::system::error_code ignored;
  connection->socket.close(ignored);
  if (connection->phase != Phase::kNew && connection->phase != Phase::kOver) {
    host_.Emit(policy::GateGone{id});
  }
}

template <typename Message>
bool GateServer::Send(Connection& connection, Message message, MessageType type) {
  message.header = {gate::kGateMagic, gate::kGateVersion, static_cast<uint16_t>(type),
                    sizeof message, connection.attempt};
  const ssize_t sent = send(connection.socket.native_handle(), &message, sizeof message,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(sizeof message)) return true;
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    // It has closed. What it had said before is still to be read: the reader ends it.
    return true;
  }
  // It doesn't read. Later, as callers may be in the midst of using it.
  boost::asio::post(io_, [this, id = connection.id] { Close(id); });
  return false;
}

void GateServer::Refuse(int socket, gate::RefuseReason reason, uint32_t attempt) {
  gate::Refuse message{};
  message.header = {gate::kGateMagic, gate::kGateVersion,
                    static_cast<uint16_t>(MessageType::kRefuse), sizeof message, attempt};
  message.reason = static_cast<uint32_t>(reason);
  message.version = gate::kGateVersion;
  send(socket, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool GateServer::Handle(Connection& connection, const void* data, size_t size) {
  gate::Header header;
  if (size < sizeof header) return false;
  std::memcpy(&header, data, sizeof header);
  if (header.magic != gate::kGateMagic || header.size != size) return false;
  if (header.version != gate::kGateVersion) {
    Refuse(connection.socket.native_handle(), gate::RefuseReason::kVersion, header.attempt);
    return false;
  }
  const auto read = [&](auto* message) {
    if (size != sizeof *message) return false;
    std::memcpy(message, data, sizeof *message);
    return true;
  };
  const MessageType type = static_cast<MessageType>(header.type);
  const bool opens = type == MessageType::kRequest || type == MessageType::kReregister;
  if (connection.phase == Phase::kNew && !opens) return false;
  if (!opens && header.attempt != connection.attempt) return true;  // of a past attempt
  switch (type) {
    case MessageType::kRequest:
    case MessageType::kReregister: {
      // 19 KiB: not on the stack of every other message.
      const auto request = std::make_unique<gate::Request>();
      if (!read(request.get()) || header.attempt == 0 || header.attempt > kMostAttempts) {
        return false;
      }
      if (connection.phase == Phase::kNew) {
        connection.attempt = header.attempt;
      } else if (connection.phase == Phase::kAgain && type == MessageType::kRequest &&
                 header.attempt == connection.attempt + 1) {
        connection.attempt = header.attempt;
      } else {
        return false;
      }
      const gate::KeeperState state = static_cast<gate::KeeperState>(request->state);
      const bool runs = type == MessageType::kReregister && (state == gate::KeeperState::kRunning ||
                                                             state == gate::KeeperState::kFrozen);
      return OnRequest(connection, *request, runs);
    }
    case MessageType::kStarted: {
      gate::Started started;
      return read(&started) && OnStarted(connection, started);
    }
    case MessageType::kEnded: {
      gate::Ended ended;
      return read(&ended) && OnEnded(connection, ended);
    }
    case MessageType::kFrozen:
    case MessageType::kThawed: {
      gate::Simple simple;
      return read(&simple);
    }
    case MessageType::kPing: {
      gate::Simple ping;
      if (!read(&ping)) return false;
      Send(connection, ping, MessageType::kPong);
      return true;
    }
    case MessageType::kAdmit:
    case MessageType::kPass:
    case MessageType::kEvict:
    case MessageType::kFreeze:
    case MessageType::kThaw:
    case MessageType::kVerdict:
    case MessageType::kPong:
    case MessageType::kRefuse:
      break;
  }
  return false;
}

policy::ToolInfo GateServer::Describe(const gate::Request& request,
                                      const std::string& build_dir) const {
  policy::ToolInfo info;
  const size_t bytes = std::min<size_t>(request.args_bytes, sizeof request.args);
  const std::vector<std::string> argv = sys::ParseCmdline(std::string_view(request.args, bytes));
  const std::string named = Text(request.tool);
  const policy::Command command =
      policy::Recognise(argv.empty() ? std::string_view(named) : sys::Basename(argv[0]), argv);
  // A tool that only the user's list knows has its own name.
  info.tool = command.role == policy::Role::kTool ? command.name : named;
  const std::string source = command.source.empty() ? Text(request.source) : command.source;
  info.source = Relative(source, Text(request.cwd), build_dir);
  info.flags_hash = policy::FlagsHash(argv);
  // The one that is compiled; a linker's are all that it links.
  uint64_t all = 0;
  uint64_t preprocessed = 0;
  for (const gate::InputSize& input : request.inputs) {
    const uint64_t input_bytes = std::min(input.bytes, kMostBytes);
    const std::string suffix = Text(input.suffix);
    all += input_bytes;
    if (suffix == "ii" || suffix == "i" || suffix == "ptx") preprocessed += input_bytes;
  }
  info.input_bytes = Clamp(preprocessed > 0 ? preprocessed : all);
  return info;
}

bool GateServer::OnRequest(Connection& connection, const gate::Request& request, bool runs) {
  const Placement place = host_.PlaceOf(connection.lane, connection.keeper.pid);
  connection.info = Describe(request, place.build_dir);
  connection.domain = host_.DomainOf(connection.lane, connection.keeper.pid);
  connection.job = place.job;
  connection.awaited = place.awaited;
  if (connection.exe_bytes == 0) {
    struct stat exe {};
    const std::string path = absl::StrCat(roots_.proc, "/", connection.keeper.pid, "/exe");
    if (stat(path.c_str(), &exe) == 0 && S_ISREG(exe.st_mode)) connection.exe_bytes = exe.st_size;
  }
  policy::GateRequest event;
  event.gate = connection.id;
  event.lane = connection.lane;
  event.domain = connection.domain;
  event.keeper = connection.keeper;
  connection.ancestors = place.ancestors;
  event.under = GateAbove(place.ancestors);
  event.info = connection.info;
  event.replayable = request.replay == static_cast<uint32_t>(gate::Replay::kReplayable);
  event.attempt = static_cast<int>(connection.attempt);
  event.floor = Bytes{Clamp(request.floor_bytes)};
  event.evictions = ClampCount(request.evictions);
  event.oom_kills = ClampCount(request.oom_kills);
  event.other_kills = ClampCount(request.other_kills);
  event.job = connection.job;
  connection.frozen = false;
  if (runs) {
    const ProcId worker = CheckWorker(connection, request.worker_pid, request.worker_start);
    // Its end is on its way, or it is nobody that we may watch.
    if (!worker) return false;
    event.worker = worker;
    Enter(connection, Phase::kRunning);
    SetWorker(connection, worker);
    host_.Emit(std::move(event));
    host_.OnWorker(connection.lane, worker, connection.job);
    PlaceBelow(connection);
    return true;
  }
  Enter(connection, Phase::kWaiting);
  connection.asked = event;
  host_.Emit(std::move(event));
  return true;
}

void GateServer::PlaceBelow(const Connection& above) {
  // After a daemon's restart waiters come back before the running tools that wait for them. A
  // waiter that nobody is seen to wait for may wait for its own parent to end: for ever.
  std::vector<GateId> below;
  for (const auto& [id, connection] : connections_) {
    if (connection->phase != Phase::kWaiting) continue;
    const std::vector<pid_t>& ancestors = connection->ancestors;
    if (std::find(ancestors.begin(), ancestors.end(), above.keeper.pid) != ancestors.end()) {
      below.push_back(id);
    }
  }
  for (const GateId id : below) {
    const auto found = connections_.find(id);
    if (found == connections_.end() || found->second->phase != Phase::kWaiting) continue;
    Connection& connection = *found->second;
    const GateId under = GateAbove(connection.ancestors);
    if (under == connection.asked.under) continue;
    connection.asked.under = under;
    host_.Emit(policy::GateGone{id});
    host_.Emit(connection.asked);
  }
}

ProcId GateServer::CheckWorker(const Connection& connection, int32_t pid, uint64_t start) const {
  const auto check = [&](pid_t candidate) -> ProcId {
    const std::optional<sys::ProcStat> stat = sys::ReadProcStat(roots_, candidate);
    if (!stat || stat->ppid != connection.keeper.pid) return {};
    if (start != 0 && stat->start_ticks != start) return {};
    return ProcId{stat->pid, stat->start_ticks};
  };
  if (pid > 0) {
    if (const ProcId worker = check(pid)) return worker;
  }
  // Its numbers may be of another pid namespace. Its child, then, in ours.
  const absl::StatusOr<std::string> children = sys::ReadFile(absl::StrCat(
      roots_.proc, "/", connection.keeper.pid, "/task/", connection.keeper.pid, "/children"));
  if (!children.ok() || start == 0) return {};
  const char* at = children->c_str();
  for (int i = 0; i < 64; ++i) {
    char* end = nullptr;
    const long child = strtol(at, &end, 10);
    if (end == at || child <= 0) break;
    at = end;
    if (const ProcId worker = check(static_cast<pid_t>(child))) return worker;
  }
  return {};
}

void GateServer::SetWorker(Connection& connection, const ProcId& worker) {
  connection.worker = worker;
  if (!worker) return;
  workers_[worker] = connection.id;
  worker_pids_[worker.pid] = connection.id;
}

std::optional<int64_t> GateServer::DropWorker(Connection& connection) {
  connection.frozen = false;
  if (!connection.worker) return std::nullopt;
  const ProcId worker = std::exchange(connection.worker, ProcId{});
  workers_.erase(worker);
  if (const auto pid = worker_pids_.find(worker.pid);
      pid != worker_pids_.end() && pid->second == connection.id) {
    worker_pids_.erase(pid);
  }
  return host_.OnWorkerGone(worker);
}

bool GateServer::OnStarted(Connection& connection, const gate::Started& started) {
  if (connection.phase != Phase::kAdmitted) return false;
  if ((started.flags & gate::kStartedNoKeeper) != 0) {
    host_.OnUnsupervised(connection.keeper);
    return false;
  }
  // None: it has ended already, and Ended follows.
  const ProcId worker = CheckWorker(connection, started.worker_pid, started.worker_start);
  Enter(connection, Phase::kRunning);
  SetWorker(connection, worker);
  host_.Emit(policy::GateStarted{connection.id, worker});
  if (worker) host_.OnWorker(connection.lane, worker, connection.job);
  return true;
}

bool GateServer::OnEnded(Connection& connection, const gate::Ended& ended) {
  if (connection.phase != Phase::kRunning && connection.phase != Phase::kAdmitted &&
      connection.phase != Phase::kWaiting) {
    return false;
  }
  policy::GateEnded event;
  event.gate = connection.id;
  event.cpu = Microseconds(ended.user_us) + Microseconds(ended.system_us);
  // ru_maxrss has the mapped parts of files in it, which the kernel can drop.
  const int64_t resident = Clamp(ended.max_rss_bytes);
  const std::optional<int64_t> files = DropWorker(connection);
  const int64_t mapped = files ? *files : std::min(connection.exe_bytes, resident / 2);
  event.peak = Bytes{std::max<int64_t>(0, resident - mapped)};
  Phase next = Phase::kOver;
  if ((ended.flags & gate::kEndedEvicted) != 0) {
    event.end = policy::GateEnd::kEvicted;
    event.code = SIGKILL;
    next = Phase::kAgain;
  } else if (WIFEXITED(ended.wait_status)) {
    event.end = policy::GateEnd::kExit;
    event.code = WEXITSTATUS(ended.wait_status);
  } else {
    event.code = WIFSIGNALED(ended.wait_status) ? WTERMSIG(ended.wait_status) : 0;
    event.end = policy::GateEnd::kSignal;
    if ((ended.flags & gate::kEndedWantsVerdict) != 0) {
      event.end = policy::GateEnd::kKilled;
      next = Phase::kVerdict;
      // So that the policy sees a counter that has risen.
      if (event.code == SIGKILL) host_.SampleDomains();
    }
  }
  Enter(connection, next);
  host_.Emit(std::move(event));
  return true;
}

// --- Actions ------------------------------------------------------------------------------------

bool GateServer::Admit(const policy::Admit& action) {
  const auto found = connections_.find(action.gate);
  if (found == connections_.end()) return false;
  Connection& connection = *found->second;
  if (connection.phase != Phase::kWaiting) return true;
  gate::Admit message{};
  message.predicted_bytes =
      static_cast<uint64_t>(std::max<int64_t>(0, action.predicted_peak.count));
  Enter(connection, Phase::kAdmitted);
  Send(connection, message, MessageType::kAdmit);
  return true;
}

bool GateServer::Evict(const policy::Evict& action) {
  const auto found = connections_.find(action.gate);
  if (found == connections_.end()) return false;
  if (found->second->phase != Phase::kRunning) return true;  // its end is on its way
  gate::Simple message{};
  message.value = static_cast<uint64_t>(std::max<int64_t>(0, action.floor.count));
  Send(*found->second, message, MessageType::kEvict);
  return true;
}

bool GateServer::Verdict(const policy::Verdict& action, bool oom, const std::string& line) {
  const auto found = connections_.find(action.gate);
  if (found == connections_.end()) return false;
  Connection& connection = *found->second;
  if (connection.phase != Phase::kVerdict) return true;  // nobody asked
  gate::Verdict message{};
  message.decision =
      static_cast<uint32_t>(action.again ? gate::Decision::kRetry : gate::Decision::kMirror);
  message.flags = oom ? gate::kVerdictOom : 0;
  message.floor_bytes = static_cast<uint64_t>(std::max<int64_t>(0, action.floor.count));
  const size_t size = std::min(line.size(), sizeof message.line - 1);
  std::memcpy(message.line, line.data(), size);
  Enter(connection, action.again ? Phase::kAgain : Phase::kOver);
  Send(connection, message, MessageType::kVerdict);
  return true;
}

bool GateServer::Freeze(const ProcId& worker) {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return false;
  Connection& connection = *connections_.at(found->second);
  connection.frozen = true;
  Send(connection, gate::Simple{}, MessageType::kFreeze);
  return true;
}

bool GateServer::Thaw(const ProcId& worker) {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return false;
  Connection& connection = *connections_.at(found->second);
  connection.frozen = false;
  Send(connection, gate::Simple{}, MessageType::kThaw);
  return true;
}

// --- Looking ------------------------------------------------------------------------------------

std::optional<GateServer::Tool> GateServer::Find(GateId gate) const {
  const auto found = connections_.find(gate);
  if (found == connections_.end()) return std::nullopt;
  const Connection& connection = *found->second;
  return Tool{connection.lane, connection.domain, connection.info.tool, connection.info.source,
              connection.worker};
}

bool GateServer::IsFrozen(const ProcId& worker) const {
  const auto found = workers_.find(worker);
  return found != workers_.end() && connections_.at(found->second)->frozen;
}

GateId GateServer::GateAbove(const std::vector<pid_t>& ancestors) const {
  for (const pid_t pid : ancestors) {
    if (const auto worker = worker_pids_.find(pid); worker != worker_pids_.end()) {
      return worker->second;
    }
    // A worker's child may ask before its keeper has told of the worker.
    const auto keeper = keepers_.lower_bound(ProcId{pid, 0});
    if (keeper == keepers_.end() || keeper->first.pid != pid) continue;
    const auto found = connections_.find(keeper->second);
    if (found == connections_.end()) continue;
    const Phase phase = found->second->phase;
    if (phase == Phase::kAdmitted || phase == Phase::kRunning) return keeper->second;
  }
  return GateId::kNone;
}

void GateServer::Tend() {
  const policy::Time now = host_.Now();
  std::vector<GateId> over;
  for (const auto& [id, connection] : connections_) {
    const policy::Duration age = now - connection->since;
    switch (connection->phase) {
      case Phase::kNew:
        if (age > kFirstWithin) over.push_back(id);
        break;
      case Phase::kAdmitted:
      case Phase::kVerdict:
      case Phase::kOver:
        if (age > kStartWithin) over.push_back(id);
        break;
      case Phase::kAgain:
        if (age > kAskAgainWithin) over.push_back(id);
        break;
      case Phase::kWaiting:
      case Phase::kRunning:
        break;
    }
  }
  for (const GateId id : over) Close(id);
}

void GateServer::EndForsaken() {
  for (const auto& [id, connection] : connections_) {
    if (connection->phase != Phase::kWaiting || !IsForsaken(roots_, connection->awaited)) continue;
    const absl::StatusOr<sys::PidFd> keeper =
        sys::PidFd::Open(roots_, {connection->keeper.pid, connection->keeper.start});
    if (!keeper.ok()) continue;  // its end is on its way
    if (!connection->told_to_end) {
      spdlog::info("nobody is there any more for {} {}, which waits at the gate: it ends",
                   connection->info.tool, connection->keeper.pid);
    }
    keeper->Send(std::exchange(connection->told_to_end, true) ? SIGKILL : SIGTERM).IgnoreError();
  }
}

}  // namespace headroom::daemon
