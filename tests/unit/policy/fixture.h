// A host in a few words, for tests of the policy: every call is one event, time moves by Wait().
// Actions are kept until Take(); after every step the invariants must hold.
#ifndef HEADROOM_TESTS_UNIT_POLICY_FIXTURE_H_
#define HEADROOM_TESTS_UNIT_POLICY_FIXTURE_H_

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/policy/step.h"

namespace headroom::policy {

inline constexpr DomainId kHost{1};
inline constexpr LaneId kLane{1};

struct Host {
  explicit Host(Bytes limit = GiB(64)) {
    DomainSeen host;
    host.id = kHost;
    host.name = "host";
    host.limit = limit;
    Feed(host);
    available = limit;
    Look();
    Take();
  }

  void Feed(const Event& event) {
    for (Action& action : Step(state, event, now)) actions.push_back(std::move(action));
    const std::vector<std::string> broken = BrokenInvariants(state);
    for (const std::string& what : broken) UNSCOPED_INFO(what);
    REQUIRE(broken.empty());
  }
  void Wait(Duration time) { now += time; }

  // A look at the host, and at whatever is given.
  void Look(std::vector<LaneSample> lanes = {}, std::vector<ProcSample> procs = {}) {
    Sample sample;
    DomainSample domain;
    domain.id = kHost;
    domain.available = available;
    domain.oom_kills = oom_kills;
    sample.domains.push_back(domain);
    sample.lanes = std::move(lanes);
    sample.procs = std::move(procs);
    Feed(sample);
  }

  LaneState& Lane(LaneId id = kLane) { return state.lanes.at(id); }
  LaneOpened Open(int cores, LaneId id = kLane, uint32_t uid = 1000) {
    LaneOpened lane;
    lane.id = id;
    lane.uid = uid;
    lane.name = "run";
    lane.domain = kHost;
    lane.cores = cores;
    return lane;
  }
  // Carries out what was asked for tokens, as the daemon would: the fifo obeys at once.
  void Obey() {
    for (const Action& action : std::exchange(actions, {})) {
      done.push_back(action);
      if (const auto* mint = std::get_if<Mint>(&action)) {
        Feed(TokensMoved{mint->lane, mint->count, 0, Lane(mint->lane).idle + mint->count});
      } else if (const auto* collect = std::get_if<Collect>(&action)) {
        const int taken = std::min(collect->debt, Lane(collect->lane).idle);
        if (taken > 0) {
          Feed(TokensMoved{collect->lane, 0, taken, Lane(collect->lane).idle - taken});
        }
      }
    }
  }
  void ObeyAll() {
    for (int i = 0; i < 100 && !actions.empty(); ++i) Obey();
  }
  std::vector<Action> Take() {
    done.insert(done.end(), actions.begin(), actions.end());
    return std::exchange(actions, {});
  }

  State state;
  Time now{std::chrono::seconds(1000)};
  Bytes available;
  uint64_t oom_kills = 0;
  std::vector<Action> actions;
  std::vector<Action> done;  // earlier ones
};

// All actions of one kind.
template <typename T>
std::vector<T> All(const std::vector<Action>& actions) {
  std::vector<T> found;
  for (const Action& action : actions) {
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  }
  return found;
}

inline ProcSeen Tool(int pid, const char* tool, const char* source, LaneId lane = kLane) {
  ProcSeen seen;
  seen.proc = {pid, 1};
  seen.lane = lane;
  seen.domain = kHost;
  seen.info.tool = tool;
  seen.info.source = source;
  seen.uid = 1000;
  return seen;
}

inline Duration Sec(double seconds) {
  return Duration{static_cast<int64_t>(seconds * 1e9)};
}

}  // namespace headroom::policy

#endif  // HEADROOM_TESTS_UNIT_POLICY_FIXTURE_H_
