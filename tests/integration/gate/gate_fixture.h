// What the gate's tests have in common: a lane, and programs in it.
#ifndef HEADROOM_TESTS_INTEGRATION_GATE_GATE_FIXTURE_H_
#define HEADROOM_TESTS_INTEGRATION_GATE_GATE_FIXTURE_H_

#include <signal.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/integration/gate/fake_gate.h"
#include "tests/support/testing.h"

namespace headroom::testing {

inline std::string Probe() {
  return HEADROOM_GATE_PROBE_DIR "/probe";
}

// Dead; whether its new parent has noticed is that one's business.
inline bool Gone(pid_t pid) {
  const std::optional<char> state = ProcessState(pid);
  return !state || *state == 'Z';
}

// kill() to the worker that `event` tells of, if it still is that keeper's child: its number may be
// someone else's by now.
inline void KillWorker(const GateEvent& event, int signal) {
  for (const pid_t pid : Descendants(event.keeper)) {
    if (pid == event.started.worker_pid) kill(pid, signal);
  }
}

// A lane's folder with nobody listening, and the environment of a build in it.
class Lane {
 public:
  const fs::path& path() const { return dir_.path(); }
  fs::path operator/(const fs::path& name) const { return dir_ / name; }

  // A program of the build. The probe counts as a tool.
  ProgramOptions Options(std::vector<std::string> argv) const {
    ProgramOptions options;
    options.argv = std::move(argv);
    options.env["LD_PRELOAD"] = HEADROOM_PRELOAD_LIBRARY;
    options.env["HEADROOM_LANE"] = path().string();
    options.env["HEADROOM_TOOLS"] = "+probe";
    options.env["HEADROOM_CORES"] = "2";
    options.env["ASAN_OPTIONS"] = "verify_asan_link_order=0";
    return options;
  }
  ProgramOptions ProbeOptions(std::vector<std::string> words) const {
    words.insert(words.begin(), Probe());
    return Options(std::move(words));
  }

 private:
  TempDir dir_;
};

// The same, without the gate.
inline ProgramOptions Ungated(ProgramOptions options) {
  options.env["LD_PRELOAD"] = std::nullopt;
  options.env["HEADROOM_LANE"] = std::nullopt;
  return options;
}

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_INTEGRATION_GATE_GATE_FIXTURE_H_
