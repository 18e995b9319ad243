#include "client/cli/summary.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "client/cli/units.h"

namespace headroom::cli {
namespace {

// A build with thousands of them is told enough by the counts.
constexpr int kMostIncidents = 20;
// So many of each kind come first: what was done about twenty kills must not drown in them.
constexpr int kOfEachKind = 4;

std::string KindText(v1::Incident::Kind kind) {
  switch (kind) {
    case v1::Incident::FREEZE:
      return "frozen";
    case v1::Incident::EVICTION:
      return "evicted, to run again";
    case v1::Incident::OOM_KILL:
      return "OOM kill";
    case v1::Incident::RETRY:
      return "run again";
    case v1::Incident::GIVEN_UP:
      return "given up";
    default:  // An open enum: a newer daemon may know more.
      return "incident";
  }
}

int Gravity(v1::Incident::Kind kind) {
  switch (kind) {
    case v1::Incident::GIVEN_UP:
      return 4;
    case v1::Incident::OOM_KILL:
      return 3;
    case v1::Incident::RETRY:
      return 2;
    case v1::Incident::FREEZE:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

std::string IncidentLine(const v1::Incident& incident) {
  std::string line = KindText(incident.kind());
  absl::StrAppend(&line, ": ", incident.tool().empty() ? "a process" : Printable(incident.tool()));
  if (!incident.source().empty()) absl::StrAppend(&line, " for ", Printable(incident.source()));
  if (incident.bytes() != 0)
    absl::StrAppend(&line, " at ", HumanBytes(static_cast<int64_t>(incident.bytes())));
  if (incident.limit_bytes() != 0)
    absl::StrAppend(&line, ", limit ", HumanBytes(static_cast<int64_t>(incident.limit_bytes())));
  if (!incident.domain().empty()) absl::StrAppend(&line, " (", Printable(incident.domain()), ")");
  if (incident.at_ns() != 0)
    absl::StrAppend(&line, ", ", HumanDuration(std::chrono::nanoseconds(incident.at_ns())),
                    " after the start");
  return line;
}

std::vector<std::string> SummaryLines(std::chrono::nanoseconds wall,
                                      const std::optional<v1::LaneSummary>& summary) {
  std::vector<std::string> lines;
  // In seconds, however long: this line is for scripts too.
  std::string first = absl::StrFormat("wall %.1f s", std::chrono::duration<double>(wall).count());
  if (!summary) {
    lines.push_back(first + " (no other figures: there was no headroomd at the end)");
    return lines;
  }
  absl::StrAppend(&first, ", peak ", HumanBytes(static_cast<int64_t>(summary->peak_bytes())),
                  ", jobs ", summary->jobs_min(), " min ", OneDecimal(summary->jobs_mean()),
                  " mean ", summary->jobs_max(), " max, ",
                  Count(summary->freezes(), "freeze", "freezes"), ", ",
                  Count(summary->oom_kills(), "OOM kill", "OOM kills"));
  if (summary->evictions() != 0)
    absl::StrAppend(&first, ", ", Count(summary->evictions(), "eviction", "evictions"));
  if (summary->retries() != 0)
    absl::StrAppend(&first, ", ", Count(summary->retries(), "process", "processes"), " run again");
  if (summary->tools_mean() > 0)
    absl::StrAppend(&first, ", ", OneDecimal(summary->tools_mean()), " tool processes mean");
  lines.push_back(first);
  if (summary->daemon_restarted())
    lines.push_back("headroomd was started again meanwhile: the figures begin there");
  // Where there are too many, some of each kind, then the grave ones: a kill must not drown in
  // evictions.
  std::vector<int> order(static_cast<size_t>(summary->incidents_size()));
  std::iota(order.begin(), order.end(), 0);
  std::map<v1::Incident::Kind, int> seen;
  std::vector<std::pair<bool, int>> rank;  // by position
  for (const v1::Incident& incident : summary->incidents())
    rank.emplace_back(++seen[incident.kind()] <= kOfEachKind, Gravity(incident.kind()));
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return rank[static_cast<size_t>(a)] > rank[static_cast<size_t>(b)];
  });
  const int shown = std::min(summary->incidents_size(), kMostIncidents);
  order.resize(static_cast<size_t>(shown));
  std::sort(order.begin(), order.end());
  for (const int i : order) lines.push_back(IncidentLine(summary->incidents(i)));
  if (summary->incidents_size() > shown)
    lines.push_back(
        absl::StrCat("and ", summary->incidents_size() - shown, " more; see the trace"));
  if (summary->ungated() != 0) {
    std::string line = absl::StrCat(
        Count(summary->ungated(), "tool process was", "tool processes were"),
        " out of the gate's reach (static, setuid, or started without our environment)");
    for (int i = 0; i < summary->ungated_tools_size(); ++i)
      absl::StrAppend(&line, i == 0 ? ": " : ", ", Printable(summary->ungated_tools(i)));
    lines.push_back(line);
  }
  return lines;
}

}  // namespace headroom::cli
