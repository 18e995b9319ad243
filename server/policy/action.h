// What the policy wants done. The daemon carries actions out and decides nothing; each has its
// reason with the inputs that led to it, as codes and numbers (the client puts them into words).
#ifndef HEADROOM_SERVER_POLICY_ACTION_H_
#define HEADROOM_SERVER_POLICY_ACTION_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "server/policy/types.h"

namespace headroom::policy {

// Why. One code a distinct rule of the policy.
enum class ReasonCode : uint8_t {
  kMemoryFits,     // the expected sum leaves room for one more
  kMemoryTight,    // it does not
  kCoresFull,      // as many run as the lane's cores
  kFloor,          // nothing else of the lane runs: one always may
  kFairShare,      // other lanes wait
  kSlowStart,      // nothing is known of this build yet
  kLeak,           // tokens are out that no client's child explains
  kClientsGone,    // the lane's last client is gone
  kSurplus,        // more tokens than were minted
  kBrake,          // the domain ran short: stop what can be stopped
  kRoomAgain,      // the domain has room again
  kWaitsForGate,   // its descendants wait at the gate
  kRetryEvicted,   // run again: the daemon had evicted it
  kRetryOomKill,   // run again: the kernel's OOM killer had taken it
  kRetryKilled,    // run again: killed from outside without OOM evidence
  kTriesUsedUp,    // not again
  kNotReplayable,  // not again
  kOwnEnd,         // its own exit or crash: passed on as it is
  kTooBig,         // needs more than its domain has
  kPredictionOff,  // a test switched prediction off
};

// Inputs of a decision, by name. Bytes, counts and nanoseconds as the name says.
enum class Input : uint8_t {
  kDomain,  // DomainId
  kAvailableBytes,
  kReserveBytes,
  kExpectedGrowthBytes,  // of what runs, over the horizon that binds
  kSafetyBytes,          // the quantile of the sum above its mean
  kHeadroomBytes,        // what is left
  kNeedBytes,            // of the next job or the process
  kRunningJobs,
  kClients,
  kMinted,
  kIdle,
  kOut,
  kTarget,
  kCores,
  kFillRateBytesPerSecond,
  kHorizonNanos,
  kProcBytes,  // what the process has now
  kPredictedPeakBytes,
  kPredictionSource,  // policy/predict.h's PredictionSource
  kAttempt,
  kOomKills,
  kLimitBytes,
  kPsiFullPermyriad,
  kExplained,
};

struct Reason {
  struct Value {
    Input input{};
    int64_t value = 0;
    friend bool operator==(const Value&, const Value&) = default;
  };
  ReasonCode code{};
  std::vector<Value> inputs;
  friend bool operator==(const Reason&, const Reason&) = default;
};

// Writes `count` tokens into the lane's fifo.
struct Mint {
  LaneId lane = LaneId::kNone;
  int count = 0;
  Reason reason;
  friend bool operator==(const Mint&, const Mint&) = default;
};

// Sets the lane's debt: the daemon reads tokens as it can get them until it has `debt` more, and
// reports each catch with TokensMoved. 0 cancels what is still owed.
struct Collect {
  LaneId lane = LaneId::kNone;
  int debt = 0;
  Reason reason;
  friend bool operator==(const Collect&, const Collect&) = default;
};

// SIGSTOP and SIGCONT for one tool process of a lane.
struct Freeze {
  ProcId proc;
  LaneId lane = LaneId::kNone;
  Reason reason;
  friend bool operator==(const Freeze&, const Freeze&) = default;
};
struct Thaw {
  ProcId proc;
  LaneId lane = LaneId::kNone;
  Reason reason;
  friend bool operator==(const Thaw&, const Thaw&) = default;
};

// The gate opens. `predicted_peak` is what it was admitted with (P95).
struct Admit {
  GateId gate = GateId::kNone;
  Bytes predicted_peak;
  Reason reason;
  friend bool operator==(const Admit&, const Admit&) = default;
};

// The keeper kills its worker's subtree and asks again.
struct Evict {
  GateId gate = GateId::kNone;
  Bytes floor;  // what the next attempt is known to need at least
  Reason reason;
  friend bool operator==(const Evict&, const Evict&) = default;
};

// Answer to a worker's end that was not its own: run it again, or pass the end on.
struct Verdict {
  GateId gate = GateId::kNone;
  bool again = false;
  Bytes floor;
  bool alone = false;  // again, but only when nothing else runs in its domain
  Reason reason;
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

// How often the sampler should look from now on.
struct SetSampling {
  Duration fast{0};    // domains and growing tool processes
  Duration glance{0};  // what the domains have left, and all if NeedsLook says so; 0: nothing
                       // between two fast looks
  friend bool operator==(const SetSampling&, const SetSampling&) = default;
};

using Action = std::variant<Mint, Collect, Freeze, Thaw, Admit, Evict, Verdict, SetSampling>;

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_ACTION_H_
