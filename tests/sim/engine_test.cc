#include "server/sim/engine.h"

#include <catch2/catch.hpp>

#include "server/sim/baselines.h"

namespace headroom::sim {
namespace {

// A command of one process that grows to `bytes` over `grow` CPU seconds and keeps them for `keep`.
Command Simple(double bytes, double grow, double keep) {
  Command command;
  command.source = "a.cc";
  command.driver = "c++";
  Shape shape;
  shape.tool = "cc1plus";
  shape.cpu_s = grow + keep;
  shape.peak = bytes;
  shape.knots = {{0, 0}, {grow, bytes}, {grow + keep, bytes}};
  command.shapes.push_back(shape);
  command.front.push_back({0, 0});
  return command;
}

EngineConfig Config(const std::vector<Command>& commands, double cores, double mem, int jobs) {
  EngineConfig config;
  config.cores = cores;
  config.mem_bytes = mem;
  BuildSpec spec;
  spec.commands = &commands;
  spec.jobs = jobs;
  config.builds.push_back(spec);
  return config;
}

RunResult RunUngated(EngineConfig config) {
  Ungated ungated;
  return Engine(std::move(config), ungated).Run();
}

TEST_CASE("Processes beyond the cores slow each other down") {
  const std::vector<Command> commands(8, Simple(10, 1, 9));
  CHECK(RunUngated(Config(commands, 8, 1000, 8)).seconds == Approx(10));
  CHECK(RunUngated(Config(commands, 4, 1000, 8)).seconds == Approx(20));
  CHECK(RunUngated(Config(commands, 4, 1000, 4)).seconds == Approx(20));
  CHECK(RunUngated(Config(commands, 4, 1000, 1)).seconds == Approx(80));
  EngineConfig loaded = Config(commands, 8, 1000, 8);
  loaded.load.push_back({0, 0, 8});  // as many again want the cores
  CHECK(RunUngated(loaded).seconds == Approx(20));
}

TEST_CASE("Memory is the sum of curves, and its peak is seen between knots") {
  const std::vector<Command> commands(3, Simple(100, 1, 9));
  const RunResult run = RunUngated(Config(commands, 4, 1000, 2));
  CHECK(run.peak_bytes == Approx(200));
  CHECK(run.oom_kills == 0);
  CHECK(run.cpu_s == Approx(30));
}

TEST_CASE("The kernel kills the largest when the sum exceeds memory, and the build has failed") {
  std::vector<Command> commands = {Simple(100, 10, 0), Simple(200, 10, 0), Simple(50, 10, 0)};
  const RunResult run = RunUngated(Config(commands, 4, 150, 2));
  CHECK(run.failed);
  CHECK(run.oom_kills == 1);
  // 30 bytes a second until 150 are reached.
  CHECK(run.first_oom_s == Approx(5));
  CHECK(run.seconds == Approx(5));
  CHECK(run.wasted_cpu_s == Approx(5));
  // The third was never started; the first ran to its end.
  CHECK(run.cpu_s == Approx(15));
  CHECK_FALSE(RunUngated(Config(commands, 4, 201, 1)).failed);
}

TEST_CASE("Other load counts, and where no tool runs the kernel takes something else") {
  const std::vector<Command> commands(2, Simple(100, 1, 9));
  EngineConfig config = Config(commands, 4, 250, 2);
  config.load = {{3, 100, 0}};
  const RunResult run = RunUngated(config);
  CHECK(run.oom_kills == 1);
  CHECK(run.first_oom_s == Approx(3));
  CHECK(run.foreign_kills == 0);
  config.builds[0].starts_at_s = 5;
  config.load = {{3, 300, 0}};
  CHECK(RunUngated(config).foreign_kills == 1);
}

TEST_CASE("Each arch has its own chain, as many at once as --threads says") {
  Command command = Simple(10, 1, 1);
  Shape cicc = command.shapes[0];
  cicc.tool = "cicc";
  Shape ptxas = cicc;
  ptxas.tool = "ptxas";
  command.shapes.push_back(cicc);
  command.shapes.push_back(ptxas);
  command.chains = {{{0.5, 1}, {0.5, 2}}};
  command.back = {{0, 0}};
  command.end_gap_s = 0.25;
  const std::vector<Command> commands = {command};
  EngineConfig config = Config(commands, 16, 1000, 1);
  // 2 s front, chains of 2 x 2.5 s, 2 s back, 0.25 s.
  config.builds[0].archs = 3;
  config.builds[0].threads = 3;
  CHECK(RunUngated(config).seconds == Approx(9.25));
  config.builds[0].threads = 2;
  CHECK(RunUngated(config).seconds == Approx(14.25));
  config.builds[0].threads = 1;
  CHECK(RunUngated(config).seconds == Approx(19.25));
}

TEST_CASE("Noise belongs to a process and not to the order of events") {
  const std::vector<Command> commands(20, Simple(100, 1, 9));
  EngineConfig config = Config(commands, 20, 1e6, 20);
  config.noise = 0.05;
  config.seed = 7;
  const double all = RunUngated(config).peak_bytes;
  CHECK(all == RunUngated(config).peak_bytes);
  CHECK(all != Approx(2000).epsilon(1e-6));
  CHECK(all == Approx(2000).epsilon(0.05));
  config.seed = 8;
  CHECK(all != RunUngated(config).peak_bytes);
}

// Mints what it is told at once, and lets a test act at given times.
class Scripted : public Scheduler {
 public:
  explicit Scripted(int tokens) : tokens_(tokens) {}
  void OnBuildStarted(Engine& engine, int build) override { engine.Mint(build, tokens_); }
  void OnReady(Engine& engine, int proc) override {
    ++started;
    engine.Start(proc);
  }
  void OnEnd(Engine& engine, int proc, ProcEnd end) override {
    if (end == ProcEnd::kEvicted) engine.Start(proc);
  }
  void OnCollected(Engine&, int, int count) override { collected += count; }
  bool Retries(Engine& engine, int proc) override {
    engine.At(engine.now() + 1, [&engine, proc] { engine.Start(proc); });
    return retries;
  }
  void Begin(Engine& engine) override {
    if (begin) begin(engine);
  }

  std::function<void(Engine&)> begin;
  bool retries = false;
  int started = 0;
  int collected = 0;

 private:
  int tokens_;
};

TEST_CASE("A jobserver client runs one job more than it has tokens") {
  const std::vector<Command> commands(12, Simple(10, 1, 9));
  for (const ClientKind kind : {ClientKind::kNinjaHead, ClientKind::kNinja113, ClientKind::kMake}) {
    EngineConfig config = Config(commands, 16, 1e6, 1);
    config.builds[0].client = kind;
    Scripted three(3);
    CHECK(Engine(config, three).Run().seconds == Approx(30));
    Scripted none(0);
    CHECK(Engine(config, none).Run().seconds == Approx(120));
  }
}

TEST_CASE("ninja 1.13 sees new tokens only when one of its jobs ends") {
  const std::vector<Command> commands(12, Simple(10, 1, 9));
  for (const ClientKind kind : {ClientKind::kNinjaHead, ClientKind::kNinja113}) {
    EngineConfig config = Config(commands, 16, 1e6, 1);
    config.builds[0].client = kind;
    Scripted late(0);
    late.begin = [](Engine& engine) { engine.At(1, [&engine] { engine.Mint(0, 11); }); };
    CHECK(Engine(config, late).Run().seconds == Approx(kind == ClientKind::kNinja113 ? 20 : 11));
  }
}

TEST_CASE("Tokens are taken back as they return, and none is lost") {
  const std::vector<Command> commands(200, Simple(10, 1, 9));
  EngineConfig config = Config(commands, 64, 1e6, 1);
  config.builds[0].client = ClientKind::kNinjaHead;
  Scripted many(31);
  many.begin = [&many](Engine& engine) {
    engine.At(5, [&engine, &many] { many.collected += engine.Collect(0, 16); });
    engine.At(45, [&engine] {
      CHECK(engine.build(0).minted == 15);
      CHECK(engine.build(0).debt == 0);
      CHECK(engine.build(0).running == 16);
      CHECK(engine.build(0).minted == engine.build(0).idle + engine.build(0).held);
    });
  };
  const RunResult run = Engine(config, many).Run();
  CHECK(many.collected == 16);
  CHECK_FALSE(run.failed);
}

TEST_CASE("An evicted process gives its memory back, and starts anew") {
  const std::vector<Command> commands(2, Simple(1e9, 1, 9));
  EngineConfig config = Config(commands, 4, 4e9, 2);
  Scripted script(0);
  script.begin = [](Engine& engine) {
    engine.At(5, [&engine] { engine.Evict(1); });
    engine.At(5.05, [&engine] {  // takes its time
      CHECK(engine.memory_used() < 1.9e9);
      CHECK(engine.memory_used() > 1.1e9);
    });
  };
  const RunResult run = Engine(config, script).Run();
  CHECK(run.evictions == 1);
  CHECK(run.wasted_cpu_s == Approx(5));
  CHECK(run.seconds == Approx(15.1).margin(0.05));
  CHECK(run.cpu_s == Approx(25));
}

TEST_CASE("A frozen process keeps its memory and stands still") {
  const std::vector<Command> commands(2, Simple(100, 2, 8));
  EngineConfig config = Config(commands, 1, 1000, 2);
  Scripted script(0);
  script.begin = [](Engine& engine) {
    engine.At(2, [&engine] { engine.Freeze(1); });  // both have 1 CPU second by now
    engine.At(11, [&engine] {
      CHECK(engine.BytesOf(1) == Approx(50));
      CHECK(engine.CpuOf(1) == Approx(1));
      engine.Thaw(1);
    });
  };
  const RunResult run = Engine(config, script).Run();
  CHECK(run.freezes == 1);
  CHECK(run.seconds == Approx(20));
  CHECK(run.cpu_s == Approx(20));
}

TEST_CASE("What the scheduler runs again after an OOM kill does not fail the build") {
  std::vector<Command> commands = {Simple(100, 10, 0), Simple(200, 10, 0)};
  EngineConfig config = Config(commands, 4, 250, 2);
  Scripted script(0);
  script.retries = true;
  const RunResult run = Engine(config, script).Run();
  CHECK_FALSE(run.failed);
  CHECK(run.oom_kills == 1);
  CHECK(run.first_oom_s == Approx(250.0 / 30));
}

TEST_CASE("A build that nobody lets run has hung, and says so") {
  class Never : public Scheduler {
    void OnReady(Engine&, int) override {}
    void Decide(Engine& engine) override {
      engine.At(engine.now() + 10, [] {});  // it keeps looking, as a daemon does
    }
  } never;
  const std::vector<Command> commands(2, Simple(100, 2, 8));
  const RunResult run = Engine(Config(commands, 1, 1000, 2), never).Run();
  CHECK(run.hung);
  CHECK(run.failed);
}

}  // namespace
}  // namespace headroom::sim
