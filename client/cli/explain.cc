#include "client/cli/explain.h"

#include <absl/strings/str_cat.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "client/cli/units.h"

namespace headroom::cli {
namespace {

// The inputs of a decision; remembers which of them have been told.
class Inputs {
 public:
  explicit Inputs(const v1::Decision& decision)
      : rest_(decision.inputs().begin(), decision.inputs().end()) {
    rest_.erase("domain");  // its number; the decision has the name
  }

  std::optional<int64_t> Take(const std::string& name) {
    const auto found = rest_.find(name);
    if (found == rest_.end()) return std::nullopt;
    const int64_t value = found->second;
    rest_.erase(found);
    return value;
  }
  std::optional<std::string> TakeBytes(const std::string& name) {
    const auto value = Take(name);
    if (!value) return std::nullopt;
    return HumanBytes(*value);
  }

  // "minted 5, fill rate 1.2 GiB/s".
  std::string Rest() const {
    std::string text;
    for (const auto& [name, value] : rest_) {
      if (!text.empty()) text += ", ";
      text += Tell(name, value);
    }
    return text;
  }

 private:
  static bool Cut(std::string& name, std::string_view ending) {
    if (name.size() <= ending.size() || name.substr(name.size() - ending.size()) != ending)
      return false;
    name.resize(name.size() - ending.size());
    for (char& c : name)
      if (c == '_') c = ' ';
    return true;
  }
  static std::string Tell(std::string name, int64_t value) {
    if (Cut(name, "_bytes_per_second")) return absl::StrCat(name, " ", HumanBytes(value), "/s");
    if (Cut(name, "_bytes")) return absl::StrCat(name, " ", HumanBytes(value));
    if (Cut(name, "_nanos"))
      return absl::StrCat(name, " ", HumanDuration(std::chrono::nanoseconds(value)));
    if (Cut(name, "_permyriad"))
      return absl::StrCat(name, " ", OneDecimal(static_cast<double>(value) / 100), " %");
    for (char& c : name)
      if (c == '_') c = ' ';
    return absl::StrCat(name, " ", value);
  }

  std::map<std::string, int64_t> rest_;
};

// "18.2 GiB available - 1.0 GiB reserve - 9.4 GiB expected growth leaves 7.8 GiB".
std::string Balance(Inputs& inputs) {
  std::string text;
  const auto part = [&](const char* name, const char* meaning) {
    const auto size = inputs.TakeBytes(name);
    if (!size) return;
    absl::StrAppend(&text, text.empty() ? "" : " - ", *size, " ", meaning);
  };
  part("available_bytes", "available");
  part("reserve_bytes", "reserve");
  part("expected_growth_bytes", "expected growth");
  part("safety_bytes", "for safety");
  if (const auto left = inputs.TakeBytes("headroom_bytes"))
    absl::StrAppend(&text, text.empty() ? "headroom is " : " leaves ", *left);
  return text;
}

std::string Subject(const v1::Decision& decision) {
  std::string text = decision.tool().empty() ? "a process" : Printable(decision.tool());
  if (!decision.source().empty()) absl::StrAppend(&text, " for ", Printable(decision.source()));
  if (decision.pid() != 0) absl::StrAppend(&text, " (pid ", decision.pid(), ")");
  return text;
}

std::string LaneOf(const v1::Decision& decision) {
  if (!decision.lane_name().empty()) return Printable(decision.lane_name());
  return absl::StrCat("lane ", decision.lane());
}

std::string ActionText(const v1::Decision& decision) {
  const std::string& action = decision.action();
  const auto tokens = static_cast<uint64_t>(decision.count() < 0 ? 0 : decision.count());
  if (action == "mint")
    return absl::StrCat("minted ", Count(tokens, "token", "tokens"), " for ", LaneOf(decision));
  if (action == "collect") {
    if (tokens == 0) return absl::StrCat("no longer takes tokens back from ", LaneOf(decision));
    return absl::StrCat("takes ", Count(tokens, "token", "tokens"), " back from ",
                        LaneOf(decision));
  }
  const auto of_lane = [&](const char* verb, const char* behind) {
    std::string text = absl::StrCat(verb, " ", Subject(decision), behind);
    if (decision.lane() != 0 || !decision.lane_name().empty())
      absl::StrAppend(&text, " of ", LaneOf(decision));
    return text;
  };
  if (action == "freeze") return of_lane("froze", "");
  if (action == "thaw") return of_lane("thawed", "");
  if (action == "admit") return of_lane("admitted", "");
  if (action == "evict") return of_lane("evicted", ", to run again,");
  if (action == "retry") return of_lane("runs", " again,");
  if (action == "give_up") return of_lane("lets", " end as it did,");
  return of_lane(Printable(action).c_str(), "");
}

// policy/predict.h's PredictionSource, in its order.
std::string SourceText(int64_t source) {
  constexpr std::array<const char*, 6> kTexts = {
      "expected by what such tools usually take", "expected by what this tool took in this build",
      "expected by what like sources took",       "expected by what the same source took before",
      "expected by a test's fixed value",         "prediction is switched off"};
  if (source < 0 || static_cast<size_t>(source) >= kTexts.size())
    return absl::StrCat("expected by source ", source);
  return kTexts[static_cast<size_t>(source)];
}

// What was told of memory, with the clause that the reason adds.
std::string Because(const v1::Decision& decision, Inputs& inputs) {
  const std::string& reason = decision.reason();
  std::vector<std::string> clauses;
  const auto add = [&clauses](std::string text) {
    if (!text.empty()) clauses.push_back(std::move(text));
  };
  const auto need = [&](const char* who) -> std::string {
    const auto bytes = inputs.TakeBytes("need_bytes");
    return bytes ? absl::StrCat(who, " is expected to need ", *bytes) : "";
  };
  const bool tokens = decision.action() == "mint" || decision.action() == "collect";
  const char* const who = tokens ? "the next job" : "it";
  if (reason == "memory_fits" || reason == "memory_tight") {
    add(Balance(inputs));
    const std::string text = need(who);
    add(text.empty() && reason == "memory_tight" ? "too little for one more" : text);
  } else if (reason == "cores_full") {
    const auto cores = inputs.Take("cores");
    const auto running = inputs.Take("running_jobs");
    add(cores ? absl::StrCat("as many run as its ",
                             Count(static_cast<uint64_t>(*cores), "core", "cores"))
              : "as many run as there are cores");
    if (running) add(absl::StrCat(*running, " running"));
  } else if (reason == "floor") {
    add("nothing else of the lane runs, and one always may");
  } else if (reason == "fair_share") {
    add("other lanes wait for their share");
  } else if (reason == "slow_start") {
    add("nothing is known of this build yet, so it starts slowly");
    add(Balance(inputs));
    add(need(who));
  } else if (reason == "leak") {
    const auto out = inputs.Take("out");
    const auto explained = inputs.Take("explained");
    add(out && explained
            ? absl::StrCat(*out, " tokens are out, but the clients' children explain only ",
                           *explained)
            : "tokens are out that no client's child explains");
  } else if (reason == "clients_gone") {
    add("its last client is gone and can't give its tokens back");
  } else if (reason == "surplus") {
    add("there are more tokens in its fifo than were minted");
  } else if (reason == "brake") {
    add(absl::StrCat(decision.domain().empty() ? "the domain" : Printable(decision.domain()),
                     " runs short of memory"));
    add(Balance(inputs));
    if (const auto rate = inputs.TakeBytes("fill_rate_bytes_per_second"))
      add(absl::StrCat("it fills at ", *rate, "/s"));
  } else if (reason == "room_again") {
    add("there is room again");
    add(Balance(inputs));
    add(need(who));
  } else if (reason == "waits_for_gate") {
    add("what it started waits at the gate");
  } else if (reason == "retry_evicted") {
    add("Headroom itself had evicted it");
  } else if (reason == "retry_oom_kill") {
    add("the kernel's OOM killer had taken it");
  } else if (reason == "retry_killed") {
    add("it was killed from outside, without any sign that memory was short");
  } else if (reason == "tries_used_up") {
    add("it has been tried often enough");
  } else if (reason == "not_replayable") {
    add("it can't be run again unseen");
  } else if (reason == "own_end") {
    add("that was its own end");
  } else if (reason == "too_big") {
    const auto bytes = inputs.TakeBytes("need_bytes");
    const auto limit = inputs.TakeBytes("limit_bytes");
    add(bytes && limit ? absl::StrCat("it needs ", *bytes, " and there are ", *limit, " in all")
                       : "it needs more than there is in all");
  } else if (reason == "prediction_off") {
    add("prediction is switched off");
  } else if (!reason.empty()) {
    add(Printable(reason));
  }
  // What several reasons come with.
  if (const auto bytes = inputs.TakeBytes("proc_bytes")) {
    const auto peak = inputs.TakeBytes("predicted_peak_bytes");
    add(peak ? absl::StrCat("it has ", *bytes, " of an expected ", *peak)
             : absl::StrCat("it has ", *bytes));
  }
  if (const auto source = inputs.Take("prediction_source")) add(SourceText(*source));
  std::string text;
  for (const std::string& clause : clauses)
    absl::StrAppend(&text, text.empty() ? "" : "; ", clause);
  return text;
}

}  // namespace

std::string Sentence(const v1::Decision& decision) {
  Inputs inputs(decision);
  std::string text = absl::StrCat(TimeOfDay(decision.at_ns()), " ", ActionText(decision));
  if (text.back() == ',') text.pop_back();
  const std::string because = Because(decision, inputs);
  if (!because.empty()) absl::StrAppend(&text, ": ", because);
  if (const std::string rest = inputs.Rest(); !rest.empty())
    absl::StrAppend(&text, " (", rest, ")");
  return text;
}

std::string DecisionJson(const v1::Decision& decision) {
  nlohmann::ordered_json json;
  json["at_ns"] = decision.at_ns();
  json["action"] = decision.action();
  json["count"] = decision.count();
  json["lane"] = decision.lane();
  json["lane_name"] = decision.lane_name();
  json["pid"] = decision.pid();
  json["tool"] = decision.tool();
  json["source"] = decision.source();
  json["domain"] = decision.domain();
  json["reason"] = decision.reason();
  json["inputs"] = nlohmann::ordered_json::object();
  const std::map<std::string, int64_t> sorted(decision.inputs().begin(), decision.inputs().end());
  for (const auto& [name, value] : sorted) json["inputs"][name] = value;
  json["text"] = Sentence(decision);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace headroom::cli
