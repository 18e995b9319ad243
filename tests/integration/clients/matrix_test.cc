// Real build tools as members of a lane: what each does with tokens and the gate. What comes out is
// the table in docs/clients.md.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "tests/integration/clients/client_lane.h"

namespace headroom::testing {
namespace {

using std::chrono::seconds;

constexpr char kYes[] = "yes";
constexpr char kNo[] = "no";

// One build tool that runs stand-ins, however it comes to it.
struct BuildTool {
  std::string process;  // the client's name in /proc, for kill -9
  // Writes the project into the folder, with commands for all of the build's edges.
  std::function<void(const ClientLane&, const StandinTools&, const StandinBuild&)> write;
  std::function<Words(const ClientLane&)> command;
  std::function<Words(const ClientLane&, int)> command_with_jobs;
};

StandinBuild Edges(int count, double seconds_each) {
  StandinBuild build;
  for (int i = 0; i < count; ++i) {
    StandinEdge edge;
    edge.name = "edge" + std::to_string(i);
    edge.curve = "0:1M," + std::to_string(seconds_each) + ":1M";
    build.edges.push_back(edge);
  }
  return build;
}

std::vector<StandinRun> Log(const ClientLane& lane) {
  return fs::exists(lane.dir() / "standin.log") ? ReadStandinLog(lane.dir() / "standin.log")
                                                : std::vector<StandinRun>();
}

// Tokens, the gate and its own width. Two tokens: three jobs.
void MeasureTokens(const BuildTool& tool, const StandinTools& tools, ClientRow& row) {
  ClientLane lane(2);
  const StandinBuild build = Edges(8, 0.3);
  tool.write(lane, tools, build);
  const ProgramResult result = Run(lane.Options(tool.command(lane)));
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(ReadOutputs(lane.dir(), build).size() == build.edges.size());
  CHECK(lane.Idle() == 2);  // all given back
  const bool takes = lane.FewestIdle() < 2;
  row.tokens = takes ? kYes : kNo;
  if (takes) CHECK(MaxParallel(Log(lane)) <= 3);
  const int asked = lane.Asked("cc1plus");
  CHECK((asked == 0 || asked == 8));
  row.gate = asked == 8 ? kYes : kNo;
  CHECK(lane.gate().problems().empty());
}

// -j2 where there are six tokens.
void MeasureCap(const BuildTool& tool, const StandinTools& tools, ClientRow& row) {
  ClientLane lane(6);
  const StandinBuild build = Edges(8, 0.25);
  tool.write(lane, tools, build);
  const ProgramResult result = Run(lane.Options(tool.command_with_jobs(lane, 2)));
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  row.cap = MaxParallel(Log(lane)) <= 2 ? kYes : kNo;
  // K5: whatever -j does to tokens, the gate holds every compiler.
  CHECK(lane.Asked("cc1plus") == 8);
  if (row.cap == kYes && row.tokens == kYes && lane.FewestIdle() == 6)
    row.cap += ", no tokens then";
  CHECK(lane.Idle() == 6);
}

// No token at first; two come while the first job runs.
void MeasureWaking(const BuildTool& tool, const StandinTools& tools, ClientRow& row) {
  ClientLane lane(0);
  const StandinBuild build = Edges(4, 1.5);
  tool.write(lane, tools, build);
  Program program(lane.Options(tool.command(lane)));
  REQUIRE(WaitUntil([&] { return !Log(lane).empty(); }, seconds(30)));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  lane.Add(2);
  CHECK(program.Wait().exit_code == 0);
  const auto runs = Log(lane);
  REQUIRE(runs.size() == 4);
  // The second start: before the first end, or after it.
  const double second =
      std::min({runs[1].start_seconds, runs[2].start_seconds, runs[3].start_seconds});
  REQUIRE(runs[0].end_seconds);
  row.wakes = second < *runs[0].end_seconds - 0.3 ? "at once" : "when a job ends";
}

void MeasureLeak(const BuildTool& tool, const StandinTools& tools, ClientRow& row) {
  ClientLane lane(3);
  tool.write(lane, tools, Edges(8, 2));
  Program program(lane.Options(tool.command(lane)));
  REQUIRE(WaitUntil([&] { return Log(lane).size() >= 2 && lane.Idle() == 0; }, seconds(30)));
  bool killed = false;
  for (const pid_t pid : Descendants(program.pid())) {
    if (ProcessName(pid) != tool.process) continue;
    kill(pid, SIGKILL);
    killed = true;
  }
  if (ProcessName(program.pid()) == tool.process) {
    kill(program.pid(), SIGKILL);
    killed = true;
  }
  REQUIRE(killed);
  program.SignalGroup(SIGKILL);
  program.Wait();
  row.leaks = lane.Idle() < 3 ? kYes : kNo;
}

ClientRow Measure(std::string name, const BuildTool& tool, std::string note) {
  const TempDir folder;
  const StandinTools tools(folder.path());
  ClientRow row;
  row.name = std::move(name);
  row.note = std::move(note);
  MeasureTokens(tool, tools, row);
  if (tool.command_with_jobs) MeasureCap(tool, tools, row);
  if (row.tokens == kYes) {
    MeasureWaking(tool, tools, row);
    MeasureLeak(tool, tools, row);
  }
  return row;
}

BuildTool NinjaTool(const std::string& program) {
  return {"ninja",
          [](const ClientLane& lane, const StandinTools& tools, const StandinBuild& build) {
            WriteNinjaBuild(lane.dir(), tools, build);
          },
          [program](const ClientLane&) { return Words{program}; },
          [program](const ClientLane&, int jobs) {
            return Words{program, "-j" + std::to_string(jobs)};
          }};
}

// Recursive: the makefile with the rules is run by $(MAKE).
BuildTool MakeTool(const std::string& program) {
  return {"make",
          [](const ClientLane& lane, const StandinTools& tools, const StandinBuild& build) {
            WriteMakeBuild(lane.dir(), tools, build);
            fs::rename(lane.dir() / "Makefile", lane.dir() / "inner.mk");
            WriteFile(lane.dir() / "Makefile", "all:\n\t+@$(MAKE) -s -f inner.mk\n");
          },
          [program](const ClientLane&) {
            return Words{program, "-s"};
          },
          [program](const ClientLane&, int jobs) {
            return Words{program, "-s", "-j" + std::to_string(jobs)};
          }};
}

// A CMakeLists.txt or meson.build whose custom commands run the stand-ins as the ninja build does.
std::string CommandOf(const StandinTools& tools, const StandinBuild& build, const fs::path& dir,
                      const StandinEdge& edge, const char* separator) {
  std::string command;
  for (const std::string& word :
       Words{tools.Path(edge.tool), "--curve", edge.curve, "--log", (dir / "standin.log").string(),
             "-o", (dir / (edge.name + ".o")).string(), edge.name})
    command += (command.empty() ? "" : separator) + word;
  (void)build;
  return command;
}

BuildTool CMakeTool(const std::string& generator, const std::string& make_program,
                    const std::string& process) {
  BuildTool tool;
  tool.process = process;
  tool.write = [generator, make_program](const ClientLane& lane, const StandinTools& tools,
                                         const StandinBuild& build) {
    std::string text = "cmake_minimum_required(VERSION 3.18)\nproject(x NONE)\n";
    std::string all = "add_custom_target(all_of_it ALL DEPENDS";
    for (const StandinEdge& edge : build.edges) {
      const std::string output = (lane.dir() / (edge.name + ".o")).string();
      text += "add_custom_command(OUTPUT " + output + " VERBATIM COMMAND " +
              CommandOf(tools, build, lane.dir(), edge, " ") + ")\n";
      all += " " + output;
    }
    WriteFile(lane.dir() / "CMakeLists.txt", text + all + ")\n");
    Words words = {
        "cmake", "-G", generator, "-S", lane.dir().string(), "-B", (lane.dir() / "out").string()};
    if (!make_program.empty()) words.push_back("-DCMAKE_MAKE_PROGRAM=" + make_program);
    const ProgramResult configured = Run(words);
    INFO(configured.out << configured.err);
    REQUIRE(configured.exit_code == 0);
  };
  tool.command = [](const ClientLane&) { return Words{"cmake", "--build", "out"}; };
  tool.command_with_jobs = [](const ClientLane&, int jobs) {
    return Words{"cmake", "--build", "out", "-j", std::to_string(jobs)};
  };
  return tool;
}

BuildTool MesonTool(const std::string& ninja) {
  BuildTool tool;
  tool.process = "ninja";
  tool.write = [ninja](const ClientLane& lane, const StandinTools& tools,
                       const StandinBuild& build) {
    std::string text = "project('x')\n";
    for (const StandinEdge& edge : build.edges) {
      text += "custom_target('" + edge.name + "', output: '" + edge.name +
              ".stamp', build_by_default: true, command: ['sh', '-c', '\"$@\" && touch $0', "
              "'@OUTPUT@', '" +
              CommandOf(tools, build, lane.dir(), edge, "', '") + "'])\n";
    }
    WriteFile(lane.dir() / "meson.build", text);
    ProgramOptions options;
    options.argv = {"meson", "setup", (lane.dir() / "out").string(), lane.dir().string()};
    options.env["NINJA"] = ninja;
    const ProgramResult configured = Run(options);
    INFO(configured.out << configured.err);
    REQUIRE(configured.exit_code == 0);
  };
  tool.command = [ninja](const ClientLane&) {
    return Words{"env", "NINJA=" + ninja, "meson", "compile", "-C", "out"};
  };
  tool.command_with_jobs = [ninja](const ClientLane&, int jobs) {
    return Words{"env", "NINJA=" + ninja,    "meson", "compile", "-C", "out",
                 "-j",  std::to_string(jobs)};
  };
  return tool;
}

// A ninja of PATH that takes no tokens, or one of the venv that does.
std::optional<std::string> Ninja(bool modern) {
  if (modern) {
    const auto venv = VenvTool("ninja");
    return venv ? std::optional(venv->string()) : std::nullopt;
  }
  const auto path = FindProgram("ninja");
  if (!path) return std::nullopt;
  const std::string version = VersionOf({path->string(), "--version"});
  if (version != "1.10" && version != "1.11" && version != "1.12") return std::nullopt;
  return path->string();
}

TEST_CASE("matrix: ninja that knows no jobserver") {
  const auto ninja = Ninja(false);
  if (!ninja) return Skip("the ninja of PATH is 1.13 or newer, or there is none");
  const ClientRow row = Measure("ninja " + VersionOf({*ninja, "--version"}), NinjaTool(*ninja),
                                "all before 1.13, and samurai; runs cores + 2 jobs by itself");
  CHECK(row.tokens == kNo);
  CHECK(row.gate == kYes);
  CHECK(row.cap == kYes);
  CheckDocumented(row);
}

TEST_CASE("matrix: ninja with a jobserver client") {
  const auto ninja = Ninja(true);
  if (!ninja) return Skip("build/venv has no ninja");
  const ClientRow row = Measure("ninja " + VersionOf({*ninja, "--version"}), NinjaTool(*ninja),
                                "1.13 and newer; give no `-j`");
  CHECK(row.tokens == kYes);
  CHECK(row.gate == kYes);
  CHECK(row.leaks == kYes);
  CheckDocumented(row);
}

TEST_CASE("matrix: make that stops at a fifo:") {
  const auto make = FindProgram("make");
  if (!make || VersionOf({make->string(), "--version"}) >= "4.4")
    return Skip("the make of PATH is 4.4 or newer, or there is none");
  const ClientRow row =
      Measure("make " + VersionOf({make->string(), "--version"}), MakeTool(make->string()),
              "4.2 and 4.3; by descriptors from `run`, or the preload library's adapter");
  CHECK(row.tokens == kYes);
  CHECK(row.gate == kYes);
  CheckDocumented(row);
}

TEST_CASE("matrix: make that takes a fifo:") {
  const auto make = VenvTool("make");
  if (!make) return Skip("build/venv has no make");
  const ClientRow row = Measure("make " + VersionOf({make->string(), "--version"}),
                                MakeTool(make->string()), "4.4 and newer");
  CHECK(row.tokens == kYes);
  CHECK(row.gate == kYes);
  CheckDocumented(row);
}

TEST_CASE("matrix: cmake with makefiles") {
  const auto make = FindProgram("make");
  if (!make || !FindProgram("cmake")) return Skip("no cmake or no make");
  const ClientRow row = Measure("cmake, Unix Makefiles",
                                CMakeTool("Unix Makefiles", make->string(), "make"), "as its make");
  CHECK(row.tokens == kYes);
  CHECK(row.gate == kYes);
  CheckDocumented(row);
}

TEST_CASE("matrix: cmake with ninja") {
  const auto ninja = Ninja(true);
  if (!ninja || !FindProgram("cmake")) return Skip("no cmake, or no ninja in build/venv");
  const ClientRow row =
      Measure("cmake, Ninja", CMakeTool("Ninja", *ninja, "ninja"),
              "as its ninja: the one it was configured with; `headroom doctor` names it");
  CHECK(row.tokens == kYes);
  CHECK(row.gate == kYes);
  CheckDocumented(row);
}

TEST_CASE("matrix: meson") {
  const auto ninja = Ninja(true);
  if (!ninja || !FindProgram("meson")) return Skip("no meson, or no ninja in build/venv");
  const ClientRow row =
      Measure("meson", MesonTool(*ninja), "as its ninja; meson-python passes a `-jN` of its own");
  CHECK(row.tokens == kYes);
  CHECK(row.gate == kYes);
  CheckDocumented(row);
}

// --- compilers and what stands before them: no builds of stand-ins ---

// Runs a command in the lane and fills in tokens and gate, where `tool` should be held `least`
// times.
void MeasureCompiler(ClientLane& lane, const Words& command, const std::string& tool, int least,
                     ClientRow& row) {
  const int before = lane.Idle();
  const ProgramResult result = Run(lane.Options(command), seconds(120));
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(lane.Idle() == before);
  row.tokens = lane.FewestIdle() < before ? kYes : kNo;
  INFO(tool << " asked the gate " << lane.Asked(tool) << " times");
  row.gate = lane.Asked(tool) >= least ? kYes : kNo;
}

std::string SomeFunction(const std::string& name) {
  return "__attribute__((used)) int " + name +
         "(std::map<int, std::string>& m) { m[1] = \"x\"; int n = 0; for (auto& e : m) n += "
         "static_cast<int>(e.second.size()); return n; }\n";
}

std::string SomeSource() {
  return "#include <map>\n#include <string>\n" + SomeFunction("f");
}

TEST_CASE("matrix: gcc -flto") {
  if (!FindProgram("g++") || !FindProgram("make")) return Skip("no g++ or no make");
  for (const std::string mode : {"jobserver", "auto"}) {
    ClientLane lane(4);
    // Units that are worth partitions of their own.
    for (int i = 0; i < 4; ++i) {
      std::string text = "#include <map>\n#include <string>\n";
      for (int f = 0; f < 6; ++f) text += SomeFunction("f" + std::to_string(6 * i + f));
      WriteFile(lane.dir() / ("u" + std::to_string(i) + ".cc"), text);
    }
    WriteFile(lane.dir() / "main.cc", "int main() { return 0; }\n");
    WriteFile(lane.dir() / "Makefile",
              "out: u0.o u1.o u2.o u3.o main.o\n"
              "\t+g++ -O1 -flto=" +
                  mode +
                  " -flto-partition=1to1 $^ -o $@\n"
                  "%.o: %.cc\n\tg++ -O1 -flto -c $< -o $@\n");
    ClientRow row;
    row.name = "gcc -flto=" + mode;
    row.note = mode == "auto" ? "takes tokens where it finds a jobserver"
                              : "below make's `+`; runs a make for its partitions";
    // The objects first, so that what is seen is the link's.
    Run(lane.Options({"make", "-s", "u0.o", "u1.o", "u2.o", "u3.o", "main.o"}), seconds(120));
    ClientLane link(4);
    for (const std::string file : {"u0.o", "u1.o", "u2.o", "u3.o", "main.o"})
      fs::copy_file(lane.dir() / file, link.dir() / file);
    WriteFile(link.dir() / "Makefile", ReadFile(lane.dir() / "Makefile"));
    MeasureCompiler(
        link,
        {"make", "-s", "-o", "u0.o", "-o", "u1.o", "-o", "u2.o", "-o", "u3.o", "-o", "main.o"},
        "lto1", 4, row);
    CHECK(row.gate == kYes);
    CHECK(row.tokens == kYes);
    CheckDocumented(row);
  }
}

TEST_CASE("matrix: clang and lld") {
  if (!FindProgram("clang") || !FindProgram("ld.lld")) return Skip("no clang or no lld");
  ClientLane lane(2);
  WriteFile(lane.dir() / "x.c", "int main(void) { return 0; }\n");
  ClientRow row;
  row.name = "clang and lld";
  row.note = "lld's own threads take no tokens";
  MeasureCompiler(lane, {"sh", "-c", "clang -c x.c -o x.o && clang -fuse-ld=lld x.o -o x"}, "clang",
                  1, row);
  CHECK(row.gate == kYes);
  CHECK(lane.Asked("ld.lld") + lane.Asked("lld") == 1);
  CheckDocumented(row);
}

TEST_CASE("matrix: nvcc and its threads") {
  const auto nvcc = FindProgram("nvcc");
  if (!nvcc) return Skip("no nvcc");
  for (const bool jobserver : {false, true}) {
    ClientLane lane(3);
    WriteFile(lane.dir() / "x.cu", "__global__ void f(float* x) { x[threadIdx.x] *= 2; }\n");
    Words words = {nvcc->string(),
                   "-c",
                   "x.cu",
                   "-o",
                   "x.o",
                   "--threads",
                   "4",
                   "-gencode",
                   "arch=compute_80,code=sm_80",
                   "-gencode",
                   "arch=compute_90,code=sm_90"};
    ClientRow row;
    row.name = "nvcc --threads";
    row.note = "the gate holds each cicc and ptxas";
    if (jobserver) {
      if (!Contains(Run({nvcc->string(), "--help"}).out, "--jobserver"))
        return Skip("this nvcc has no --jobserver");
      words.emplace_back("--jobserver");
      row.name += " --jobserver";
      row.note = "13.0 and newer; with `--no-gate` Headroom adds it by NVCC_APPEND_FLAGS";
    }
    MeasureCompiler(lane, words, "cicc", 2, row);
    CHECK(lane.Asked("ptxas") == 2);
    CHECK(row.gate == kYes);
    CHECK(row.tokens == (jobserver ? kYes : kNo));
    CheckDocumented(row);
  }
}

void MeasureLauncher(const std::string& launcher, const std::string& note) {
  ClientLane lane(2);
  WriteFile(lane.dir() / "x.cc", SomeSource());
  ClientRow row;
  row.name = launcher;
  row.note = note;
  MeasureCompiler(lane,
                  {"env", "-u", "CCACHE_DISABLE", "CCACHE_DIR=" + (lane.dir() / "cache").string(),
                   "DISTCC_HOSTS=localhost", "DISTCC_DIR=" + (lane.dir() / "distcc").string(),
                   "SCCACHE_DIR=" + (lane.dir() / "sccache").string(), launcher, "g++", "-c",
                   "x.cc", "-o", "x.o"},
                  "cc1plus", 1, row);
  CHECK(row.gate == kYes);
  CheckDocumented(row);
}

TEST_CASE("matrix: ccache") {
  if (!FindProgram("ccache")) return Skip("no ccache");
  MeasureLauncher("ccache", "a hit compiles nothing, and waits for nothing");
}

TEST_CASE("matrix: distcc") {
  if (!FindProgram("distcc")) return Skip("no distcc");
  MeasureLauncher("distcc", "what it compiles here is held; other machines aren't seen");
}

TEST_CASE("matrix: sccache") {
  if (!FindProgram("sccache")) return Skip("no sccache (Debian 12 has none)");
  MeasureLauncher("sccache",
                  "compiles in its server; held where the server was started in the lane");
}

TEST_CASE("matrix: cargo") {
  const auto cargo = FindProgram("cargo");
  if (!cargo || !FindProgram("rustc")) return Skip("no cargo or no rustc");
  ClientLane lane(3);
  std::string members;
  for (const std::string name : {"a", "b", "c", "d"}) {
    WriteFile(lane.dir() / name / "Cargo.toml",
              "[package]\nname = \"" + name + "\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    WriteFile(lane.dir() / name / "src/lib.rs", "pub fn f() -> u32 { 1 }\n");
    // A build script holds its token while it runs.
    WriteFile(lane.dir() / name / "build.rs",
              "fn main() { std::thread::sleep(std::time::Duration::from_millis(700)); }\n");
    members += (members.empty() ? "\"" : ", \"") + name + "\"";
  }
  WriteFile(lane.dir() / "Cargo.toml",
            "[workspace]\nresolver = \"2\"\nmembers = [" + members + "]\n");
  ClientRow row;
  row.name = "cargo " + VersionOf({cargo->string(), "--version"});
  row.note =
      "rustc is held but not run again; a cargo too old for `fifo:` makes a jobserver of its own";
  MeasureCompiler(lane, {cargo->string(), "check", "--offline", "--quiet"}, "rustc", 4, row);
  CHECK(row.gate == kYes);
  if (row.tokens == kYes) {
    fs::remove_all(lane.dir() / "target");
    const ProgramResult capped = Run(lane.Options({cargo->string(), "check", "--offline", "-j1"}));
    INFO(capped.err);
    CHECK(capped.exit_code == 0);
    row.cap = Contains(capped.err, "ignoring the `-j` parameter") ? kNo : kYes;
  }
  CheckDocumented(row);
}

}  // namespace
}  // namespace headroom::testing
