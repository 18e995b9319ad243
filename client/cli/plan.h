// `headroom plan`: what a build would do on another machine, from curves that `headroom run
// --curves` wrote. Runs the simulator (server/sim); asks no daemon and changes nothing.
#ifndef HEADROOM_CLIENT_CLI_PLAN_H_
#define HEADROOM_CLIENT_CLI_PLAN_H_

#include <string>
#include <vector>

#include "server/sim/curves.h"

namespace headroom::cli {

struct PlanOptions {
  std::string curves;  // a file
  int cores = 0;       // 0: this machine's
  double mem_gb = 0;   // 10^9 bytes; 0: this machine's
  int archs = 0;       // nvcc's; 0: those that were recorded
  int threads = 0;     // nvcc --threads; 0: as recorded
  bool json = false;
};

// How one way to run the build ends.
struct PlannedRun {
  bool passes = false;
  double seconds = 0;  // until its end; of one that fails, until the first OOM kill
  int oom_kills = 0;
  double peak_gb = 0;
};

struct Plan {
  int commands = 0;
  int processes = 0;      // with the archs asked for
  double cpu_s = 0;       // of all of them
  double largest_gb = 0;  // of one process
  std::string largest;    // "cicc of a.cu"
  PlannedRun first;       // headroom run, nothing known
  PlannedRun second;      // and again, with what the first has taught
  PlannedRun plain;       // -j with as many as cores
  int best_fixed = 0;     // the fastest -j that passes whatever the noise; 0: not even -j1
  PlannedRun fixed;       // with it
};

// Pure; `options` with cores, mem_gb and threads filled in. Seconds to minutes for large builds.
Plan MakePlan(const std::vector<sim::Command>& commands, const PlanOptions& options);

// In words, as the command prints it.
std::string PlanText(const Plan& plan, const PlanOptions& options);
std::string PlanJson(const Plan& plan, const PlanOptions& options);

// The command. 0: done; 1: the curves can't be read or printed.
int ShowPlan(PlanOptions options);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_PLAN_H_
