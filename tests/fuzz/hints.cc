#include "tests/fuzz/hints.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "server/daemon/hints.h"

namespace {

void Check(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "broken promise: %s\n", what);
  abort();
}

}  // namespace

extern "C" int FuzzHints(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  headroom::daemon::HintLimits limits;
  limits.bytes = 4096;
  limits.files = 5;
  limits.depth = 3;
  limits.edges = 50;
  limits.command = 512;
  int files = 0;
  headroom::daemon::HintSource source;
  source.read = [&](const std::string&, size_t limit) -> std::optional<std::string> {
    ++files;
    Check(limit <= limits.bytes, "hints: more is read than the limit");
    return text.substr(0, limit);
  };
  source.exists = [](const std::string& path) { return path.size() % 7 == 3; };
  const auto hints = headroom::daemon::ParseNinja("build.ninja", source, limits);
  Check(files <= limits.files, "hints: more files than the limit");
  int edges = 0;
  for (const auto& hint : hints) {
    Check(hint.count > 0 && hint.fan_out > 0, "hints: an empty kind of edge");
    Check(!hint.driver.empty(), "hints: a driver without a name");
    edges += hint.count;
  }
  Check(edges <= limits.edges, "hints: more edges than the limit");
  return 0;
}
