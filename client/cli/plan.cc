#include "client/cli/plan.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "client/cli/args.h"
#include "client/cli/say.h"
#include "client/cli/units.h"
#include "server/sim/scenario.h"
#include "server/sys/cores.h"
#include "server/sys/meminfo.h"

namespace headroom::cli {
namespace {

constexpr double kGB = 1e9;

PlannedRun Planned(const sim::RunResult& run) {
  PlannedRun planned;
  planned.passes = !run.failed;
  planned.seconds = run.failed && run.first_oom_s > 0 ? run.first_oom_s : run.seconds;
  planned.oom_kills = run.oom_kills;
  planned.peak_gb = run.peak_bytes / kGB;
  return planned;
}

std::string Time(double seconds) {
  return HumanDuration(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
}

std::string Row(const std::string& name, const PlannedRun& run) {
  if (!run.passes)
    return absl::StrFormat("  %-30s fails: %s after %s\n", name,
                           run.oom_kills > 0 ? "OOM killer" : "no end", Time(run.seconds));
  return absl::StrFormat("  %-30s %s, %s, peak %s GB\n", name, Time(run.seconds),
                         Count(static_cast<uint64_t>(run.oom_kills), "OOM kill", "OOM kills"),
                         OneDecimal(run.peak_gb));
}

nlohmann::ordered_json RunJson(const PlannedRun& run) {
  return {{"passes", run.passes},
          {"seconds", run.seconds},
          {"oom_kills", run.oom_kills},
          {"peak_bytes", static_cast<int64_t>(run.peak_gb * kGB)}};
}

}  // namespace

Plan MakePlan(const std::vector<sim::Command>& commands, const PlanOptions& options) {
  Plan plan;
  plan.commands = static_cast<int>(commands.size());
  const auto count = [&plan](const sim::Command& command, const sim::Stage& stage) {
    const sim::Shape& shape = command.shapes[static_cast<size_t>(stage.shape)];
    ++plan.processes;
    plan.cpu_s += shape.cpu_s;
    if (shape.peak <= plan.largest_gb * kGB) return;
    plan.largest_gb = shape.peak / kGB;
    plan.largest = absl::StrCat(shape.tool, " of ", command.source);
  };
  for (const sim::Command& command : commands) {
    for (const sim::Stage& stage : command.front) count(command, stage);
    for (int copy = 0; copy < command.Chains(options.archs); ++copy)
      for (const sim::Stage& stage : command.Chain(copy)) count(command, stage);
    for (const sim::Stage& stage : command.back) count(command, stage);
  }

  sim::Scenario scenario;
  scenario.commands = commands;
  scenario.cores = options.cores;
  scenario.mem_bytes = options.mem_gb * kGB;
  scenario.archs = options.archs;
  scenario.threads = options.threads;
  const auto run = [&scenario](sim::PolicyKind kind, int n) {
    sim::Policy policy;
    policy.kind = kind;
    policy.n = n;
    return sim::Simulate(scenario, policy);
  };
  plan.first = Planned(run(sim::PolicyKind::kHeadroom, 0).run);
  scenario.history = true;
  plan.second = Planned(run(sim::PolicyKind::kHeadroom, 0).run);
  scenario.history = false;
  plan.plain = Planned(run(sim::PolicyKind::kFixed, options.cores).run);
  const sim::Outcome fixed = run(sim::PolicyKind::kBestFixed, 0);
  plan.best_fixed = fixed.n.value_or(0);
  plan.fixed = Planned(fixed.run);
  return plan;
}

std::string PlanText(const Plan& plan, const PlanOptions& options) {
  std::string text = absl::StrCat(
      Printable(options.curves), ": ",
      Count(static_cast<uint64_t>(plan.commands), "command", "commands"), ", ", plan.processes,
      " compiler processes, ", Time(plan.cpu_s), " of CPU time; the largest takes ",
      OneDecimal(plan.largest_gb), " GB (", Printable(plan.largest), ")\n");
  absl::StrAppend(&text, "on ", options.cores, options.cores == 1 ? " core, " : " cores, ",
                  OneDecimal(options.mem_gb), " GB (never below ", Time(plan.cpu_s / options.cores),
                  "):\n");
  absl::StrAppend(&text, Row("headroom run, first build", plan.first),
                  Row("headroom run, again", plan.second));
  if (plan.best_fixed > 0) {
    absl::StrAppend(&text, Row(absl::StrCat("best fixed -j: -j", plan.best_fixed), plan.fixed));
  } else {
    absl::StrAppend(&text,
                    absl::StrFormat("  %-30s not even -j1 passes reliably\n", "best fixed -j"));
  }
  absl::StrAppend(&text, Row(absl::StrCat("plain -j", options.cores), plan.plain));
  if (!plan.first.passes && plan.largest_gb > options.mem_gb)
    absl::StrAppend(&text, "This machine is too small for it: one process alone takes ",
                    OneDecimal(plan.largest_gb), " GB.\n");
  return text;
}

std::string PlanJson(const Plan& plan, const PlanOptions& options) {
  nlohmann::ordered_json json;
  json["cores"] = options.cores;
  json["mem_bytes"] = static_cast<int64_t>(options.mem_gb * kGB);
  json["commands"] = plan.commands;
  json["processes"] = plan.processes;
  json["cpu_s"] = plan.cpu_s;
  json["largest_process_bytes"] = static_cast<int64_t>(plan.largest_gb * kGB);
  json["largest_process"] = plan.largest;
  json["headroom_first"] = RunJson(plan.first);
  json["headroom_again"] = RunJson(plan.second);
  json["best_fixed"] = RunJson(plan.fixed);
  json["best_fixed"]["n"] = plan.best_fixed;
  json["plain"] = RunJson(plan.plain);
  json["plain"]["n"] = options.cores;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int ShowPlan(PlanOptions options) {
  std::vector<sim::Command> commands;
  try {
    commands = sim::ReadCurves(options.curves);
  } catch (const sim::CurvesError& error) {
    Say(absl::StrCat("plan: ", error.what(),
                     "; a file that headroom run --curves wrote is needed"));
    return kFailure;
  }
  const sys::Roots roots;
  if (options.cores == 0) options.cores = static_cast<int>(sys::ReadCores(roots).Count());
  if (options.mem_gb <= 0) {
    const auto meminfo = sys::ReadMemInfo(roots);
    if (!meminfo.ok()) {
      Say("plan: /proc/meminfo can't be read: give --mem");
      return kFailure;
    }
    options.mem_gb = static_cast<double>(meminfo->total_bytes) / kGB;
  }
  if (options.threads == 0) {
    options.threads = 1;
    for (const sim::Command& command : commands)
      options.threads = std::max(options.threads, command.threads);
  }
  const Plan plan = MakePlan(commands, options);
  return Print(options.json ? PlanJson(plan, options) : PlanText(plan, options)) ? kSuccess
                                                                                 : kFailure;
}

}  // namespace headroom::cli
