// Real compilers whose workers are evicted and killed again and again: what comes out is what comes
// out without the gate.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "tests/integration/gate/gate_fixture.h"

namespace headroom::testing {
namespace {

using gate::MessageType;

// Disturbs every worker of a gate that says it can be run again: evicts it or kills it, twice,
// after a random time. Kills workers that can't be run again as well, if told to.
class Trouble {
 public:
  Trouble(FakeGate* gate, unsigned seed) : gate_(gate), random_(seed) {
    gate->SetVerdict([](const GateEvent& event) { return RetryVerdict(event.attempt % 2 == 0); });
    thread_ = std::thread([this] { Loop(); });
  }
  ~Trouble() {
    stop_ = true;
    thread_.join();
  }
  Trouble(const Trouble&) = delete;
  Trouble& operator=(const Trouble&) = delete;
  int Made() const { return made_; }

 private:
  void Loop() {
    std::size_t next = 0;
    while (!stop_) {
      const std::vector<GateEvent> events = gate_->Events();
      for (; next < events.size(); ++next) {
        const GateEvent& event = events[next];
        if (event.closed || event.type != MessageType::kStarted || event.attempt > 2) continue;
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 40000));
        if (random_() % 2 == 0) {
          gate_->Evict(event.peer);
        } else if (Replayable(events, event.peer)) {
          KillWorker(event, SIGKILL);
        }
        ++made_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  static bool Replayable(const std::vector<GateEvent>& events, int peer) {
    for (const GateEvent& event : events) {
      if (event.peer == peer && event.type == MessageType::kRequest)
        return event.request.replay == 0;
    }
    return false;
  }

  FakeGate* gate_;
  std::mt19937 random_;
  std::atomic<bool> stop_{false};
  std::atomic<int> made_{0};
  std::thread thread_;
};

// Some work for a compiler: a few hundred milliseconds.
std::string Source(const std::string& name) {
  std::string text = "#include <map>\n#include <vector>\n#include <algorithm>\n";
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    text += "int " + name + n + "(std::map<int, int>& m, std::vector<int>& v) {\n" +
            "  std::sort(v.begin(), v.end(), [](int a, int b) { return a % " + n +
            "7 < b; });\n  for (auto& e : m) v.push_back(e.second + " + n +
            ");\n  return static_cast<int>(v.size());\n}\n";
  }
  return text;
}

std::string Contents(const fs::path& path) {
  return fs::exists(path) ? ReadFile(path) : "(missing)";
}

// Runs a command in a folder of its own with and without trouble, each from the same files, and
// compares `outputs`.
void CheckSame(const std::vector<std::string>& command,
               const std::map<std::string, std::string>& inputs,
               const std::vector<std::string>& outputs, bool expect_trouble = true,
               const std::string& preparation = "") {
  std::vector<std::string> results[2];
  std::string out[2];
  int code[2] = {-1, -1};
  int made = 0;
  TempDir dir;  // The same for both: its name is in debug information.
  for (const int with : {0, 1}) {
    Lane lane;
    fs::remove_all(dir / "work");
    for (const auto& [name, text] : inputs) WriteFile(dir / "work" / name, text);
    if (!preparation.empty()) {
      ProgramOptions prepare;
      prepare.argv = {"/bin/sh", "-c", preparation};
      prepare.cwd = dir / "work";
      REQUIRE(Run(prepare).exit_code == 0);
    }
    FakeGate gate(lane.path());
    ProgramOptions options = lane.Options(command);
    options.env["HEADROOM_TOOLS"] = std::nullopt;
    options.cwd = dir / "work";
    if (with == 0) options = Ungated(options);
    ProgramResult result;
    {
      Trouble trouble(&gate, 7);
      result = Run(options, std::chrono::seconds(100));
      made += trouble.Made();
    }
    code[with] = result.exit_code;
    out[with] = result.out;
    for (const std::string& name : outputs) results[with].push_back(Contents(dir / "work" / name));
    if (with == 1) {
      CHECK(gate.problems().empty());
      CHECK(gate.Count(MessageType::kStarted) > 0);
    }
  }
  CHECK(code[0] == 0);
  CHECK(code[1] == code[0]);
  CHECK(out[1] == out[0]);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    INFO(outputs[i]);
    CHECK(results[0][i].compare("(missing)") != 0);
    // Not the texts themselves: they are objects, and would be printed.
    const bool same = results[1][i] == results[0][i];
    CHECK(same);
  }
  if (expect_trouble) CHECK(made >= 2);
}

bool Has(const char* program) {
  if (FindProgram(program)) return true;
  WARN("SKIPPED: no " << program << " here");
  return false;
}

TEST_CASE("g++: compile, depend, link") {
  if (!Has("g++")) return;
  CheckSame(
      {"/bin/sh", "-c",
       "g++ -O1 -g -MMD -MF a.d -c a.cc -o a.o && g++ -O1 -g -c main.cc -o main.o && "
       "g++ -g a.o main.o -o prog && ./prog && g++ -O1 a.cc main.cc -o both"},
      {{"a.cc", Source("a")}, {"main.cc", "#include <cstdio>\nint main() { puts(\"x\"); }\n"}},
      {"a.o", "a.d", "main.o", "prog", "both"});
}

TEST_CASE("g++: from stdin, into a pipe, -pipe, -E, to stdout") {
  if (!Has("g++")) return;
  CheckSame({"/bin/sh", "-c",
             "g++ -O1 -x c++ -c - -o stdin.o < a.cc && cat a.cc | g++ -O1 -x c++ -c - -o pipe.o && "
             "g++ -O1 -pipe -c a.cc -o dashpipe.o && g++ -E a.cc | tail -100 > e.txt && "
             "g++ -E a.cc > all.txt && g++ -O1 -S -o - a.cc | cat > s.txt && "
             "g++ -O1 -S -o s2.txt a.cc"},
            {{"a.cc", Source("a")}},
            {"stdin.o", "pipe.o", "dashpipe.o", "e.txt", "all.txt", "s.txt", "s2.txt"});
}

TEST_CASE("g++ that reads a pipe: killed, it is dead") {
  if (!Has("g++")) return;
  TempDir dir;
  Lane lane;
  WriteFile(dir / "a.cc", Source("a"));
  FakeGate gate(lane.path());
  gate.SetVerdict([](const GateEvent&) { return RetryVerdict(true); });
  const std::string command = GENERATE(std::string("cat a.cc | g++ -O1 -x c++ -c - -o a.o"),
                                       std::string("g++ -O1 -S -o - a.cc | cat > a.s"));
  ProgramOptions options =
      lane.Options({"/bin/bash", "-c", command + "; [ ${PIPESTATUS[0]}${PIPESTATUS[1]} != 00 ]"});
  options.env["HEADROOM_TOOLS"] = std::nullopt;
  options.cwd = dir.path();
  Program program(options);
  const auto started = gate.WaitFor(MessageType::kStarted);
  REQUIRE(started);
  gate.Evict(started->peer);
  KillWorker(*started, SIGKILL);
  const ProgramResult result = program.Wait();
  INFO(result.err);
  CHECK(result.exit_code == 0);
  for (const GateEvent& event : gate.Events()) CHECK(event.attempt <= 1);
}

TEST_CASE("g++: errors and warnings") {
  if (!Has("g++")) return;
  CheckSame(
      {"/bin/sh", "-c",
       "g++ -c bad.cc -o bad.o 2>/dev/null; echo $?; g++ -fno-such-option -c a.cc 2>/dev/null; "
       "echo $?; g++ -c missing.cc 2>/dev/null; echo $?; test ! -e bad.o"},
      {{"a.cc", "int x;\n"}, {"bad.cc", Source("a") + "this is no C++\n"}}, {});
}

TEST_CASE("gcc -flto, alone and with a jobserver") {
  if (!Has("g++")) return;
  // Objects hold a random number: compare what the program does.
  CheckSame(
      {"/bin/sh", "-c",
       "g++ -O1 -flto -c a.cc && g++ -O1 -flto -c main.cc && g++ -O1 -flto=2 a.o main.o -o "
       "prog && ./prog > run.txt"},
      {{"a.cc", Source("a")}, {"main.cc", "#include <cstdio>\nint main() { puts(\"x\"); }\n"}},
      {"run.txt"});
}

TEST_CASE("gcc -flto=jobserver below make: its make's tokens aren't lost, the link is right") {
  if (!Has("g++") || !Has("make")) return;
  CheckSame({"make", "-j3", "run.txt"},
            {{"a.cc", Source("a")},
             {"main.cc", "#include <cstdio>\nint main() { puts(\"x\"); }\n"},
             {"Makefile",
              "run.txt: prog\n\t./prog > run.txt\n"
              "prog: a.o main.o\n\t+g++ -O1 -flto=jobserver a.o main.o -o prog\n"
              "%.o: %.cc\n\tg++ -O1 -flto -c $<\n"}},
            {"run.txt"});
}

// rustc may hold tokens of cargo's when it dies: gated, but never run again.
TEST_CASE("rustc: gated, never evicted, never run again") {
  if (!Has("rustc") || !Has("cargo")) return;
  const std::map<std::string, std::string> inputs = {
      {"Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"},
      {"src/main.rs", "mod other;\nfn main() { println!(\"{}\", other::f(3)); }\n"},
      {"src/other.rs",
       "use std::collections::BTreeMap;\npub fn f(n: u32) -> usize {\n"
       "  (0..n).map(|i| (i, i)).collect::<BTreeMap<_, _>>().len()\n}\n"}};
  SECTION("evictions are ignored, cargo's build is right") {
    CheckSame({"/bin/sh", "-c", "cargo build --offline -q && target/debug/small > run.txt"}, inputs,
              {"run.txt"}, /*expect_trouble=*/false);
  }
  SECTION("killed, it is dead") {
    TempDir dir;
    Lane lane;
    for (const auto& [name, text] : inputs) WriteFile(dir / name, text);
    FakeGate gate(lane.path());
    gate.SetVerdict([](const GateEvent&) { return RetryVerdict(true); });
    ProgramOptions options = lane.Options({"cargo", "build", "--offline", "-q"});
    options.env["HEADROOM_TOOLS"] = std::nullopt;
    options.cwd = dir.path();
    Program program(options);
    // The one that compiles; those before it are asked what they are.
    const auto request = gate.WaitFor([](const GateEvent& event) {
      return event.type == MessageType::kRequest &&
             std::string(event.request.args, event.request.args_bytes).find("main.rs") !=
                 std::string::npos;
    });
    REQUIRE(request);
    CHECK(request->request.replay == static_cast<std::uint32_t>(gate::Replay::kHoldsTokens));
    const auto started = gate.WaitFor([&](const GateEvent& event) {
      return event.peer == request->peer && event.type == MessageType::kStarted;
    });
    REQUIRE(started);
    gate.Evict(started->peer);
    KillWorker(*started, SIGKILL);
    const ProgramResult result = program.Wait();
    INFO(result.err);
    CHECK(result.exit_code != 0);
    for (const GateEvent& event : gate.Events()) CHECK(event.attempt <= 1);
  }
}

TEST_CASE("clang: compile and link") {
  if (!Has("clang")) return;
  CheckSame({"/bin/sh", "-c",
             "clang -O1 -g -c a.c -o a.o && clang -O1 -c main.c -o main.o && clang a.o main.o -o "
             "prog && ./prog && clang -O1 a.c main.c -o both && clang -O1 -S a.c -o - > s.txt && "
             "cat a.c | clang -O1 -x c -c - -o pipe.o"},
            {{"a.c",
              [] {
                std::string text;
                for (int i = 0; i < 400; ++i) {
                  text += "int f" + std::to_string(i) + "(int x) { return x * " +
                          std::to_string(i) + " + (x >> 3); }\n";
                }
                return text;
              }()},
             {"main.c", "#include <stdio.h>\nint main(void) { puts(\"x\"); return 0; }\n"}},
            {"a.o", "main.o", "prog", "both", "s.txt", "pipe.o"});
}

TEST_CASE("nvcc: two architectures, in parallel") {
  const char nvcc[] = "/usr/local/cuda/bin/nvcc";
  if (access(nvcc, X_OK) != 0) {
    WARN("SKIPPED: no nvcc here");
    return;
  }
  // The host part of an object holds a number of the process; the device code is compared.
  CheckSame({"/bin/sh", "-c",
             std::string(nvcc) +
                 " -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 "
                 "--threads 2 -c k.cu -o k.o && " +
                 nvcc + " -arch=sm_90 -cubin k.cu -o k.cubin && " + nvcc +
                 " -arch=compute_80 -ptx k.cu -o k.ptx"},
            {{"k.cu",
              [] {
                std::string text;
                for (int i = 0; i < 20; ++i) {
                  text += "__global__ void k" + std::to_string(i) +
                          "(float* x) { for (int j = 0; j < 64; ++j) x[j * " +
                          std::to_string(i + 1) + "] += sinf(x[j]) * cosf(x[j + 1]); }\n";
                }
                return text;
              }()}},
            {"k.cubin", "k.ptx"});
}

}  // namespace
}  // namespace headroom::testing
