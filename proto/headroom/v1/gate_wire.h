// What a gated process and the daemon say to each other.
//
// Transport: one SOCK_SEQPACKET connection for each gated process, to `<HEADROOM_LANE>/gate.sock`.
// One packet is one message; each type has one fixed size; no descriptors are passed. All integers
// are in the host's byte order: both ends run on one kernel. The layout is the same for 32-bit and
// 64-bit programs (checked below). Nothing here depends on a library, since the preload library,
// which has none, includes it.
//
// Who: the process that connects is the tool process before its main(). When it is admitted it
// forks; the child (the worker) goes on to main(), the connecting process (the keeper) stays and
// keeps the connection. So SO_PEERCRED of the connection names the keeper's pid, uid and gid in the
// daemon's own pid namespace; believe that, never a pid in a message. A worker pid in a message is
// in the keeper's namespace: check that its parent is the keeper before acting on it.
//
// States of a connection, as the daemon sees them (K>: sent by the keeper, D>: by the daemon):
//
//   accept ──K>Request──▶ WAITING ──D>Admit──▶ ADMITTED ──K>Started──▶ RUNNING ──K>Ended──▶ ENDED
//                          │   ▲                                       │  ▲  │                │
//                  D>Pass  │   │                             D>Freeze  │  │  │ D>Evict        │
//                  close ◀─┘   │                         K>Frozen      ▼  │  ▼                │
//                              │                                     FROZEN  (kills, K>Ended) │
//                              │                            D>Thaw, K>Thawed                  │
//                              └────K>Request, attempt + 1 ◀── D>Verdict kRetry, or evicted ──┤
//                                                        close ◀── D>Verdict kMirror, or none ┘
//   accept ──K>Reregister(state)──▶ WAITING, RUNNING or FROZEN, after a daemon's restart.
//
// Rules:
//  1. The first message is Request or Reregister. Until then the connection means nothing.
//  2. `attempt` in every header is the attempt that the message is about, from 1. The keeper drops
//     a message about another attempt, the daemon should as well.
//  3. A waiting or frozen keeper sends Ping when it has heard nothing for kGatePingMs; the daemon
//     answers Pong at once. After kGateHungMs of silence the keeper takes the daemon for hung,
//     closes, and goes by the fall-back (see docs/protocol.md). A running keeper sends no Ping.
//  4. Ended with kEndedWantsVerdict waits for a Verdict, at most kGateVerdictMs; then the keeper
//     decides by itself. Every other Ended is final: the keeper closes and leaves, except after
//     kEndedEvicted: there it always asks again (Request, attempt + 1), with no Verdict.
//  5. Closed by the keeper without Ended: the keeper is dead and its worker with it (PDEATHSIG), or
//     it took the daemon for hung. In the second case it may come back with Reregister.
//  6. Closed by the daemon: the keeper thaws what is frozen, reconnects for as long as it runs and
//     sends Reregister.
//  7. A daemon that does not speak the version of a header answers Refuse and closes. The header
//     and Refuse never change their layout, in any version.
//  8. Unknown types, wrong sizes and rubbish are ignored by the keeper; the daemon closes.
//  9. Evict may cross an Ended (then that Ended, without kEndedEvicted, is what happened) or arrive
//     in FROZEN. The keeper ignores it while WAITING and where it can't replay.
// 10. A keeper that closes with something unread makes the daemon's next read say ECONNRESET once;
//     what the keeper had sent before, Ended for one, is read after that.
// 11. The keeper's name in /proc/PID/comm is kGateKeeperName once its worker exists; its command
//     line stays the tool's. Don't take it for a tool.
#ifndef HEADROOM_PROTO_HEADROOM_V1_GATE_WIRE_H_
#define HEADROOM_PROTO_HEADROOM_V1_GATE_WIRE_H_

#include <stddef.h>
#include <stdint.h>

namespace headroom::gate {

inline constexpr uint32_t kGateMagic = 0x31475248;  // "HRG1" in memory on a little-endian host.
inline constexpr uint16_t kGateVersion = 1;
inline constexpr char kGateSocketName[] = "gate.sock";  // In the lane's folder.
inline constexpr char kGateKeeperName[] = "headroom-keeper";
inline constexpr char kGateSlotsName[] = "slots";  // Lock files of the fall-back, same place.

// Milliseconds. Two missed pings make a hung daemon; the sum stays under the 5 s that a build may
// lose to one.
inline constexpr uint32_t kGatePingMs = 1500;
inline constexpr uint32_t kGateHungMs = 4000;
inline constexpr uint32_t kGateVerdictMs = 2000;

enum class MessageType : uint16_t {
  // Keeper to daemon.
  kRequest = 1,     // struct Request: may I run?
  kReregister = 2,  // struct Request: an earlier daemon knew me; this is my state.
  kStarted = 3,     // struct Started: the worker exists.
  kEnded = 4,       // struct Ended: the worker is gone.
  kFrozen = 5,      // struct Simple: all of the worker's subtree has been sent SIGSTOP.
  kThawed = 6,      // struct Simple: and SIGCONT.
  kPing = 7,        // struct Simple.
  // Daemon to keeper.
  kAdmit = 65,    // struct Admit: fork and go.
  kPass = 66,     // struct Simple: go on without a keeper and forget the daemon.
  kEvict = 67,    // struct Simple: kill and reap the worker's whole subtree, then ask again with
                  // a floor_bytes of at least `value`.
  kFreeze = 68,   // struct Simple: SIGSTOP to the subtree. Idempotent.
  kThaw = 69,     // struct Simple: SIGCONT to it. Idempotent.
  kVerdict = 70,  // struct Verdict: what to do about the death that Ended told of.
  kPong = 71,     // struct Simple: with the Ping's value.
  kRefuse = 72,   // struct Refuse: I can't serve you; go by the fall-back.
};

// The first bytes of each message. Layout fixed for ever.
struct Header {
  uint32_t magic;    // kGateMagic
  uint16_t version;  // kGateVersion of the sender
  uint16_t type;     // MessageType
  uint32_t size;     // Of the whole message, bytes; equals the packet's length.
  uint32_t attempt;  // From 1; see rule 2.
};
static_assert(sizeof(Header) == 16);

// Why a worker can't be run again unseen. kReplayable: it can.
enum class Replay : uint32_t {
  kReplayable = 0,
  kStdinStream = 1,    // It reads stdin, and that is a pipe, a socket or a terminal.
  kOutputStream = 2,   // The result goes to stdout or another stream (-o -, -E without -o).
  kInputStream = 3,    // An input is a fifo or /dev/fd/N.
  kHoldsTokens = 4,    // It may hold jobserver tokens when it dies (rustc).
  kNoDescriptor = 5,   // Its descriptor table was full: the keeper had to close it all.
  kModifiesInput = 6,  // It changes a file in place (ld.gold --incremental).
  kHasChildren = 7,    // It had children before it was this program (sh -c 'x & exec cc1 ...'):
                       // they can't be told from the worker's own.
};

// Where the keeper is when it sends Request (kNew, or kAgain for attempt > 1) or Reregister.
enum class KeeperState : uint32_t {
  kNew = 0,
  kAgain = 1,
  kWaiting = 2,
  kRunning = 3,
  kFrozen = 4,  // Only for a daemon that came back before the keeper could thaw; normally kRunning.
};

// Bits of Request::flags.
inline constexpr uint32_t kRequestArgsTruncated = 1u << 0;  // args holds a beginning only.
inline constexpr uint32_t kRequestPathTruncated = 1u << 1;  // source or cwd was cut.
inline constexpr uint32_t kRequestWasEvicted = 1u << 2;     // The attempt before was evicted.
inline constexpr uint32_t kRequestWasOomKilled = 1u << 3;   // It was killed for memory.
inline constexpr uint32_t kRequestWasKilled = 1u << 4;      // It was killed, memory not to blame.
inline constexpr uint32_t kRequestFallback = 1u << 5;       // Running now by the fall-back's rule.

inline constexpr size_t kGateInputs = 6;

// Sum of the sizes of the input files of one suffix.
struct InputSize {
  char suffix[8];  // Without the dot, NUL-filled, cut to 7: "ii", "ptx", "cc", "o", "a". "" : none.
  uint64_t bytes;  // Sum of st_size.
};
static_assert(sizeof(InputSize) == 16);

// Request and Reregister. Texts are NUL-terminated and NUL-filled; they are whatever the process
// was started with: no encoding is promised, control characters included.
struct Request {
  Header header;
  uint32_t state;         // KeeperState
  uint32_t flags;         // kRequest...
  uint32_t replay;        // Replay
  int32_t keeper_pid;     // In the keeper's namespace; for logs only, see SO_PEERCRED.
  uint64_t keeper_start;  // starttime of /proc/PID/stat (field 22), clock ticks since boot.
  int32_t parent_pid;     // The build tool or driver, in the keeper's namespace; for logs.
  int32_t worker_pid;     // 0 without one.
  uint64_t worker_start;  // As keeper_start; 0 without a worker.
  // What earlier attempts showed.
  uint64_t floor_bytes;      // The peak is at least this: largest floor of Evict and Verdict, else
                             // the largest ru_maxrss. 0: first attempt.
  uint64_t predicted_bytes;  // Of the last Admit, for Reregister. 0: none.
  uint32_t evictions;        // Attempts that ended so, in this keeper's life.
  uint32_t oom_kills;
  uint32_t other_kills;
  uint32_t input_count;  // Input files found among the arguments, all suffixes.
  uint64_t waited_us;    // At the gate, all attempts.
  uint64_t ran_us;       // Wall time of the running worker, for Reregister; else 0.
  // Who it is.
  InputSize inputs[kGateInputs];  // The largest suffixes first.
  char tool[32];                  // Name of the tool as listed: "cicc", "cc1plus", "ld.bfd".
  char source[1024];              // Best guess of what is compiled, as written; "" if unknown.
  char cwd[1024];                 // Working directory.
  char args[16384];               // argv, each NUL-terminated; args_bytes of it are used.
  uint32_t args_bytes;
  uint32_t arg_count;  // All of argv, also where args was cut.
};
static_assert(sizeof(Request) == 16 + 16 + 8 + 8 + 8 + 16 + 16 + 16 + 96 + 32 + 2048 + 16384 + 8);
static_assert(offsetof(Request, keeper_start) == 32 && offsetof(Request, inputs) == 104);

// Bits of Started::flags.
inline constexpr uint32_t kStartedNoKeeper = 1u << 0;  // fork failed: the process itself goes on,
                                                       // unsupervised, and closes now.

struct Started {
  Header header;
  int32_t worker_pid;  // In the keeper's namespace.
  uint32_t flags;
  uint64_t worker_start;  // Clock ticks since boot; 0: not known.
};
static_assert(sizeof(Started) == 32);

// Bits of Ended::flags.
inline constexpr uint32_t kEndedEvicted = 1u << 0;       // Killed by us, on Evict.
inline constexpr uint32_t kEndedSignalled = 1u << 1;     // The keeper or its group got the signal.
inline constexpr uint32_t kEndedOomSeen = 1u << 2;       // An oom_kill counter that the keeper can
                                                         // read rose while this worker ran.
inline constexpr uint32_t kEndedWantsVerdict = 1u << 3;  // Rule 4.

struct Ended {
  Header header;
  int32_t worker_pid;
  int32_t wait_status;     // As wait4() gives it.
  uint64_t max_rss_bytes;  // ru_maxrss of wait4(): the largest of the worker and what it waited
                           // for. Resident, so mapped files are in it.
  uint64_t user_us;        // ru_utime, ru_stime: the worker and the children it waited for.
  uint64_t system_us;
  uint64_t wall_us;  // From the fork to the end; time stopped or frozen is in it.
  uint64_t frozen_us;
  uint32_t flags;
  uint32_t killed;  // Processes of the subtree that were killed and reaped after it.
};
static_assert(sizeof(Ended) == 72);

// kFrozen, kThawed: value = number of processes signalled. kPing: any; kPong: the same back.
// kEvict: floor in bytes. Zero in all others.
struct Simple {
  Header header;
  uint64_t value;
};
static_assert(sizeof(Simple) == 24);

struct Admit {
  Header header;
  uint64_t predicted_bytes;  // Peak that the daemon planned with. 0: unknown. Kept for Reregister
                             // and for the fall-back's own accounts.
};
static_assert(sizeof(Admit) == 24);

enum class Decision : uint32_t {
  kMirror = 0,  // End as the worker ended. `line`, unless empty, goes to stderr first.
  kRetry = 1,   // Ask again: Request with attempt + 1. Ignored where not replayable.
};

// Bits of Verdict::flags: what the keeper counts the death as.
inline constexpr uint32_t kVerdictOom = 1u << 0;  // The domain's oom_kill counter rose.

struct Verdict {
  Header header;
  uint32_t decision;  // Decision
  uint32_t flags;
  uint64_t floor_bytes;  // For kRetry: what the next Request gives as floor_bytes, at least.
  char line[1024];       // NUL-terminated, without a newline: tool, source, need, limit.
};
static_assert(sizeof(Verdict) == 16 + 16 + 1024);

enum class RefuseReason : uint32_t {
  kVersion = 1,  // The daemon speaks only `version`.
  kBusy = 2,     // No descriptors or memory left for one more.
  kClosing = 3,  // The lane is being closed.
};

// Layout fixed for ever.
struct Refuse {
  Header header;
  uint32_t reason;   // RefuseReason
  uint32_t version;  // What the daemon speaks.
};
static_assert(sizeof(Refuse) == 24);

}  // namespace headroom::gate

#endif  // HEADROOM_PROTO_HEADROOM_V1_GATE_WIRE_H_
