// The history as text that people can send: `headroom history export` and `import`. JSON:
//   {"headroom_history": 1, "classes": [{"name": "cicc flash_bwd_hdim128", "above": "cicc", ...}]}
// Pure. Errors: InvalidArgument with what is wrong and where; hostile input gives errors.
#ifndef HEADROOM_SERVER_HISTORY_TEXT_H_
#define HEADROOM_SERVER_HISTORY_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/history/history.h"

namespace headroom::history {

std::string ToJson(const std::vector<Row>& rows);
absl::StatusOr<std::vector<Row>> FromJson(std::string_view text);

// Geometric mean of the peaks, in bytes, and of the CPU seconds; 0: none was seen.
double TypicalPeak(const policy::Stats& stats);
double TypicalCpuSeconds(const policy::Stats& stats);

}  // namespace headroom::history

#endif  // HEADROOM_SERVER_HISTORY_TEXT_H_
