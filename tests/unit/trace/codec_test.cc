#include "server/trace/codec.h"

#include <boost/pfr.hpp>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "headroom/v1/trace.pb.h"
#include "server/trace/fields.h"
#include "tests/support/random_values.h"

using namespace headroom;
using headroom::testing::Randomise;
using headroom::testing::Rng;

namespace {

// Every member is named by Fields(), in this struct and those in it.
template <typename T>
constexpr bool kComplete = boost::pfr::tuple_size_v<T> == std::tuple_size_v<decltype(T::Fields())>;
static_assert(kComplete<policy::Stats>);
static_assert(kComplete<policy::Profile>);
static_assert(kComplete<policy::DomainState>);
static_assert(kComplete<policy::HintState>);
static_assert(kComplete<policy::LaneState>);
static_assert(kComplete<policy::Usage>);
static_assert(kComplete<policy::JobState>);
static_assert(kComplete<policy::ProcState>);
static_assert(kComplete<policy::GateState>);
// State::curves is derived from the rest and no part of its value.
static_assert(boost::pfr::tuple_size_v<policy::State> ==
              std::tuple_size_v<decltype(policy::State::Fields())> + 1);

policy::Event There(const policy::Event& event, std::string* bytes = nullptr) {
  v1::TraceEvent encoded;
  trace::EncodeEvent(event, encoded);
  const std::string wire = encoded.SerializeAsString();
  if (bytes != nullptr) *bytes = wire;
  v1::TraceEvent parsed;
  REQUIRE(parsed.ParseFromString(wire));
  const auto back = trace::DecodeEvent(parsed);
  REQUIRE(back.ok());
  return *back;
}

}  // namespace

TEST_CASE("every event comes back as it went") {
  Rng rng(1);
  std::set<size_t> kinds;
  for (int i = 0; i < 5000; ++i) {
    policy::Event event;
    Randomise(rng, event);
    kinds.insert(event.index());
    INFO("kind " << event.index() << ", round " << i);
    REQUIRE(There(event) == event);
  }
  CHECK(kinds.size() == std::variant_size_v<policy::Event>);
}

TEST_CASE("every action comes back as it went") {
  Rng rng(2);
  std::set<size_t> kinds;
  for (int i = 0; i < 5000; ++i) {
    policy::Action action;
    Randomise(rng, action);
    kinds.insert(action.index());
    INFO("kind " << action.index() << ", round " << i);
    v1::TraceAction encoded;
    trace::EncodeAction(action, encoded);
    v1::TraceAction parsed;
    REQUIRE(parsed.ParseFromString(encoded.SerializeAsString()));
    const auto back = trace::DecodeAction(parsed);
    REQUIRE(back.ok());
    REQUIRE(*back == action);
  }
  CHECK(kinds.size() == std::variant_size_v<policy::Action>);
}

TEST_CASE("a state comes back as it went") {
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    policy::State state;
    Randomise(rng, state);
    const auto back = trace::DecodeState(trace::EncodeState(state));
    REQUIRE(back.ok());
    REQUIRE(*back == state);
  }
  CHECK(*trace::DecodeState("") == policy::State{});
  CHECK(trace::EncodeState(policy::State{}).empty());
}

TEST_CASE("a sample of 300 processes is small") {
  policy::Sample sample;
  for (int i = 0; i < 300; ++i) {
    sample.procs.push_back({{100'000 + 3 * i, 50'000'000U + static_cast<uint64_t>(7 * i)},
                            policy::MiB(1000 + i),
                            std::chrono::milliseconds(12'340 + 10 * i)});
  }
  std::string bytes;
  There(sample, &bytes);
  CHECK(bytes.size() < 300U * 16U);
}

TEST_CASE("damaged events are errors") {
  v1::TraceEvent event;
  CHECK_FALSE(trace::DecodeEvent(event).ok());
  event.mutable_lane_opened()->set_kind(2);
  CHECK_FALSE(trace::DecodeEvent(event).ok());
  event.mutable_lane_opened()->set_kind(257);
  CHECK_FALSE(trace::DecodeEvent(event).ok());
  event.mutable_gate_ended()->set_end(4);
  CHECK_FALSE(trace::DecodeEvent(event).ok());
  event.mutable_sample()->add_proc_pid(1);
  CHECK_FALSE(trace::DecodeEvent(event).ok());
  auto* sample = event.mutable_sample();
  sample->add_proc_start(1);
  sample->add_proc_anon(1);
  sample->add_proc_cpu_ns(1);
  CHECK(trace::DecodeEvent(event).ok());
  sample->set_proc_pid(0, int64_t{1} << 40);
  CHECK_FALSE(trace::DecodeEvent(event).ok());
  sample->set_proc_pid(0, std::numeric_limits<int64_t>::max());
  sample->add_proc_pid(1);
  sample->add_proc_start(1);
  sample->add_proc_anon(1);
  sample->add_proc_cpu_ns(1);
  CHECK_FALSE(trace::DecodeEvent(event).ok());

  v1::TraceAction action;
  CHECK_FALSE(trace::DecodeAction(action).ok());
  action.mutable_mint()->set_count(1);
  CHECK(trace::DecodeAction(action).ok());
  action.mutable_reason()->add_input(1);
  CHECK_FALSE(trace::DecodeAction(action).ok());
  action.mutable_reason()->add_value(1);
  CHECK(trace::DecodeAction(action).ok());
  action.mutable_reason()->set_code(1000);
  CHECK_FALSE(trace::DecodeAction(action).ok());
}

TEST_CASE("damaged states are errors or other states, never worse") {
  Rng rng(4);
  policy::State state;
  Randomise(rng, state);
  while (state.procs.empty() || state.lanes.empty() || state.profile.classes.empty())
    Randomise(rng, state);
  const std::string good = trace::EncodeState(state);
  for (size_t cut = 0; cut < good.size(); ++cut) {
    const auto back = trace::DecodeState(good.substr(0, cut));
    if (back.ok()) CHECK_FALSE(*back == state);
  }
  size_t refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bad = good;
    for (uint64_t n = 1 + rng() % 4; n > 0; --n) bad[rng() % bad.size()] = static_cast<char>(rng());
    if (!trace::DecodeState(bad).ok()) ++refused;
  }
  // About half: many of a State's bytes are of numbers, where any value is one.
  CHECK(refused > 5'000);
  // Counts that the bytes can't fill: a vector of 2^60 processes.
  std::string huge = "\x4a\x0a";  // member 9, procs: 10 bytes
  huge += "\xff\xff\xff\xff\xff\xff\xff\xff\x0f\x00";
  CHECK_FALSE(trace::DecodeState(huge).ok());
}

namespace {

struct Inner {
  int value = 7;
  static constexpr auto Fields() { return std::tuple(&Inner::value); }
  friend bool operator==(const Inner&, const Inner&) = default;
};
struct Older {
  std::string name;
  std::vector<Inner> inner;
  static constexpr auto Fields() { return std::tuple(&Older::name, &Older::inner); }
};
struct Newer {
  std::string name;
  std::vector<Inner> inner;
  double added = 1.5;
  std::optional<std::string> more = std::nullopt;
  std::map<int, Inner> map;
  static constexpr auto Fields() {
    return std::tuple(&Newer::name, &Newer::inner, &Newer::added, &Newer::more, &Newer::map);
  }
};

}  // namespace

TEST_CASE("members may be added at the end of a struct") {
  const Older older{"n", {{1}, {7}}};
  const auto newer = trace::DecodeFields<Newer>(trace::EncodeFields(older));
  REQUIRE(newer);
  CHECK(newer->name == "n");
  CHECK(newer->inner == older.inner);
  CHECK(newer->added == 1.5);

  const Newer full{"n", {{1}}, 0, "", {{-3, {4}}}};
  const auto back = trace::DecodeFields<Newer>(trace::EncodeFields(full));
  REQUIRE(back);
  CHECK(back->added == 0);
  CHECK(back->more == "");
  CHECK(back->map == full.map);
  const auto cut = trace::DecodeFields<Older>(trace::EncodeFields(full));
  REQUIRE(cut);
  CHECK(cut->inner == full.inner);

  CHECK(trace::DescribeFields<Older>() != trace::DescribeFields<Newer>());
  CHECK(trace::StateLayout().size() == 16);
}
