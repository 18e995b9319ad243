#include "server/trace/replay.h"

#include <absl/strings/str_cat.h>

#include <tuple>
#include <utility>
#include <vector>

#include "server/policy/step.h"
#include "server/trace/codec.h"

namespace headroom::trace {

// Where in a run the replay stands.
struct Replayer::Position {
  policy::State state;
  bool running = false;  // `state` is the one after the step before
  uint64_t run = 0;
  uint64_t number = 0;
  int64_t at_ns = 0;
};

namespace {

absl::Status At(const Reader& reader, const absl::Status& status) {
  return {status.code(), absl::StrCat(reader.name(), ", record at byte ", reader.offset(), ": ",
                                      std::string(status.message()))};
}

// Which members of the State differ, by their place in State::Fields().
std::string DifferingMembers(const policy::State& a, const policy::State& b) {
  std::string members;
  int number = 0;
  const auto compare = [&](auto member) {
    ++number;
    if (!(a.*member == b.*member)) absl::StrAppend(&members, members.empty() ? "" : ", ", number);
  };
  std::apply([&](auto... all) { (compare(all), ...); }, policy::State::Fields());
  return members;
}

std::string Text(const std::vector<policy::Action>& actions) {
  std::string text;
  for (const policy::Action& action : actions) {
    v1::TraceAction encoded;
    EncodeAction(action, encoded);
    absl::StrAppend(&text, "    ", encoded.ShortDebugString(), "\n");
  }
  return text.empty() ? "    (none)\n" : text;
}

}  // namespace

Replayer::Replayer() : position_(std::make_unique<Position>()) {}
Replayer::~Replayer() = default;

absl::StatusOr<ReplayResult> Replayer::Run(Reader& reader) {
  Position& at = *position_;
  ReplayResult result;
  uint64_t step_number = 0;
  while (const auto record = reader.Next()) {
    if (record->has_segment()) {
      const v1::TraceSegment& segment = record->segment();
      auto state = DecodeState(segment.state());
      if (!state.ok()) return At(reader, state.status());
      if (segment.state_layout() != StateLayout())
        return At(reader, absl::FailedPreconditionError(absl::StrCat(
                              "recorded by version ", segment.version(), " with a State of layout ",
                              segment.state_layout(), ", this program has ", StateLayout(),
                              ": replay it with the version that recorded it")));
      const bool follows = at.running && !segment.after_gap() && segment.run() == at.run &&
                           segment.number() == at.number + 1;
      if (follows && !(at.state == *state)) {
        result.difference = Difference{
            result.segments, 0, reader.offset(),
            absl::StrCat("the snapshot differs from the state that replay has reached, in ",
                         "member(s) ", DifferingMembers(at.state, *state), " of State::Fields()")};
        return result;
      }
      at.state = *std::move(state);
      at.running = true;
      at.run = segment.run();
      at.number = segment.number();
      at.at_ns = segment.at_ns();
      if (result.versions.find(segment.version()) == std::string::npos)
        absl::StrAppend(&result.versions, result.versions.empty() ? "" : ", ", segment.version());
      ++result.segments;
      step_number = 0;
      continue;
    }
    if (!at.running)
      return At(reader, absl::InvalidArgumentError("a step before any segment's beginning"));
    const v1::TraceStep& step = record->step();
    const auto event = DecodeEvent(step.event());
    if (!event.ok()) return At(reader, event.status());
    std::vector<policy::Action> then;
    for (const v1::TraceAction& encoded : step.actions()) {
      auto action = DecodeAction(encoded);
      if (!action.ok()) return At(reader, action.status());
      then.push_back(*std::move(action));
    }
    // Wraps where a damaged file overflows, as the differences of the recorder do.
    const auto now_ns = static_cast<int64_t>(static_cast<uint64_t>(at.at_ns) +
                                             static_cast<uint64_t>(step.since_ns()));
    const policy::Time now{policy::Duration(now_ns)};
    const std::vector<policy::Action> again = policy::Step(at.state, *event, now);
    ++result.steps;
    result.actions += then.size();
    if (again != then) {
      result.difference =
          Difference{result.segments - 1, step_number, reader.offset(),
                     absl::StrCat("at ", now_ns, " ns the event\n    ",
                                  step.event().ShortDebugString(), "\n  was answered by\n",
                                  Text(then), "  and is answered now by\n", Text(again))};
      at.running = false;
      return result;
    }
    ++step_number;
  }
  result.torn = reader.torn();
  // What is missing may have changed the state.
  if (result.torn) at.running = false;
  return result;
}

}  // namespace headroom::trace
