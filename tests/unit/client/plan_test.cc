#include "client/cli/plan.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace headroom::cli {
namespace {

// One process of so many bytes and CPU seconds.
sim::Command Simple(const std::string& source, double bytes, double seconds) {
  sim::Command command;
  command.source = source;
  command.driver = "c++";
  sim::Shape shape;
  shape.tool = "cc1plus";
  shape.cpu_s = seconds;
  shape.peak = bytes;
  shape.knots = {{0, 0}, {seconds / 2, bytes}, {seconds, bytes}};
  command.shapes.push_back(shape);
  command.front.push_back({0, 0});
  return command;
}

PlanOptions On(int cores, double mem_gb) {
  PlanOptions options;
  options.curves = "a.jsonl";
  options.cores = cores;
  options.mem_gb = mem_gb;
  options.threads = 1;
  return options;
}

TEST_CASE("A plan says what passes on a machine, and how fast") {
  std::vector<sim::Command> commands;
  for (int i = 0; i < 24; ++i) commands.push_back(Simple("a" + std::to_string(i) + ".cc", 1e9, 20));
  const PlanOptions options = On(8, 4.5);
  const Plan plan = MakePlan(commands, options);
  CHECK(plan.commands == 24);
  CHECK(plan.processes == 24);
  CHECK(plan.cpu_s == Approx(480));
  CHECK(plan.largest_gb == Approx(1));
  CHECK(plan.first.passes);
  CHECK(plan.first.oom_kills == 0);
  CHECK(plan.second.seconds <= plan.first.seconds);
  CHECK_FALSE(plan.plain.passes);  // 8 GB
  CHECK(plan.plain.oom_kills > 0);
  CHECK(plan.best_fixed == 4);
  CHECK(plan.fixed.passes);

  const std::string text = PlanText(plan, options);
  CHECK_THAT(text, Catch::Contains("a.jsonl: 24 commands, 24 compiler processes, 8 min"));
  CHECK_THAT(text, Catch::Contains("on 8 cores, 4.5 GB (never below 1 min"));
  CHECK_THAT(text, Catch::Contains("best fixed -j: -j4"));
  CHECK_THAT(text, Catch::Contains("plain -j8") && Catch::Contains("fails: OOM killer after"));
  const auto json = nlohmann::json::parse(PlanJson(plan, options));
  CHECK(json["best_fixed"]["n"] == 4);
  CHECK(json["plain"]["passes"] == false);
  CHECK(json["headroom_first"]["seconds"] == plan.first.seconds);
}

TEST_CASE("A machine that is too small for one process is named") {
  const std::vector<sim::Command> commands = {Simple("a.cc", 1e8, 1), Simple("huge.cc", 5e9, 10)};
  const PlanOptions options = On(2, 2);
  const Plan plan = MakePlan(commands, options);
  CHECK_FALSE(plan.first.passes);
  CHECK(plan.best_fixed == 0);
  const std::string text = PlanText(plan, options);
  CHECK_THAT(text, Catch::Contains("the largest takes 5.0 GB (cc1plus of huge.cc)"));
  CHECK_THAT(text, Catch::Contains("not even -j1 passes reliably"));
  CHECK_THAT(text, Catch::Contains("too small for it"));
}

}  // namespace
}  // namespace headroom::cli
