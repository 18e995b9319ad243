#include "client/preload/keeper.h"

#include "client/preload/proc.h"
#include "client/preload/slots.h"
#include "client/preload/syscalls.h"
#include "proto/headroom/v1/gate_wire.h"

// The program's C library, if it has one under this name. Weak and without a version: absent is
// fine.
extern "C" __attribute__((weak)) int fork();

namespace headroom::preload {
namespace {

using gate::Decision;
using gate::KeeperState;
using gate::MessageType;
using gate::Replay;

constexpr auto& kKeeperName = gate::kGateKeeperName;
static_assert(sizeof(kKeeperName) <= 16);  // What /proc/PID/comm holds.

constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMillisecond;

// A daemon that nobody listens for: so long it may take to come back (a restart takes 0.1 s to 1 s)
// before the lane's own rule takes over. The first process goes within 2 s.
constexpr uint64_t kDeadGrace = 1500 * kMillisecond;
// Where someone else has just found the daemon silent, an answer may take only so long.
constexpr uint64_t kKnownSilentGrace = 300 * kMillisecond;
constexpr uint64_t kReconnectFast = 50 * kMillisecond;
constexpr uint64_t kReconnectSlow = kSecond;
// A listener whose queue is full: try again soon, it is alive.
constexpr uint64_t kReconnectBusy = 10 * kMillisecond;
// A daemon of another version doesn't change while we wait.
constexpr uint64_t kReconnectRefused = 30 * kSecond;
// Without a daemon: how often a waiter looks at the door, first and at most.
constexpr uint64_t kFirstLook = 5 * kMillisecond;
constexpr uint64_t kLastLook = 250 * kMillisecond;

// The design's table: deaths for memory in all, and deaths without a reason.
constexpr uint32_t kMostOomKills = 5;
constexpr uint32_t kMostOtherKills = 2;
// From this one on it runs alone.
constexpr uint32_t kAloneAfterOomKills = 2;

// The kernel takes the worker first when memory runs out, unless something else is both larger and
// as willing. Not 1000: that would put it before processes that someone else has marked so.
constexpr uint64_t kWorkerOomScore = 800;

constexpr int kLimitCore = 4;  // RLIMIT_CORE

// Signals that the terminal's driver sends to a whole process group.
constexpr sys::SignalSet kFromTerminal = sys::Bit(sys::kSigInt) | sys::Bit(sys::kSigQuit) |
                                         sys::Bit(sys::kSigHup) | sys::Bit(sys::kSigWinch) |
                                         sys::Bit(sys::kSigTstp) | sys::Bit(sys::kSigTtin) |
                                         sys::Bit(sys::kSigTtou);
constexpr sys::SignalSet kStops =
    sys::Bit(sys::kSigTstp) | sys::Bit(sys::kSigTtin) | sys::Bit(sys::kSigTtou);
// Signals whose default action doesn't end a process.
constexpr uint32_t kSigUrg = 23;
constexpr sys::SignalSet kHarmless = kStops | sys::Bit(sys::kSigChild) | sys::Bit(sys::kSigCont) |
                                     sys::Bit(sys::kSigWinch) | sys::Bit(kSigUrg);

bool Exited(int status) {
  return (status & 0x7f) == 0;
}
int ExitCode(int status) {
  return status >> 8 & 0xff;
}
bool Stopped(int status) {
  return (status & 0xff) == 0x7f;
}
int StopSignal(int status) {
  return status >> 8 & 0xff;
}
int EndSignal(int status) {
  return status & 0x7f;
}

uint64_t Microseconds(uint64_t nanoseconds) {
  return Divide(nanoseconds, 1000).value;
}

template <typename Duration>
uint64_t Microseconds(const Duration& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000u + static_cast<uint64_t>(time.tv_usec);
}

FileType LookAtFile(void*, View path, uint64_t* size) {
  char text[1100];
  Writer writer(text, sizeof(text));
  writer << path;
  sys::FileInfo info;
  if (writer.cut() || sys::StatPath(text, &info) != 0) return FileType::kNone;
  *size = info.size;
  switch (info.mode & sys::kTypeMask) {
    case sys::kTypeRegular:
      return FileType::kRegular;
    case sys::kTypeFifo:
      return FileType::kFifo;
    case sys::kTypeSocket:
      return FileType::kSocket;
    default:
      return FileType::kOther;
  }
}

// A fork that the program's C library notices as little as possible: it keeps its thread's id in
// memory, and asks the kernel to update that. Single-threaded processes only.
int Fork() {
  constexpr int kGetTidAddress = 40;  // PR_GET_TID_ADDRESS; needs checkpoint/restore support
  int* tid = nullptr;
  const sys::Word status = sys::Prctl(kGetTidAddress, sys::Pointer(&tid));
  if ((status < 0 || tid == nullptr) && &fork != nullptr) {
    const int child = fork();
    return child < 0 ? -EAGAIN : child;
  }
  void* robust = nullptr;
  size_t robust_size = 0;
  sys::Call(__NR_get_robust_list, 0, sys::Pointer(&robust), sys::Pointer(&robust_size));
  const int self = sys::GetPid();
  constexpr sys::Word kChildSignal = sys::kSigChild;
  const int child =
      tid == nullptr
          ? sys::Clone(kChildSignal, nullptr)
          : sys::Clone(kChildSignal | sys::kCloneChildSetTid | sys::kCloneChildClearTid, tid);
  if (child != 0) return child;
  if (robust != nullptr) {
    sys::Call(__NR_set_robust_list, sys::Pointer(robust), static_cast<sys::Word>(robust_size));
  }
  // glibc before 2.25 also kept the process's id, right behind, and answers getpid() with it.
  if (tid != nullptr && tid[1] == self) tid[1] = sys::GetPid();
  return 0;
}

struct KillList {
  int signal;
  size_t count;
};

void SignalOne(void* context, int pid) {
  KillList* list = static_cast<KillList*>(context);
  if (sys::Kill(pid, list->signal) == 0) ++list->count;
}

class Gate {
 public:
  Gate(const Environment& environment, const Tool& tool) : environment_(environment), tool_(tool) {}

  void Pass();

 private:
  enum class Wait : uint8_t { kAdmitted, kPassThrough };

  bool Prepare();
  void ReadCommand();
  void ReadArguments(void (*use)(Gate* gate, char* text, size_t size, bool whole));

  Wait AwaitAdmission();
  bool StartWorker();
  bool Split();
  void Unsplit();
  void BecomeWorker();
  void BecomeKeeper();
  void CloseOthers();
  void Supervise();
  void Judge();
  bool AskForVerdict(uint32_t flags, bool oom);
  void DecideAlone(bool oom);
  void PrepareReplay();
  [[noreturn]] void Mirror();

  void PollOnce(uint64_t nanoseconds);
  void ReadSignals();
  void OnSignal(const sys::SignalInfo& info);
  void ReapChildren();
  void OnStopped(int signal);
  void StopSelf(int signal);
  void ReadMessages();
  void OnMessage(const unsigned char* data, size_t size);

  void Connect(uint64_t now);
  void Disconnect();
  void OnLost();
  bool Send(void* message, size_t size, MessageType type);
  void SendSimple(MessageType type, uint64_t value);
  void SendRequest(MessageType type, KeeperState state);
  void SendEnded(uint32_t flags);

  void Freeze();
  void Thaw();
  void Evict();
  size_t KillSubtree();
  void Print(View line);
  void PrintOomLine();
  bool OomSeen();
  uint64_t Need() const;

  const Environment& environment_;
  const Tool& tool_;

  // What this process is; fixed before the first attempt.
  char name_[16] = {};  // /proc/self/comm, for later workers
  char lane_[1024] = {};
  char source_[1024] = {};
  gate::InputSize inputs_[gate::kGateInputs] = {};
  uint32_t input_count_ = 0;
  uint64_t prior_ = 0;  // bytes
  Replay replay_ = Replay::kReplayable;
  bool stdin_rewinds_ = false;
  int64_t stdin_offset_ = 0;
  bool nested_ = false;
  bool nested_known_ = false;
  int keeper_pid_ = 0;
  Slots slots_;
  MemoryCgroup cgroup_;

  // What its attempts have shown.
  uint32_t attempt_ = 1;
  uint32_t past_flags_ = 0;  // gate::kRequestWas...
  uint64_t floor_ = 0;       // bytes
  uint64_t predicted_ = 0;   // bytes
  uint32_t evictions_ = 0;
  uint32_t oom_kills_ = 0;
  uint32_t other_kills_ = 0;
  uint64_t waited_ns_ = 0;
  bool alone_ = false;

  // The connection.
  int socket_ = -1;
  bool heard_ = false;         // by this connection
  uint64_t heard_at_ = 0;      // ns
  uint64_t ping_at_ = 0;       // ns; 0: none unanswered
  uint64_t next_connect_ = 0;  // ns
  bool table_full_ = false;    // no descriptor for a socket
  bool fall_back_ = false;     // the lane's own rule holds
  bool admitted_ = false;
  bool pass_ = false;
  bool unreachable_ = false;  // the socket can't be used whatever time passes
  bool have_verdict_ = false;
  Decision verdict_ = Decision::kMirror;
  uint32_t verdict_flags_ = 0;
  bool verdict_line_ = false;

  // The worker.
  int worker_ = 0;
  uint64_t worker_start_ = 0;  // clock ticks since boot
  uint32_t* held_ = nullptr;   // shared word that holds a worker forked before its admission
  uint64_t started_at_ = 0;    // ns
  bool ended_ = false;
  int status_ = 0;
  struct rusage usage_ = {};
  bool evicting_ = false;
  bool frozen_ = false;
  uint64_t frozen_at_ = 0;  // ns
  uint64_t frozen_ns_ = 0;
  bool oom_known_ = false;
  uint64_t oom_before_ = 0;
  uint64_t oom_recent_ = 0;  // as of the last look but one, while nobody else watches
  uint32_t killed_ = 0;

  // The keeper's own signals.
  bool keeper_ = false;  // this process has become one
  int signals_ = -1;     // signalfd, while a worker exists
  sys::SignalSet seen_ = 0;
  sys::SignalSet old_mask_ = 0;
  sys::Action old_child_;
};

// --- Before the first attempt -------------------------------------------------------------------

bool Gate::Prepare() {
  sys::FileInfo info;
  Copy(environment_.lane, lane_);
  // No such folder: the build is over, or this is another file system. Not ours any more.
  if (environment_.lane.size >= sizeof(lane_) || lane_[0] != '/' ||
      sys::StatPath(lane_, &info) != 0 || (info.mode & sys::kTypeMask) != sys::kTypeDirectory) {
    return false;
  }
  char text[4096];
  const Status status = ParseStatus(ReadFile("/proc/self/status", text, sizeof(text)));
  // A debugger would lose its process to the fork; threads would not survive it.
  if (!status.known || status.tracer != 0 || status.threads != 1) {
    // A full descriptor table can't open /proc either: then only one thread can be hoped for, which
    // is so for every program that hasn't reached its main().
    const int probe = sys::Open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (probe >= 0) sys::Close(probe);
    if (status.known || probe != -EMFILE) return false;
  }
  // A worker that replaced itself by another program is still under its keeper.
  if (HasName(sys::GetParentPid(), kKeeperName)) return false;

  keeper_pid_ = sys::GetPid();
  sys::Prctl(PR_GET_NAME, sys::Pointer(name_));
  ReadCommand();
  return true;
}

// argv as the kernel keeps it: also there where the C library passes none to constructors.
void Gate::ReadArguments(void (*use)(Gate*, char*, size_t, bool)) {
  constexpr size_t kSize = 4u << 20;  // Above the kernel's own limit for most; touched as used.
  char* text =
      static_cast<char*>(sys::Map(kSize, sys::kProtRead | sys::kProtWrite,
                                  sys::kMapPrivate | sys::kMapAnonymous | sys::kMapNoReserve));
  if (text == nullptr) return use(this, nullptr, 0, false);
  const View all = ReadFile("/proc/self/cmdline", text, kSize / 2);
  use(this, text, all.size, all.size + 1 < kSize / 2);
  sys::Unmap(text, kSize);
}

void Gate::ReadCommand() {
  ReadArguments([](Gate* gate, char* text, size_t size, bool) {
    CommandReader reader(gate->tool_, {LookAtFile, nullptr});
    reader.AddArguments(View(text, size));
    // Response files go behind the arguments, in the same memory.
    constexpr size_t kMostResponse = 256 * 1024;
    char* room = text == nullptr ? nullptr : text + size + 1;
    for (size_t i = 0; room != nullptr && !reader.Response(i).empty(); ++i) {
      char path[1100];
      Writer(path, sizeof(path)) << reader.Response(i);
      const View words = ReadFile(path, room, kMostResponse);
      reader.AddResponse(room, words.size);
      room += words.size + 1;
    }
    const Command command = reader.Finish();
    gate->pass_ = !command.gate;
    gate->replay_ = command.replay;
    // A link with -flto runs a make below it, which takes tokens that die with it.
    if (gate->tool_.kind == ToolKind::kLinker &&
        Find(gate->environment_.collect, View("-flto")) != kNotFound &&
        gate->environment_.makeflags != nullptr &&
        Find(View(*gate->environment_.makeflags), View("--jobserver")) != kNotFound) {
      gate->replay_ = Replay::kHoldsTokens;
    }
    Copy(command.source, gate->source_);
    for (size_t i = 0; i < gate::kGateInputs; ++i) gate->inputs_[i] = command.inputs[i];
    gate->input_count_ = command.input_count;
    gate->prior_ = PriorPeak(gate->tool_, command.input_bytes);

    sys::FileInfo info;
    constexpr uint64_t kNullDevice = 0x103;  // Major 1, minor 3.
    const auto is_null = [&info] {
      return (info.mode & sys::kTypeMask) == sys::kTypeCharacter && info.special == kNullDevice;
    };
    if (sys::StatDescriptor(0, &info) == 0) {
      if ((info.mode & sys::kTypeMask) == sys::kTypeRegular) {
        gate->stdin_offset_ = sys::Seek(0, 0, 1 /* SEEK_CUR */);
        gate->stdin_rewinds_ = gate->stdin_offset_ >= 0;
      } else if (command.reads_stdin && !is_null() &&
                 // A tool of which nothing is known may read its stdin. From a terminal it hardly
                 // does: every command of an interactive shell has one there.
                 !(gate->tool_.kind == ToolKind::kOther &&
                   (info.mode & sys::kTypeMask) == sys::kTypeCharacter)) {
        gate->replay_ = Replay::kStdinStream;
      }
    }
    if (command.writes_stdout && sys::StatDescriptor(1, &info) == 0 && !is_null()) {
      gate->replay_ = Replay::kOutputStream;
    }
  });
  // Children from before this program was put in the process's place. waitid() with WNOWAIT only
  // looks.
  unsigned char child[128] = {};
  constexpr int kAny = 0;  // P_ALL
  const sys::Word children =
      sys::Call(__NR_waitid, kAny, 0, sys::Pointer(child), WNOHANG | WEXITED | WNOWAIT, 0);
  if (children == 0) replay_ = Replay::kHasChildren;
}

// --- The connection -----------------------------------------------------------------------------

void Gate::Connect(uint64_t now) {
  sys::Address address;
  Writer path(address.path, sizeof(address.path));
  path << lane_ << "/" << gate::kGateSocketName;
  int folder = -1;
  if (path.cut()) {
    // Longer than an address may be: through the folder's descriptor.
    constexpr int kPathOnly = 010000000;  // O_PATH
    folder = sys::Open(lane_, kPathOnly | O_DIRECTORY | O_CLOEXEC);
    Writer(address.path, sizeof(address.path))
        << "/proc/self/fd/" << static_cast<uint64_t>(folder) << "/" << gate::kGateSocketName;
  }
  socket_ = sys::Socket();
  // One descriptor there always is, or the program could not have been loaded. The gate wants some
  // more at times, and in the worker they must all be free again.
  bool short_of_descriptors = socket_ == -EMFILE || socket_ == -ENFILE;
  if (!keeper_ && socket_ >= 0) {
    constexpr size_t kWanted = 4;  // A folder and a file in it, the door, a slot.
    sys::Word spare[kWanted];
    for (sys::Word& fd : spare) {
      fd = sys::Fcntl(socket_, F_DUPFD_CLOEXEC, 0);
      short_of_descriptors |= fd < 0;
    }
    for (const sys::Word fd : spare) {
      if (fd >= 0) sys::Close(static_cast<int>(fd));
    }
    if (short_of_descriptors) {
      sys::Close(socket_);
      socket_ = -EMFILE;
    }
  }
  table_full_ = short_of_descriptors;
  sys::Word status = socket_;
  if (socket_ >= 0) {
    status = sys::Connect(socket_, &address);
    if (status != 0) sys::Close(socket_);
  }
  if (folder >= 0) sys::Close(folder);
  if (status < 0) {
    socket_ = -1;
    switch (status) {
      case -EAGAIN:
        next_connect_ = now + kReconnectBusy;
        break;
      case -ENOENT:
      case -ECONNREFUSED:
        next_connect_ = now + (fall_back_ || worker_ > 0 ? kReconnectSlow : kReconnectFast) +
                        uint64_t{Jitter(20)} * kMillisecond;
        break;
      default:
        unreachable_ = true;
        next_connect_ = now + kReconnectRefused;
        break;
    }
    return;
  }
  heard_ = false;
  heard_at_ = now;
  ping_at_ = 0;
}

void Gate::Disconnect() {
  if (socket_ >= 0) sys::Close(socket_);
  socket_ = -1;
  heard_ = false;
  ping_at_ = 0;
}

// The daemon is gone, or as good as gone: nothing stays frozen without it, and others must be able
// to see what runs here.
void Gate::OnLost() {
  Disconnect();
  const uint64_t now = sys::Now();
  // Not all at once when a daemon comes back.
  if (next_connect_ < now) next_connect_ = now + uint64_t{Jitter(100)} * kMillisecond;
  if (worker_ > 0 && held_ == nullptr && !ended_) {
    Thaw();
    if (!slots_.held()) {
      slots_.Enter(Need());
      slots_.SetWorker(Need(), worker_);
    }
  }
}

bool Gate::Send(void* message, size_t size, MessageType type) {
  if (socket_ < 0) return false;
  gate::Header* header = static_cast<gate::Header*>(message);
  header->magic = gate::kGateMagic;
  header->version = gate::kGateVersion;
  header->type = static_cast<uint16_t>(type);
  header->size = static_cast<uint32_t>(size);
  header->attempt = attempt_;
  const sys::Word sent = sys::Send(socket_, message, size);
  if (sent == static_cast<sys::Word>(size)) return true;
  // Closed, or its queue is full because nobody reads it.
  OnLost();
  return false;
}

void Gate::SendSimple(MessageType type, uint64_t value) {
  gate::Simple message = {};
  message.value = value;
  Send(&message, sizeof(message), type);
}

void Gate::SendRequest(MessageType type, KeeperState state) {
  // In memory of its own: it is large, and the keeper should stay small.
  gate::Request* request =
      static_cast<gate::Request*>(sys::Map(sizeof(gate::Request), sys::kProtRead | sys::kProtWrite,
                                           sys::kMapPrivate | sys::kMapAnonymous));
  if (request == nullptr) return Disconnect();
  request->state = static_cast<uint32_t>(state);
  request->flags = past_flags_;
  if (worker_ > 0 && slots_.held()) request->flags |= gate::kRequestFallback;
  request->replay = static_cast<uint32_t>(replay_);
  request->keeper_pid = keeper_pid_;
  request->keeper_start = ReadStat(keeper_pid_).start;
  request->parent_pid = sys::GetParentPid();
  if (state == KeeperState::kRunning) {
    request->worker_pid = worker_;
    request->worker_start = worker_start_;
    request->ran_us = Microseconds(sys::Now() - started_at_);
  }
  request->floor_bytes = floor_;
  request->predicted_bytes = predicted_;
  request->evictions = evictions_;
  request->oom_kills = oom_kills_;
  request->other_kills = other_kills_;
  request->input_count = input_count_;
  request->waited_us = Microseconds(waited_ns_);
  for (size_t i = 0; i < gate::kGateInputs; ++i) request->inputs[i] = inputs_[i];
  Copy(View(tool_.name), request->tool);
  if (!Copy(View(source_), request->source)) request->flags |= gate::kRequestPathTruncated;
  char cwd[1024];
  const sys::Word length = sys::GetCwd(cwd, sizeof(cwd));
  if (length > 0) {
    Copy(View(cwd), request->cwd);
  } else {
    request->flags |= gate::kRequestPathTruncated;
  }
  // The arguments: as many bytes as fit, read where they are needed.
  const int fd = sys::Open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  size_t size = 0;
  bool more = false;
  while (fd >= 0) {
    char extra[4096];
    const bool fits = size + 1 < sizeof(request->args);
    const sys::Word got =
        fits ? sys::Read(fd, request->args + size, sizeof(request->args) - 1 - size)
             : sys::Read(fd, extra, sizeof(extra));
    if (got <= 0) break;
    const char* bytes = fits ? request->args + size : extra;
    for (sys::Word i = 0; i < got; ++i) request->arg_count += bytes[i] == '\0' ? 1 : 0;
    if (fits) {
      size += static_cast<size_t>(got);
    } else {
      more = true;
    }
  }
  if (fd >= 0) sys::Close(fd);
  request->args[size] = '\0';
  request->args_bytes = static_cast<uint32_t>(size);
  if (more) request->flags |= gate::kRequestArgsTruncated;
  Send(request, sizeof(*request), type);
  sys::Unmap(request, sizeof(gate::Request));
}

void Gate::ReadMessages() {
  // The largest that a daemon sends; anything longer is cut by the kernel and dropped here.
  alignas(8) unsigned char data[sizeof(gate::Verdict) + 8];
  while (socket_ >= 0) {
    const sys::Word size = sys::Receive(socket_, data, sizeof(data));
    if (size == -EINTR) continue;
    if (size == -EAGAIN) return;
    if (size <= 0) return OnLost();
    OnMessage(data, static_cast<size_t>(size));
  }
}

void Gate::OnMessage(const unsigned char* data, size_t size) {
  gate::Header header;
  if (size < sizeof(header)) return;
  __builtin_memcpy(&header, data, sizeof(header));
  if (header.magic != gate::kGateMagic || header.size != size) return;
  const MessageType type = static_cast<MessageType>(header.type);
  if (type == MessageType::kRefuse) {  // Of any version.
    Disconnect();
    fall_back_ = true;
    gate::Refuse refuse;
    if (size != sizeof(refuse)) return;
    __builtin_memcpy(&refuse, data, sizeof(refuse));
    const bool passing = refuse.reason == static_cast<uint32_t>(gate::RefuseReason::kBusy);
    next_connect_ = sys::Now() + (passing ? kReconnectSlow : kReconnectRefused);
    return;
  }
  if (header.version != gate::kGateVersion) return;
  heard_ = true;
  heard_at_ = sys::Now();
  ping_at_ = 0;
  if (worker_ == 0 || held_ != nullptr) {
    fall_back_ = false;  // It answers: the lane's own rule isn't needed.
  } else if (slots_.held() && !alone_) {
    slots_.Release();
  }
  if (header.attempt != attempt_) return;
  const bool waiting = worker_ == 0 || held_ != nullptr;
  switch (type) {
    case MessageType::kAdmit: {
      gate::Admit admit;
      if (size != sizeof(admit) || !waiting) return;
      __builtin_memcpy(&admit, data, sizeof(admit));
      predicted_ = admit.predicted_bytes;
      admitted_ = true;
      return;
    }
    case MessageType::kPass:
      if (waiting) pass_ = true;
      return;
    case MessageType::kEvict: {
      gate::Simple evict;
      if (size != sizeof(evict) || waiting || ended_ || replay_ != Replay::kReplayable) return;
      __builtin_memcpy(&evict, data, sizeof(evict));
      if (evict.value > floor_) floor_ = evict.value;
      return Evict();
    }
    case MessageType::kFreeze:
      if (!waiting && !ended_) Freeze();
      return;
    case MessageType::kThaw:
      if (!waiting && !ended_) Thaw();
      return;
    case MessageType::kVerdict: {
      gate::Verdict verdict;
      if (size != sizeof(verdict) || !ended_) return;
      __builtin_memcpy(&verdict, data, sizeof(verdict));
      have_verdict_ = true;
      verdict_ = verdict.decision == static_cast<uint32_t>(Decision::kRetry) ? Decision::kRetry
                                                                             : Decision::kMirror;
      verdict_flags_ = verdict.flags;
      if (verdict.floor_bytes > floor_) floor_ = verdict.floor_bytes;
      verdict.line[sizeof(verdict.line) - 1] = '\0';
      verdict_line_ = verdict.line[0] != '\0' && verdict_ == Decision::kMirror;
      if (verdict_line_) Print(View(verdict.line));
      return;
    }
    case MessageType::kPong:
    case MessageType::kRefuse:
    case MessageType::kRequest:
    case MessageType::kReregister:
    case MessageType::kStarted:
    case MessageType::kEnded:
    case MessageType::kFrozen:
    case MessageType::kThawed:
    case MessageType::kPing:
      return;
  }
}

// --- Events -------------------------------------------------------------------------------------

// Waits until something happens or the time is up, and handles what did.
void Gate::PollOnce(uint64_t nanoseconds) {
  struct pollfd descriptors[2];
  unsigned count = 0;
  if (signals_ >= 0) descriptors[count++] = {signals_, POLLIN, 0};
  if (socket_ >= 0) descriptors[count++] = {socket_, POLLIN, 0};
  int milliseconds = -1;
  if (nanoseconds != ~uint64_t{0}) {
    const uint64_t rounded = Divide(nanoseconds + kMillisecond - 1, kMillisecond).value;
    milliseconds = rounded > 60'000 ? 60'000 : static_cast<int>(rounded);
  }
  // Interrupted: the process was stopped and continued. What came meanwhile is read first, or an
  // answered ping would look like silence.
  const sys::Word ready = sys::Poll(descriptors, count, milliseconds);
  if (ready == -EINTR) sys::Poll(descriptors, count, 0);
  if (signals_ >= 0) ReadSignals();
  if (socket_ >= 0) ReadMessages();
}

void Gate::ReadSignals() {
  sys::SignalInfo info;
  while (signals_ >= 0 &&
         sys::Read(signals_, &info, sizeof(info)) == static_cast<sys::Word>(sizeof(info))) {
    OnSignal(info);
  }
}

void Gate::OnSignal(const sys::SignalInfo& info) {
  const int signal = static_cast<int>(info.signal);
  if (signal == sys::kSigChild) return ReapChildren();
  if (worker_ == 0 || ended_) {
    seen_ |= sys::Bit(signal);
    return;
  }
  if (signal == sys::kSigCont) {
    // The whole group's, or ours alone: the worker has to go on in either case, unless the daemon
    // wants it to stand.
    if (frozen_) return Freeze();
    if (ReadStat(worker_).state == 'T') sys::Kill(worker_, sys::kSigCont);
    return;
  }
  if (frozen_ && (sys::Bit(signal) & kStops) != 0) {
    // The worker stands already and won't be seen to stop again.
    StopSelf(signal);
    return;
  }
  seen_ |= sys::Bit(signal);
  const bool ends = (sys::Bit(signal) & kHarmless) == 0;
  const bool whole_group = (sys::Bit(signal) & kFromTerminal) != 0 && info.code == sys::kCodeKernel;
  if (!whole_group) {
    // kill() of a group says no more than kill() of a process. If the worker has it as well, or
    // stands already, it was the group.
    const bool stop = (sys::Bit(signal) & kStops) != 0;
    const bool has_it = (PendingSignals(worker_) & sys::Bit(signal)) != 0 ||
                        (stop && !frozen_ && ReadStat(worker_).state == 'T');
    if (!has_it) sys::Kill(worker_, signal);
  }
  // A stopped process doesn't die of it.
  if (ends && frozen_) Thaw();
}

void Gate::ReapChildren() {
  for (;;) {
    int status = 0;
    struct rusage usage = {};
    const int pid = sys::Wait(-1, &status, WNOHANG | WUNTRACED, &usage);
    if (pid == -EINTR) continue;
    if (pid <= 0) return;
    if (pid != worker_) continue;  // An orphan of its, or a descendant that stopped.
    if (Stopped(status)) {
      OnStopped(StopSignal(status));
    } else {
      ended_ = true;
      status_ = status;
      usage_ = usage;
    }
  }
}

// Stops this process by `signal` (SIGTSTP, SIGTTIN, SIGTTOU), so that its parent sees just that.
// Returns when it is continued.
void Gate::StopSelf(int signal) {
  const sys::Action standard = {};
  sys::Action old = {};
  sys::SetAction(signal, &standard, &old);
  sys::Kill(keeper_pid_, signal);
  // Below a build tool it is that one's stop that the shell sees, so fg may come before this: the
  // worker goes on already, and the signal just sent has taken the place of the group's SIGCONT. A
  // SIGCONT of our own takes it back. (One that comes from here on does so by itself.)
  // Looked at twice: the kernel hands a group's SIGCONT to one process after the other.
  for (int look = 0; look < 2; ++look) {
    if (look > 0) sys::Poll(nullptr, 0, 1);
    const Stat worker = ReadStat(worker_);
    if (!worker.known || worker.state == 'T') continue;
    sys::Kill(keeper_pid_, sys::kSigCont);
    break;
  }
  sys::SetMask(sys::kAllSignals & ~sys::Bit(signal));  // Stops here.
  sys::SetMask(sys::kAllSignals);
  sys::SetAction(signal, &old, nullptr);
  // In an orphaned group that does nothing, so no SIGCONT can have come either.
  if ((sys::Pending() & sys::Bit(sys::kSigCont)) == 0 && ReadStat(worker_).state == 'T') {
    sys::Kill(keeper_pid_, sys::kSigStop);
  }
}

// The worker stands: by ^Z, or by writing to the terminal from the background. Our parent
// must see this process stand, and for the same reason.
void Gate::OnStopped(int signal) {
  // SIGSTOP to the worker alone is not passed on: whoever sent it will continue the worker alone as
  // well, and nobody would continue the keeper. To the group, it stops both by itself.
  if (signal == sys::kSigStop) return;
  // What the terminal sent to the whole group lies pending here too; once is enough.
  sys::SignalInfo info;
  bool ending = false;
  while (sys::Read(signals_, &info, sizeof(info)) == static_cast<sys::Word>(sizeof(info))) {
    const sys::SignalSet bit = sys::Bit(static_cast<int>(info.signal));
    if ((bit & kHarmless) == 0) {
      OnSignal(info);
      ending = true;
    }
  }
  if (ending) return;
  StopSelf(signal);
  // Continued. The worker too, if the signal was for us alone.
  if (!frozen_ && ReadStat(worker_).state == 'T') sys::Kill(worker_, sys::kSigCont);
}

// --- Waiting for admission ----------------------------------------------------------------------

Gate::Wait Gate::AwaitAdmission() {
  const uint64_t begin = sys::Now();
  slots_.Open(View(lane_), environment_.cores.empty()
                               ? sys::CountProcessors()
                               : static_cast<unsigned>(ParseNumber(environment_.cores)));
  admitted_ = false;
  fall_back_ = false;
  unreachable_ = false;
  next_connect_ = 0;
  const bool known_silent = slots_.IsSilenceKnown(begin);
  uint64_t silent_since = begin;
  uint64_t next_look = 0;
  uint64_t look_every = kFirstLook;
  bool asked = false;
  Wait result = Wait::kAdmitted;
  for (;;) {
    uint64_t now = sys::Now();
    if (socket_ >= 0 && heard_) silent_since = now;
    if (socket_ < 0) {
      asked = false;
      if (now >= next_connect_) {
        Connect(now);
        if (table_full_ && !keeper_) break;  // Needs another way: see PassGate.
        if (socket_ < 0) {
          // The lane's folder gone: the build is over.
          sys::FileInfo info;
          if (sys::StatPath(lane_, &info) == -ENOENT) {
            result = Wait::kPassThrough;
            break;
          }
        }
      }
    }
    if (socket_ >= 0 && !asked) {
      SendRequest(MessageType::kRequest, attempt_ > 1 ? KeeperState::kAgain : KeeperState::kNew);
      asked = true;
      heard_at_ = now;
      if (known_silent && socket_ >= 0) {
        ping_at_ = now;
        SendSimple(MessageType::kPing, now);
      }
    }

    uint64_t wake = now + kLastLook;
    if (socket_ >= 0) {
      const uint64_t ping_due = heard_at_ + gate::kGatePingMs * kMillisecond;
      const uint64_t patience = known_silent && !heard_
                                    ? kKnownSilentGrace
                                    : (gate::kGateHungMs - gate::kGatePingMs) * kMillisecond;
      if (ping_at_ == 0 && now >= ping_due) {
        ping_at_ = now;
        SendSimple(MessageType::kPing, now);
      }
      if (!fall_back_) wake = ping_at_ == 0 ? ping_due : ping_at_ + patience;
    } else {
      if (!fall_back_ && (unreachable_ || known_silent || now - silent_since >= kDeadGrace)) {
        if (!unreachable_ && !known_silent) slots_.NoteSilence(now);
        fall_back_ = true;
      }
      if (!fall_back_) wake = silent_since + kDeadGrace;
      if (next_connect_ < wake) wake = next_connect_;
    }
    if (fall_back_) {
      if (now >= next_look) {
        if (!nested_known_) {
          nested_ = HasAncestor(kKeeperName);
          nested_known_ = true;
        }
        if (slots_.TryEnter(Need(), alone_, nested_, now)) {
          Disconnect();
          next_connect_ = now + kReconnectSlow;
          break;
        }
        next_look = now + look_every + uint64_t{Jitter(5)} * kMillisecond;
        if (look_every < kLastLook) look_every *= 2;
      }
      if (next_look < wake) wake = next_look;
    }

    now = sys::Now();
    PollOnce(wake > now ? wake - now : 0);
    if (admitted_) {
      slots_.Release();
      break;
    }
    if (pass_) {
      result = Wait::kPassThrough;
      break;
    }
    if (ended_) break;  // A held worker that was killed.
    if (socket_ >= 0 && ping_at_ != 0 && !fall_back_) {
      const uint64_t patience = known_silent && !heard_
                                    ? kKnownSilentGrace
                                    : (gate::kGateHungMs - gate::kGatePingMs) * kMillisecond;
      now = sys::Now();
      if (now - ping_at_ >= patience) {
        slots_.NoteSilence(now);
        fall_back_ = true;
      }
    }
    if (!fall_back_) slots_.Release();
  }
  waited_ns_ += sys::Now() - begin;
  return result;
}

uint64_t Gate::Need() const {
  const uint64_t need = predicted_ != 0 ? predicted_ : prior_;
  return floor_ > need ? floor_ : need;
}

// --- Splitting in two ---------------------------------------------------------------------------

// True in the process that goes on to main().
bool Gate::StartWorker() {
  if (held_ != nullptr) {
    // Forked already: let it go.
    __atomic_store_n(held_, 1u, __ATOMIC_RELEASE);
    sys::FutexWake(held_);
    sys::Unmap(held_, sizeof(*held_));
    held_ = nullptr;
    started_at_ = sys::Now();
  } else {
    if (stdin_rewinds_ && attempt_ > 1) sys::Seek(0, stdin_offset_, 0 /* SEEK_SET */);
    started_at_ = sys::Now();
    if (Split()) return true;
    if (worker_ < 0) {
      // No more processes allowed. Admitted it is: so go on in this one, unsupervised.
      worker_ = keeper_pid_;
      gate::Started started = {};
      started.worker_pid = keeper_pid_;
      started.flags = gate::kStartedNoKeeper;
      Send(&started, sizeof(started), MessageType::kStarted);
      Disconnect();
      slots_.CloseInWorker();
      Unsplit();
      return true;
    }
  }
  worker_start_ = ReadStat(worker_).start;
  slots_.SetWorker(Need(), worker_);
  oom_known_ = ReadOomKills(cgroup_, &oom_before_);
  oom_recent_ = oom_before_;
  if (socket_ >= 0) {
    gate::Started started = {};
    started.worker_pid = worker_;
    started.worker_start = worker_start_;
    Send(&started, sizeof(started), MessageType::kStarted);
  }
  return false;
}

// True in the worker. Otherwise worker_ is its pid, or negative if there is none.
bool Gate::Split() {
  // Where a filter forbids what a keeper lives by (seccomp), nobody could tell of the worker's end:
  // no keeper then.
  const bool can = sys::CanSetMask() && sys::CanWait();
  old_mask_ = sys::SetMask(sys::kAllSignals);
  const sys::Action standard = {};
  if (sys::SetAction(sys::kSigChild, &standard, &old_child_) < 0 || !can) {
    worker_ = -EPERM;
    return false;
  }
  // Before the fork, so that nothing the worker does can come first: it may become another tool at
  // once, and its orphans must find their way here.
  sys::Prctl(PR_SET_NAME, sys::Pointer(kKeeperName));
  sys::Prctl(PR_SET_CHILD_SUBREAPER, 1);
  // The same of this one. A full table gets room later.
  if (signals_ < 0) signals_ = sys::SignalDescriptor(sys::kAllSignals);
  if (signals_ < 0 && signals_ != -EMFILE && signals_ != -ENFILE) {
    worker_ = signals_;
    signals_ = -1;
    return false;
  }
  worker_ = Fork();
  if (worker_ == 0) {
    BecomeWorker();
    return true;
  }
  if (worker_ > 0) BecomeKeeper();
  return false;
}

// Back to a process like any other.
void Gate::Unsplit() {
  sys::Prctl(PR_SET_NAME, sys::Pointer(name_));
  sys::Prctl(PR_SET_CHILD_SUBREAPER, 0);
  sys::SetAction(sys::kSigChild, &old_child_, nullptr);
  sys::SetMask(old_mask_);
}

void Gate::BecomeWorker() {
  if (socket_ >= 0) sys::Close(socket_);
  if (signals_ >= 0) sys::Close(signals_);
  slots_.CloseInWorker();
  // A dead keeper takes its worker along. It may have died before we said so.
  sys::Prctl(PR_SET_PDEATHSIG, sys::kSigKill);
  if (sys::GetParentPid() != keeper_pid_) sys::Kill(sys::GetPid(), sys::kSigKill);
  sys::Prctl(PR_SET_NAME, sys::Pointer(name_));
  if (held_ != nullptr) {
    // Signals have their usual effect while it is held: its keeper mirrors what happens.
    sys::SetAction(sys::kSigChild, &old_child_, nullptr);
    sys::SetMask(old_mask_);
    while (__atomic_load_n(held_, __ATOMIC_ACQUIRE) == 0) sys::FutexWait(held_, 0);
    sys::Unmap(held_, sizeof(*held_));
  }
  char text[16];
  if (ParseNumber(ReadFile("/proc/self/oom_score_adj", text, sizeof(text))) < kWorkerOomScore) {
    const int fd = sys::Open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
      Writer writer(text, sizeof(text));
      writer << kWorkerOomScore;
      sys::Write(fd, text, writer.size());
      sys::Close(fd);
    }
  }
  if (held_ != nullptr) return;
  sys::SetAction(sys::kSigChild, &old_child_, nullptr);
  sys::SetMask(old_mask_);
}

void Gate::BecomeKeeper() {
  if (!keeper_) {
    keeper_ = true;
    if (replay_ != Replay::kReplayable) CloseOthers();
    cgroup_ = FindMemoryCgroup();
  }
  if (signals_ < 0) signals_ = sys::SignalDescriptor(sys::kAllSignals);
}

// Everything but stderr, for the one line, and our own. With a worker that can be run again it all
// stays open: the next one needs it.
void Gate::CloseOthers() {
  const int folder = sys::Open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    // No descriptor for the listing: room has to be made blindly.
    for (int fd = 3; fd < 64; ++fd) {
      if (fd != socket_ && fd != signals_ && !slots_.Owns(fd)) sys::Close(fd);
    }
    if (!table_full_) return;
    table_full_ = false;
    return CloseOthers();
  }
  struct Closing {
    const Gate* gate;
    int folder;
  } closing = {this, folder};
  ForEachNumber(
      folder,
      [](void* context, int fd) {
        const Closing* own = static_cast<const Closing*>(context);
        const Gate* gate = own->gate;
        if (fd != 2 && fd != own->folder && fd != gate->socket_ && fd != gate->signals_ &&
            !gate->slots_.Owns(fd)) {
          sys::Close(fd);
        }
      },
      &closing);
  sys::Close(folder);
  // The low numbers stay taken, or a later socket could become someone's stderr.
  for (;;) {
    const int fd = sys::Open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) break;
    if (fd > 2) {
      sys::Close(fd);
      break;
    }
  }
}

// --- While the worker runs ----------------------------------------------------------------------

void Gate::Supervise() {
  while (!ended_) {
    uint64_t now = sys::Now();
    uint64_t wait = slots_.Tend(now);
    if (wait == 0) wait = ~uint64_t{0};
    if (socket_ < 0) {
      if (now >= next_connect_) {
        Connect(now);
        if (socket_ >= 0) {
          SendRequest(MessageType::kReregister, KeeperState::kRunning);
          SendSimple(MessageType::kPing, now);
        }
        // Nobody watches the counter for us: a kill that is long past must not explain a later
        // death.
        uint64_t count = 0;
        if (oom_known_ && ReadOomKills(cgroup_, &count)) {
          oom_before_ = oom_recent_;
          oom_recent_ = count;
        }
      }
      if (socket_ < 0 && next_connect_ > now && next_connect_ - now < wait) {
        wait = next_connect_ - now;
      }
    } else if (frozen_) {
      // As while waiting: a hung daemon must not keep it frozen.
      const uint64_t ping_due = heard_at_ + gate::kGatePingMs * kMillisecond;
      if (ping_at_ == 0 && now >= ping_due) {
        ping_at_ = now;
        SendSimple(MessageType::kPing, now);
      }
      const uint64_t due = ping_at_ == 0
                               ? ping_due
                               : ping_at_ + (gate::kGateHungMs - gate::kGatePingMs) * kMillisecond;
      if (due > now && due - now < wait) wait = due - now;
      if (due <= now) wait = 0;
    }
    PollOnce(wait);
    now = sys::Now();
    if (!ended_ && frozen_ && socket_ >= 0 && ping_at_ != 0 &&
        now - ping_at_ >= (gate::kGateHungMs - gate::kGatePingMs) * kMillisecond) {
      OnLost();
    }
  }
}

void Gate::Freeze() {
  // What a user told to end, or what is ending, doesn't get stopped any more.
  if ((seen_ & ~kHarmless) != 0) return;
  if (!frozen_) {
    frozen_ = true;
    frozen_at_ = sys::Now();
  }
  KillList list = {sys::kSigStop, 0};
  sys::Kill(worker_, sys::kSigStop);
  // Until nothing new appears: a process may fork between being seen and being stopped.
  size_t before = 0;
  size_t seen = 0;
  for (int i = 0; i < 10; ++i) {
    seen = ForEachDescendant(kKeeperName, SignalOne, &list);
    if (seen == before) break;
    before = seen;
  }
  SendSimple(MessageType::kFrozen, seen);
}

void Gate::Thaw() {
  if (!frozen_) {
    if (socket_ >= 0) SendSimple(MessageType::kThawed, 0);
    return;
  }
  frozen_ = false;
  frozen_ns_ += sys::Now() - frozen_at_;
  KillList list = {sys::kSigCont, 0};
  const size_t seen = ForEachDescendant(kKeeperName, SignalOne, &list);
  if (seen == 0) sys::Kill(worker_, sys::kSigCont);  // /proc can't be read.
  if (socket_ >= 0) SendSimple(MessageType::kThawed, seen);
}

void Gate::Evict() {
  evicting_ = true;
  sys::Kill(worker_, sys::kSigKill);
  while (!ended_) {
    int status = 0;
    const int pid = sys::Wait(worker_, &status, 0, &usage_);
    if (pid == -EINTR) continue;
    ended_ = true;
    status_ = pid == worker_ ? status : sys::kSigKill;
  }
}

// The worker is dead and reaped: whatever it left behind goes too, before another one starts.
size_t Gate::KillSubtree() {
  KillList list = {sys::kSigKill, 0};
  for (;;) {
    int status = 0;
    struct rusage usage = {};
    const int pid = sys::Wait(-1, &status, WNOHANG, &usage);
    if (pid == -ECHILD) return list.count;
    if (pid != 0) continue;
    // All that is left is ours: whoever loses its parent gets this process for one.
    ForEachDescendant(View(), SignalOne, &list);
    sys::Poll(nullptr, 0, 1);
  }
}

// --- After its end ------------------------------------------------------------------------------

bool Gate::OomSeen() {
  uint64_t count = 0;
  return oom_known_ && ReadOomKills(cgroup_, &count) && count > oom_before_;
}

void Gate::SendEnded(uint32_t flags) {
  if (socket_ < 0) return;
  gate::Ended ended = {};
  ended.worker_pid = worker_;
  ended.wait_status = status_;
  ended.max_rss_bytes = static_cast<uint64_t>(usage_.ru_maxrss) * 1024;
  ended.user_us = Microseconds(usage_.ru_utime);
  ended.system_us = Microseconds(usage_.ru_stime);
  ended.wall_us = Microseconds(sys::Now() - started_at_);
  ended.frozen_us = Microseconds(frozen_ns_);
  ended.flags = flags;
  ended.killed = killed_;
  Send(&ended, sizeof(ended), MessageType::kEnded);
}

// Decides what the end means. Returns if there is to be another attempt.
void Gate::Judge() {
  // What was sent to the group is here by now: the kernel hands it to all before any of them can
  // be seen dead.
  ReadSignals();
  if (frozen_) {
    frozen_ = false;
    frozen_ns_ += sys::Now() - frozen_at_;
  }
  const int signal = Exited(status_) ? 0 : EndSignal(status_);
  const uint64_t peak = static_cast<uint64_t>(usage_.ru_maxrss) * 1024;
  past_flags_ = 0;
  const sys::SignalSet ending = seen_ & ~kHarmless;
  const bool signalled = ending != 0;
  if (evicting_ && signal == sys::kSigKill) {
    if (!signalled) {
      if (peak > floor_) floor_ = peak;
      ++evictions_;
      past_flags_ = gate::kRequestWasEvicted;
      killed_ += static_cast<uint32_t>(KillSubtree());
      SendEnded(gate::kEndedEvicted);
      return PrepareReplay();
    }
    // Someone wanted it to end, and we were quicker: it ends by what they sent.
    status_ = 1;
    while ((ending & sys::Bit(status_)) == 0) ++status_;
  }
  const bool by_other = (signal == sys::kSigKill || signal == sys::kSigTerm) && !signalled;
  if (!by_other || held_ != nullptr) {  // A held one has not run: nothing to judge.
    SendEnded(signalled ? gate::kEndedSignalled : 0);
    Mirror();
  }
  const bool oom = signal == sys::kSigKill && OomSeen();
  if (AskForVerdict(oom ? gate::kEndedOomSeen : 0, oom)) return;
  DecideAlone(oom);
}

// True if there is to be another attempt; false if the daemon said nothing.
bool Gate::AskForVerdict(uint32_t flags, bool oom) {
  have_verdict_ = false;
  SendEnded(flags | gate::kEndedWantsVerdict);
  const uint64_t until = sys::Now() + gate::kGateVerdictMs * kMillisecond;
  while (socket_ >= 0 && !have_verdict_) {
    const uint64_t now = sys::Now();
    if (now >= until) {
      Disconnect();
      break;
    }
    PollOnce(until - now);
    if ((seen_ & ~kHarmless) != 0) Mirror();  // The user ends it.
  }
  if (!have_verdict_) return false;
  if (verdict_ == Decision::kMirror || replay_ != Replay::kReplayable) Mirror();
  if ((verdict_flags_ & gate::kVerdictOom) != 0 || oom) {
    ++oom_kills_;
    past_flags_ = gate::kRequestWasOomKilled;
  } else {
    ++other_kills_;
    past_flags_ = gate::kRequestWasKilled;
  }
  alone_ = oom_kills_ >= kAloneAfterOomKills;
  const uint64_t peak = static_cast<uint64_t>(usage_.ru_maxrss) * 1024;
  if (peak > floor_) floor_ = peak;
  PrepareReplay();
  return true;
}

// The design's table, without a daemon.
void Gate::DecideAlone(bool oom) {
  if (oom) {
    ++oom_kills_;
    if (replay_ != Replay::kReplayable || oom_kills_ >= kMostOomKills) {
      PrintOomLine();
      Mirror();
    }
    past_flags_ = gate::kRequestWasOomKilled;
    // It got so far and wanted more.
    const uint64_t peak = static_cast<uint64_t>(usage_.ru_maxrss) * 1024;
    const uint64_t more = peak + (peak >> 2);
    if (more > floor_) floor_ = more;
    alone_ = oom_kills_ >= kAloneAfterOomKills;
  } else {
    ++other_kills_;
    if (replay_ != Replay::kReplayable || other_kills_ > kMostOtherKills) Mirror();
    past_flags_ = gate::kRequestWasKilled;
  }
  PrepareReplay();
}

// Back to what the process was before its first attempt.
void Gate::PrepareReplay() {
  killed_ += static_cast<uint32_t>(KillSubtree());
  slots_.Release();
  ++attempt_;
  worker_ = 0;
  worker_start_ = 0;
  ended_ = false;
  evicting_ = false;
  frozen_ns_ = 0;
  killed_ = 0;
  predicted_ = 0;
  // While it waits, signals have their usual effect again; those that came meanwhile take it now.
  sys::Close(signals_);
  signals_ = -1;
  sys::SetAction(sys::kSigChild, &old_child_, nullptr);
  sys::SetMask(old_mask_);
}

void Gate::Mirror() {
  Disconnect();
  slots_.Release();
  if (Exited(status_)) sys::Exit(ExitCode(status_));
  const int signal = EndSignal(status_);
  // The worker has left its core, if it was to leave one.
  const sys::Limit none = {0, 0};
  sys::SetLimit(kLimitCore, &none);
  sys::Prctl(PR_SET_DUMPABLE, 0);
  const sys::Action standard = {};
  sys::SetAction(signal, &standard, nullptr);
  sys::Kill(keeper_pid_, signal);
  sys::SetMask(sys::kAllSignals & ~sys::Bit(signal));
  sys::Exit(128 + signal);  // As a shell would put it; the signal should have ended us.
}

void Gate::Print(View line) {
  char text[1200];
  Writer writer(text, sizeof(text) - 1);
  writer << "headroom: ";
  writer.Printable(line);
  text[writer.size()] = '\n';
  sys::Write(2, text, writer.size() + 1);
}

void Gate::PrintOomLine() {
  char text[1100];
  Writer line(text, sizeof(text));
  line << tool_.name;
  if (source_[0] != '\0') line << " " << source_;
  line << ": killed by the kernel for lack of memory";
  if (oom_kills_ > 1) line << ", " << uint64_t{oom_kills_} << " times";
  line << "; it had ";
  line.Size(static_cast<uint64_t>(usage_.ru_maxrss) * 1024);
  const Memory memory = ReadMemory(cgroup_);
  if (memory.limit != 0) {
    line << " and wanted more, the limit is ";
    line.Size(memory.limit);
  }
  Print(line.view());
}

// --- All of it ----------------------------------------------------------------------------------

void Gate::Pass() {
  if (!Prepare() || pass_) return;
  for (;;) {
    const Wait wait = AwaitAdmission();
    if (table_full_ && !keeper_) {
      // No descriptor for a socket. Fork first: the worker is held before its main(), the keeper
      // makes room by closing its own copies, and asks then.
      void* shared = sys::Map(sizeof(uint32_t), sys::kProtRead | sys::kProtWrite,
                              sys::kMapShared | sys::kMapAnonymous);
      if (shared == nullptr) return;
      held_ = static_cast<uint32_t*>(shared);
      replay_ = Replay::kNoDescriptor;
      if (Split()) return;
      if (worker_ < 0) return Unsplit();
      ReadCommand();  // Now that files can be opened.
      replay_ = Replay::kNoDescriptor;
      continue;
    }
    if (wait == Wait::kPassThrough && held_ == nullptr) {
      Disconnect();
      slots_.CloseInWorker();
      if (keeper_) {
        Unsplit();
        if (stdin_rewinds_) sys::Seek(0, stdin_offset_, 0 /* SEEK_SET */);
      }
      return;
    }
    if (!ended_ && StartWorker()) return;
    Supervise();
    Judge();
  }
}

}  // namespace

void PassGate(const Environment& environment, const Tool& tool) {
  Gate gate(environment, tool);
  gate.Pass();
}

}  // namespace headroom::preload
