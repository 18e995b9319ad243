// Builds of stand-ins below `headroom run`, with a private headroomd of the test's own.
#ifndef HEADROOM_TESTS_INTEGRATION_GATE_DAEMON_GATE_BUILD_H_
#define HEADROOM_TESTS_INTEGRATION_GATE_DAEMON_GATE_BUILD_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/testing.h"

namespace headroom::testing {

using Words = std::vector<std::string>;

bool Contains(const std::string& text, const std::string& part);
int CountOf(const std::string& text, const std::string& part);

// One folder with tools, a build and a runtime folder.
class GateBuild {
 public:
  // `static_tools`: out of the preload library's reach.
  explicit GateBuild(StandinBuild build, bool static_tools = false);
  ~GateBuild();

  const fs::path& dir() const { return dir_.path(); }
  fs::path runtime() const { return dir_ / "run"; }
  const StandinTools& tools() const { return tools_; }
  const StandinBuild& build() const { return build_; }

  // `headroom run OPTIONS -- COMMAND` in the build's folder. Nothing of an earlier run is left.
  ProgramOptions Run(const Words& options, const Words& command,
                     const MemoryCgroup* cgroup = nullptr) const;
  // The same command without Headroom.
  ProgramOptions Plain(const Words& command, const MemoryCgroup* cgroup = nullptr) const;
  // Removes outputs and logs.
  void Clean() const;

  std::vector<StandinRun> Log() const { return ReadStandinLog(dir_ / "standin.log"); }
  std::map<std::string, std::string> Outputs() const { return ReadOutputs(dir(), build_); }
  // What a build without pressure gives.
  std::map<std::string, std::string> Expected() const;
  std::string DaemonLog() const;
  std::optional<pid_t> Daemon() const;
  // The private daemon ends with its lanes; false: it still lives after 20 s.
  bool DaemonEnds() const;

 private:
  void Write(const StandinBuild& build) const;

  TempDir dir_;
  StandinTools tools_;
  StandinBuild build_;
};

// ninja that knows no jobserver (Debian's 1.11.1); nothing where PATH has another.
std::optional<std::string> OldNinja();

// `count` commands of an nvcc that runs cc1plus, cicc and ptxas one after the other; cicc comes to
// `mean_bytes` on average. Their largest processes' mean is that, too.
StandinBuild CudaBuild(int count, std::uint64_t mean_bytes, double seconds);

// Processes whose environment has HEADROOM_LANE below `runtime`, keepers and workers included.
std::vector<pid_t> LeftOver(const fs::path& runtime);

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_INTEGRATION_GATE_DAEMON_GATE_BUILD_H_
