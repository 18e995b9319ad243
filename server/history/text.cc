#include "server/history/text.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/policy/predict.h"

namespace headroom::history {
namespace {

using nlohmann::json;
using policy::Stats;

constexpr int kFormat = 1;
// More than any history has: `most_classes` several times over.
constexpr size_t kMostClasses = 100'000;

// Throws json::exception where something is missing or of another type.
Row FromOne(const json& one) {
  Row row;
  Stats& stats = row.stats;
  stats.name = one.at("name").get<std::string>();
  row.above = one.at("above").get<std::string>();
  stats.key = one.at("key").get<std::string>();
  stats.job = one.at("job").get<bool>();
  stats.one_source = one.at("one_source").get<bool>();
  const int64_t fan_out = one.at("fan_out").get<int64_t>();
  stats.fan_out = fan_out < 0 || fan_out > 1000 ? 0 : static_cast<int>(fan_out);
  stats.count = one.at("count").get<double>();
  stats.log_peak = one.at("log_peak").get<double>();
  stats.log_peak2 = one.at("log_peak2").get<double>();
  stats.cpu_count = one.at("cpu_count").get<double>();
  stats.log_cpu = one.at("log_cpu").get<double>();
  stats.log_cpu2 = one.at("log_cpu2").get<double>();
  stats.shape_count = one.at("shape_count").get<double>();
  stats.largest.count = one.at("largest_bytes").get<int64_t>();
  const auto curve = [&](const char* name, std::array<double, policy::kShapePoints>& points) {
    const json& list = one.at(name);
    if (!list.is_array() || list.size() != points.size()) {
      stats.fan_out = 0;  // not sane
      return;
    }
    for (size_t i = 0; i < points.size(); ++i) points[i] = list[i].get<double>();
  };
  curve("level", stats.level);
  curve("rise", stats.rise);
  return row;
}

}  // namespace

std::string ToJson(const std::vector<Row>& rows) {
  json classes = json::array();
  for (const Row& row : rows) {
    const Stats& stats = row.stats;
    classes.push_back({{"name", stats.name},
                       {"above", row.above},
                       {"key", stats.key},
                       {"job", stats.job},
                       {"one_source", stats.one_source},
                       {"fan_out", stats.fan_out},
                       {"count", stats.count},
                       {"log_peak", stats.log_peak},
                       {"log_peak2", stats.log_peak2},
                       {"cpu_count", stats.cpu_count},
                       {"log_cpu", stats.log_cpu},
                       {"log_cpu2", stats.log_cpu2},
                       {"shape_count", stats.shape_count},
                       {"level", stats.level},
                       {"rise", stats.rise},
                       {"largest_bytes", stats.largest.count},
                       {"builds", row.builds},
                       {"used_at", row.used_at},
                       {"typical_peak_bytes", std::llround(TypicalPeak(stats))},
                       {"typical_cpu_s", TypicalCpuSeconds(stats)}});
  }
  const json all = {{"headroom_history", kFormat}, {"classes", std::move(classes)}};
  // Names come from file systems, where nothing makes them UTF-8.
  return all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::vector<Row>> FromJson(std::string_view text) {
  const json all = json::parse(text, nullptr, false);
  if (all.is_discarded() || !all.is_object() || !all.contains("headroom_history")) {
    return absl::InvalidArgumentError("this is no history: 'headroom history export' writes one");
  }
  if (all["headroom_history"] != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("a history of format ", all["headroom_history"].dump(),
                     "; this version knows ", kFormat, ": a newer headroom can read it"));
  }
  const auto list = all.find("classes");
  if (list == all.end() || !list->is_array() || list->size() > kMostClasses) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"classes\" is missing, no list, or longer than ", kMostClasses, " entries"));
  }
  std::vector<Row> rows;
  std::set<std::string> names;
  for (size_t i = 0; i < list->size(); ++i) {
    const json& one = (*list)[i];
    try {
      Row row = FromOne(one);
      if (!policy::IsSane(row.stats)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "class ", i + 1, " ('", row.stats.name.substr(0, 80),
            "') has numbers that no processes can have had; nothing is taken from this file"));
      }
      if (!names.insert(row.stats.name).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("class ", i + 1, " ('", row.stats.name, "') is there twice"));
      }
      rows.push_back(std::move(row));
    } catch (const json::exception& error) {
      return absl::InvalidArgumentError(absl::StrCat("class ", i + 1, ": ", error.what()));
    }
  }
  return rows;
}

double TypicalPeak(const Stats& stats) {
  return stats.count > 0 ? std::exp(stats.log_peak / stats.count) : 0;
}

double TypicalCpuSeconds(const Stats& stats) {
  return stats.cpu_count > 0 ? std::exp(stats.log_cpu / stats.cpu_count) : 0;
}

}  // namespace headroom::history
