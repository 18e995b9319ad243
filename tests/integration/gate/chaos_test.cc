// Builds whose daemon dies, hangs and comes back at random moments, and whose workers are killed
// and evicted meanwhile: all pass, and no process is left over.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <thread>

#include "tests/integration/gate/gate_fixture.h"

namespace headroom::testing {
namespace {

using gate::MessageType;
using std::chrono::milliseconds;

// One build of stand-ins under trouble; with `make` by make, else by ninja.
void Build(unsigned seed, bool make) {
  INFO("seed " << seed << (make ? ", make" : ", ninja"));
  Lane lane;
  TempDir dir;
  const StandinTools tools(dir / "bin");
  StandinBuild build = UnevenBuild(24, kMiB, 8 * kMiB, 0.05, 0.3, seed);
  if (make) {
    WriteMakeBuild(dir / "work", tools, build);
  } else {
    WriteNinjaBuild(dir / "work", tools, build);
  }
  ProgramOptions options =
      lane.Options({make ? "make" : "ninja", "-j8", "-C", (dir / "work").string()});
  options.env["HEADROOM_TOOLS"] = std::nullopt;
  options.env["HEADROOM_CORES"] = "4";

  std::atomic<bool> stop{false};
  std::thread trouble([&] {
    std::mt19937 random(seed);
    const auto pause = [&](unsigned most) {
      std::this_thread::sleep_for(milliseconds(random() % most));
    };
    while (!stop) {
      {
        FakeGate gate(lane.path());
        gate.SetVerdict([](const GateEvent&) { return RetryVerdict(false); });
        for (int i = 0; i < 4 && !stop; ++i) {
          pause(150);
          const std::vector<GateEvent> events = gate.Events();
          if (events.empty()) continue;
          const GateEvent& event = events[random() % events.size()];
          switch (random() % 4) {
            case 0:
              gate.Evict(event.peer);
              break;
            case 1:
              gate.Freeze(event.peer);
              pause(100);
              if (random() % 2 == 0) gate.Thaw(event.peer);  // Else it dies with this daemon.
              break;
            case 2:
              if (event.type == MessageType::kStarted && event.attempt == 1) {
                KillWorker(event, SIGKILL);
              }
              break;
            case 3:
              gate.Drop(event.peer);
              break;
          }
        }
        if (random() % 3 == 0) {
          gate.Hang();
          pause(600);
        }
        CHECK(gate.problems().empty());
      }
      std::error_code ignored;
      fs::remove(lane / gate::kGateSocketName, ignored);
      pause(400);
    }
  });
  Program program(options);
  const ProgramResult result = program.Wait(std::chrono::seconds(90));
  stop = true;
  trouble.join();
  INFO(result.out << result.err);
  CHECK(!result.timed_out);
  CHECK(result.exit_code == 0);
  const auto outputs = ReadOutputs(dir / "work", build);
  CHECK(outputs.size() == build.edges.size());
  // Nothing of this build is left, running, stopped or waiting.
  CHECK(WaitUntil(
      [&] {
        for (const auto& entry : fs::directory_iterator("/proc")) {
          std::error_code ignored;
          const fs::path exe = fs::read_symlink(entry.path() / "exe", ignored);
          if (exe.string().rfind(dir.path().string(), 0) == 0) return false;
        }
        return true;
      },
      std::chrono::seconds(2)));
}

TEST_CASE("ninja builds under a daemon that comes and goes") {
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u}) Build(seed, false);
}

TEST_CASE("make builds under a daemon that comes and goes") {
  for (const unsigned seed : {6u, 7u, 8u, 9u, 10u}) Build(seed, true);
}

}  // namespace
}  // namespace headroom::testing
