#include "client/cli/curves.h"

#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "client/cli/say.h"
#include "client/cli/units.h"
#include "server/trace/curves.h"
#include "server/trace/reader.h"

namespace headroom::cli {

absl::Status WriteCurves(int trace, int to, const std::string& lane) {
  auto reader = trace::Reader::Open(absl::StrCat("/proc/self/fd/", trace));
  if (!reader.ok()) return reader.status();
  trace::CurvesOfTrace curves(lane);
  while (const auto record = reader->Next()) {
    // What this version can't read it leaves out, and goes on.
    curves.Add(*record).IgnoreError();
  }
  const trace::CurvesWritten written = curves.Finish();
  std::string_view left = written.text;
  while (!left.empty()) {
    const ssize_t done = write(to, left.data(), left.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return absl::UnavailableError(std::strerror(errno));
    left.remove_prefix(static_cast<size_t>(done));
  }
  if (written.commands == 0) {
    Say("--curves: no compiler that Headroom knows was seen; the file is empty");
    return absl::OkStatus();
  }
  Say(absl::StrCat(
      "--curves: ", Count(static_cast<uint64_t>(written.commands), "command", "commands"), ", ",
      Count(static_cast<uint64_t>(written.processes), "process", "processes"),
      written.left_out > 0 ? absl::StrCat(" (", written.left_out, " too short to measure)") : "",
      written.complete ? ""
                       : "; the first ones are missing: the trace was too small (trace.max_size)"));
  return absl::OkStatus();
}

}  // namespace headroom::cli
