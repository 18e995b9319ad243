// What `headroom run` says at the end. Pure.
#ifndef HEADROOM_CLIENT_CLI_SUMMARY_H_
#define HEADROOM_CLIENT_CLI_SUMMARY_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "headroom/v1/control.pb.h"

namespace headroom::cli {

// The first line is always there:
//   wall 192.3 s, peak 11.2 GiB, jobs 1 min 5.3 mean 16 max, 2 freezes, 0 OOM kills
// (scripts read it: numbers keep their place, new ones come behind). A line for each thing that
// went wrong follows. `wall` is ours; the rest is the daemon's, where one was there to the end.
std::vector<std::string> SummaryLines(std::chrono::nanoseconds wall,
                                      const std::optional<v1::LaneSummary>& summary);

// "OOM kill: cicc for flash_bwd.cu at 6.1 GiB, limit 12 GiB (/build)".
std::string IncidentLine(const v1::Incident& incident);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_SUMMARY_H_
