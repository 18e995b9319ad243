#include "client/cli/explain.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace headroom::cli::explain_test {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

v1::Decision Make(const std::string& action, const std::string& reason,
                  const std::map<std::string, int64_t>& inputs) {
  setenv("TZ", "UTC", 1);
  tzset();
  v1::Decision decision;
  decision.set_at_ns((10 * 3600 + 42 * 60 + 7) * uint64_t{1'000'000'000} + 300'000'000);
  decision.set_action(action);
  decision.set_reason(reason);
  decision.set_lane(3);
  decision.set_lane_name("run-1234-1");
  for (const auto& [name, value] : inputs) (*decision.mutable_inputs())[name] = value;
  return decision;
}

TEST_CASE("A decision in words, with all its inputs") {
  v1::Decision mint = Make("mint", "memory_fits",
                           {{"available_bytes", 182 * kGiB / 10},
                            {"reserve_bytes", kGiB},
                            {"expected_growth_bytes", 94 * kGiB / 10},
                            {"headroom_bytes", 78 * kGiB / 10},
                            {"need_bytes", 19 * kGiB / 10},
                            {"domain", 1}});
  mint.set_count(4);
  CHECK(Sentence(mint) ==
        "10:42:07.3 minted 4 tokens for run-1234-1: 18.2 GiB available - 1.0 GiB reserve - 9.4 GiB "
        "expected growth leaves 7.8 GiB; the next job is expected to need 1.9 GiB");

  v1::Decision collect =
      Make("collect", "memory_tight", {{"headroom_bytes", -kGiB}, {"minted", 5}});
  collect.set_count(1);
  CHECK(Sentence(collect) ==
        "10:42:07.3 takes 1 token back from run-1234-1: headroom is -1.0 GiB; too little for one "
        "more (minted 5)");

  v1::Decision freeze = Make("freeze", "brake",
                             {{"fill_rate_bytes_per_second", 2 * kGiB},
                              {"proc_bytes", 3 * kGiB},
                              {"predicted_peak_bytes", 5 * kGiB},
                              {"prediction_source", 1}});
  freeze.set_tool("cicc");
  freeze.set_source("src/flash_bwd.cu");
  freeze.set_pid(77);
  freeze.set_domain("/build");
  CHECK(Sentence(freeze) ==
        "10:42:07.3 froze cicc for src/flash_bwd.cu (pid 77) of run-1234-1: /build runs short of "
        "memory; it fills at 2.0 GiB/s; it has 3.0 GiB of an expected 5.0 GiB; "
        "expected by what this tool took in this build");
}

TEST_CASE("Every reason of the policy has words of its own") {
  // policy/action.h, in snake case.
  for (const char* reason :
       {"memory_fits",   "memory_tight",   "cores_full",    "floor",          "fair_share",
        "slow_start",    "leak",           "clients_gone",  "surplus",        "brake",
        "room_again",    "waits_for_gate", "retry_evicted", "retry_oom_kill", "retry_killed",
        "tries_used_up", "not_replayable", "own_end",       "too_big",        "prediction_off"}) {
    INFO(reason);
    const std::string text = Sentence(Make("mint", reason, {{"available_bytes", kGiB}}));
    CHECK(text.find("1.0 GiB") != std::string::npos);
    CHECK(text.find(reason) == std::string::npos);
  }
}

TEST_CASE("What a newer daemon says is readable still") {
  const std::string text = Sentence(Make("teleport", "full_moon",
                                         {{"moon_bytes", kGiB},
                                          {"wind_permyriad", 1234},
                                          {"tide_nanos", 1'500'000'000},
                                          {"owls", 3}}));
  CHECK(text ==
        "10:42:07.3 teleport a process of run-1234-1: full_moon (moon 1.0 GiB, owls 3, tide 1.5 s, "
        "wind 12.3 %)");
}

TEST_CASE("Hostile names stay text") {
  v1::Decision decision = Make("freeze", "brake", {});
  decision.set_tool("ci\x1b[2Jcc");
  decision.set_source("a\nb");
  const std::string text = Sentence(decision);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
  decision.set_tool("\xff");
  const auto json = nlohmann::json::parse(DecisionJson(decision));
  CHECK(json["source"] == "a\nb");
}

TEST_CASE("A decision as JSON: numbers are numbers") {
  const auto json =
      nlohmann::json::parse(DecisionJson(Make("mint", "floor", {{"need_bytes", 5 * kGiB}})));
  CHECK(json["inputs"]["need_bytes"] == 5 * kGiB);
  CHECK(json["inputs"]["need_bytes"].is_number_integer());
  CHECK(json["lane"] == 3);
  CHECK(json["text"].get<std::string>().find("one always may") != std::string::npos);
}

}  // namespace
}  // namespace headroom::cli::explain_test
