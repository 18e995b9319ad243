// Names of decisions: what an older client shows of a newer daemon's decision, so each must be its
// own and stay as it is.
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "server/daemon/core.h"
#include "server/policy/action.h"

using namespace headroom;

namespace {

// Values of an enum up to the first that has no name; those behind have none either.
template <typename Enum>
std::vector<std::string> Names() {
  std::vector<std::string> names;
  bool ended = false;
  for (int i = 0; i < 256; ++i) {
    const std::string name = daemon::NameOf(static_cast<Enum>(i));
    if (name == "unknown") {
      ended = true;
      continue;
    }
    CHECK_FALSE(ended);
    names.push_back(name);
  }
  return names;
}

bool IsSnakeCase(const std::string& name) {
  return !name.empty() &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos;
}

template <typename Enum>
void CheckNames(size_t least) {
  const std::vector<std::string> names = Names<Enum>();
  CHECK(names.size() >= least);
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
  for (const std::string& name : names) {
    INFO(name);
    CHECK(IsSnakeCase(name));
  }
}

}  // namespace

TEST_CASE("every reason and every input has a name of its own") {
  CheckNames<policy::ReasonCode>(20);
  CheckNames<policy::Input>(24);
}

TEST_CASE("every action but the sampler's is a decision with a name of its own") {
  const policy::Reason reason{policy::ReasonCode::kBrake, {{policy::Input::kAvailableBytes, -5}}};
  const std::vector<policy::Action> actions = {
      policy::Mint{policy::LaneId{1}, 3, reason},
      policy::Collect{policy::LaneId{1}, 2, reason},
      policy::Freeze{{7, 1}, policy::LaneId{1}, reason},
      policy::Thaw{{7, 1}, policy::LaneId{1}, reason},
      policy::Admit{policy::GateId{1}, {}, reason},
      policy::Evict{policy::GateId{1}, {}, reason},
      policy::Verdict{policy::GateId{1}, true, {}, false, reason},
      policy::Verdict{policy::GateId{1}, false, {}, false, reason},
  };
  std::set<std::string> names;
  for (const policy::Action& action : actions) {
    daemon::Decision decision;
    decision.action = action;
    decision.at = std::chrono::system_clock::time_point(std::chrono::seconds(5));
    const v1::Decision out = daemon::ToProto(decision);
    CHECK(IsSnakeCase(out.action()));
    names.insert(out.action());
    CHECK(out.reason() == "brake");
    CHECK(out.inputs().at("available_bytes") == -5);
    CHECK(out.at_ns() == 5'000'000'000);
  }
  CHECK(names.size() == actions.size());
  daemon::Decision mint;
  mint.action = actions[0];
  CHECK(daemon::ToProto(mint).count() == 3);
  CHECK(daemon::ReasonOf(policy::SetSampling{}) == nullptr);
}
