// What `headroom run --curves` leaves: the build's memory curves, out of the daemon's trace.
#ifndef HEADROOM_CLIENT_CLI_CURVES_H_
#define HEADROOM_CLIENT_CLI_CURVES_H_

#include <absl/status/status.h>

#include <string>

namespace headroom::cli {

// Reads a whole trace from the start of `trace`, an open file, and writes the curves of the lane
// with that folder name to `to`. Says how many, and whether commands are missing.
absl::Status WriteCurves(int trace, int to, const std::string& lane);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_CURVES_H_
