// What the gate costs: `gate_bench [ROUNDS]` prints a table. With and without are interleaved and
// the medians of all rounds are compared, so that a busy machine disturbs both alike.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/gate/gate_fixture.h"

namespace headroom::testing {
namespace {

using gate::MessageType;

class Environment {
 public:
  explicit Environment(const std::vector<std::string>& extra) : texts_(extra) {
    for (char** entry = environ; *entry != nullptr; ++entry) texts_.emplace_back(*entry);
    for (std::string& text : texts_) entries_.push_back(text.data());
    entries_.push_back(nullptr);
  }
  char** get() { return entries_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> entries_;
};

// Microseconds from the start to the end of a program that does nothing.
double TimeOne(const std::string& path, Environment& environment) {
  std::string text = path;
  std::string word = "exit";
  std::string number = "0";
  char* argv[] = {text.data(), word.data(), number.data(), nullptr};
  const auto start = std::chrono::steady_clock::now();
  pid_t pid = 0;
  if (posix_spawn(&pid, path.c_str(), nullptr, nullptr, argv, environment.get()) != 0) {
    std::perror(path.c_str());
    std::exit(1);
  }
  waitpid(pid, nullptr, 0);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

void Compare(const char* what, const std::string& path, Environment& without, Environment& with,
             int rounds) {
  std::vector<double> a;
  std::vector<double> b;
  for (int i = 0; i < rounds; ++i) {
    a.push_back(TimeOne(path, without));
    b.push_back(TimeOne(path, with));
  }
  std::printf("%-44s %8.0f us %8.0f us   + %6.0f us\n", what, Median(a), Median(b),
              Median(b) - Median(a));
}

// Memory of a process that is its own and written to, KB; -1 if it can't be read.
long PrivateDirty(pid_t pid) {
  try {
    std::istringstream lines(ReadFile("/proc/" + std::to_string(pid) + "/smaps_rollup"));
    std::string line;
    long sum = 0;
    while (std::getline(lines, line)) {
      if (line.find("Private_") == 0) sum += std::atol(line.c_str() + line.find(':') + 1);
    }
    return sum;
  } catch (const std::exception&) {
    return -1;
  }
}

// A real tool that waits, and its keeper while a stopped worker stands beside it.
void Memory(const std::string& path) {
  if (access(path.c_str(), X_OK) != 0) return;
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetAutoAdmit(false);
  ProgramOptions options = lane.Options({path, "/dev/null/x", "-o", "/dev/null/y"});
  options.env["HEADROOM_TOOLS"] = "+probe";
  Program program(options);
  const auto request = gate.WaitFor(MessageType::kRequest);
  if (!request) return;
  usleep(50'000);
  const long waiting = PrivateDirty(program.pid());
  gate.Admit(request->peer);
  const auto started = gate.WaitFor(MessageType::kStarted);
  // The worker gets on with its main() and is then held, or the keeper would be gone too soon.
  gate.Freeze(request->peer);
  long keeper = -1;
  if (started && gate.WaitFor(MessageType::kFrozen)) keeper = PrivateDirty(program.pid());
  gate.Thaw(request->peer);
  std::printf("%-44s waiting %5ld KB   keeper %5ld KB\n", path.c_str(), waiting, keeper);
}

// So many at once: until the first is served, and all.
void Crowd(int count) {
  Lane lane;
  FakeGate gate(lane.path());
  gate.SetAutoAdmit(false);
  std::vector<std::unique_ptr<Program>> programs;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    programs.push_back(std::make_unique<Program>(lane.ProbeOptions({"exit", "0"})));
  }
  const bool all = WaitUntil(
      [&] { return gate.Count(MessageType::kRequest) == static_cast<std::size_t>(count); },
      std::chrono::seconds(60));
  const double asked =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const GateEvent& event : gate.Events()) {
    if (event.type == MessageType::kRequest) gate.Admit(event.peer);
  }
  int failed = 0;
  for (const auto& program : programs) failed += program->Wait().exit_code == 0 ? 0 : 1;
  const double done =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%d at once: %s after %.1f s, done after %.1f s, %d failed\n", count,
              all ? "all asked" : "NOT all asked", asked, done, failed);
}

int Main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
  Lane lane;
  FakeGate gate(lane.path());
  const std::string preload = std::string("LD_PRELOAD=") + HEADROOM_PRELOAD_LIBRARY;
  const std::string where = "HEADROOM_LANE=" + lane.path().string();
  Environment without({});
  Environment with({preload, where, "HEADROOM_TOOLS=+probe",
                    "MAKEFLAGS= -j8 --jobserver-auth=fifo:" + (lane / "fifo").string()});
  std::printf("%-44s %11s %11s\n", "", "without", "with");
  Compare("/bin/true, not gated", "/bin/true", without, with, rounds);
  Compare("a gated tool, admitted at once", Probe(), without, with, rounds);
  for (const char* tool :
       {"/usr/local/cuda/nvvm/bin/cicc", "/usr/local/cuda/bin/ptxas",
        "/usr/local/cuda/bin/cudafe++", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus",
        "/usr/bin/x86_64-linux-gnu-ld.bfd"}) {
    Memory(tool);
  }
  Crowd(500);
  for (const std::string& problem : gate.problems()) std::printf("problem: %s\n", problem.c_str());
  return 0;
}

}  // namespace
}  // namespace headroom::testing

int main(int argc, char** argv) {
  return headroom::testing::Main(argc, argv);
}
