// Vocabulary of the policy: quantities and identities as types, so that a byte count cannot be
// added to a token count and a pid cannot be mistaken for the process that had it before.
//
// Everything here is a plain value: copyable, comparable, thread-compatible, without I/O.
#ifndef HEADROOM_SERVER_POLICY_TYPES_H_
#define HEADROOM_SERVER_POLICY_TYPES_H_

#include <chrono>
#include <compare>
#include <cstdint>

namespace headroom::policy {

// A number of bytes; negative where a difference is (headroom can be below zero).
struct Bytes {
  int64_t count = 0;

  friend constexpr auto operator<=>(const Bytes&, const Bytes&) = default;
  constexpr Bytes operator-() const { return {-count}; }
  constexpr Bytes& operator+=(Bytes other) {
    count += other.count;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
  friend constexpr Bytes operator*(Bytes a, int64_t n) { return {a.count * n}; }
  friend constexpr Bytes operator/(Bytes a, int64_t n) { return {a.count / n}; }
};

constexpr Bytes KiB(int64_t n) {
  return {n * 1024};
}
constexpr Bytes MiB(int64_t n) {
  return {n * 1024 * 1024};
}
constexpr Bytes GiB(int64_t n) {
  return {n * 1024 * 1024 * 1024};
}

// Hundredths of a percent: ratios that are stored and traced are integers, so that a replay on
// another machine gives the same bits.
struct Permyriad {
  int32_t count = 0;
  friend constexpr auto operator<=>(const Permyriad&, const Permyriad&) = default;
};
constexpr Bytes Share(Bytes whole, Permyriad part) {
  return {whole.count / 10000 * part.count + whole.count % 10000 * part.count / 10000};
}

// Monotonic time as the daemon's caller measured it. The clock has no now(): time enters the
// policy with each step and in no other way.
using Duration = std::chrono::nanoseconds;
struct StepClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<StepClock>;
  static constexpr bool is_steady = true;
};
using Time = StepClock::time_point;

// A process: the pid alone is reused. `start` is field 22 of /proc/PID/stat (clock ticks since
// boot), see proc(5).
struct ProcId {
  int32_t pid = 0;
  uint64_t start = 0;
  friend constexpr auto operator<=>(const ProcId&, const ProcId&) = default;
  explicit constexpr operator bool() const { return pid != 0; }
};

// Given out by the daemon, never reused while it lives; 0 is none.
enum class LaneId : uint32_t { kNone = 0 };
enum class DomainId : uint32_t { kNone = 0 };
enum class GateId : uint64_t { kNone = 0 };

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_TYPES_H_
