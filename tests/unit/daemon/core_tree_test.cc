// Who belongs to which lane, who takes tokens, what they explain; and what build files tell.
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "server/daemon/command_line.h"
#include "server/daemon/hints.h"
#include "server/daemon/tree.h"

namespace headroom::daemon {
namespace {

using policy::LaneId;
using policy::ProcId;
using policy::Role;

constexpr LaneId kA{1};
constexpr LaneId kB{2};
constexpr uint32_t kUser = 1000;

// A host in a few lines: P(pid, ppid, what).
struct Host {
  std::vector<TreeProcess> processes;
  std::vector<TreeRoot> roots;

  TreeProcess& P(int pid, int ppid, const std::string& name, Role role = Role::kOther) {
    TreeProcess process;
    process.id = {pid, static_cast<uint64_t>(pid)};
    process.ppid = ppid;
    process.uid = kUser;
    process.name = name;
    process.role = role;
    process.is_shell = name == "sh";
    processes.push_back(process);
    return processes.back();
  }
  TreeProcess& Client(int pid, int ppid, const std::string& name = "ninja") {
    return P(pid, ppid, name, Role::kClient);
  }
  TreeProcess& Tool(int pid, int ppid, const std::string& name = "cicc") {
    return P(pid, ppid, name, Role::kTool);
  }
  TreeView View() {
    std::sort(processes.begin(), processes.end(),
              [](const TreeProcess& a, const TreeProcess& b) { return a.id.pid < b.id.pid; });
    return DeriveTree(processes, roots);
  }
  static ProcId Id(int pid) { return {pid, static_cast<uint64_t>(pid)}; }
};

Host RunHost() {
  Host host;
  host.P(1, 0, "init").uid = 0;
  host.P(100, 1, "headroom");
  host.roots.push_back({kA, kUser, Host::Id(100)});
  return host;
}

TEST_CASE("what runs below `run` belongs to its lane, `run` itself does not") {
  Host host = RunHost();
  host.Client(110, 100);
  host.P(111, 110, "sh");
  host.P(120, 1, "editor");
  const TreeView view = host.View();
  const TreeLane& lane = view.lanes.at(kA);
  CHECK(lane.members == std::vector<ProcId>{Host::Id(110), Host::Id(111)});
  CHECK(lane.clients == std::vector<ProcId>{Host::Id(110)});
}

TEST_CASE("the environment's lane goes before ancestry") {
  Host host = RunHost();
  host.roots.push_back({kB, kUser, {}});
  host.Client(110, 100);
  host.P(111, 110, "sh").env_lane = kB;  // a shell that exported another lane
  host.Client(112, 111, "make");
  const TreeView view = host.View();
  CHECK(view.lanes.at(kA).members == std::vector<ProcId>{Host::Id(110)});
  CHECK(view.lanes.at(kB).members == std::vector<ProcId>{Host::Id(111), Host::Id(112)});
  CHECK(view.lanes.at(kB).clients == std::vector<ProcId>{Host::Id(112)});
}

TEST_CASE("another user's process is no member, whatever its environment says") {
  Host host = RunHost();
  TreeProcess& other = host.Client(110, 1, "make");
  other.env_lane = kA;
  other.uid = 2000;
  TreeProcess& root = host.P(111, 100, "sudo");
  root.uid = 0;
  host.P(112, 111, "sh");  // the lane's user again, below sudo
  const TreeLane lane = host.View().lanes.at(kA);
  CHECK(lane.members == std::vector<ProcId>{Host::Id(112)});
  CHECK(lane.clients.empty());
}

TEST_CASE("tokens explained are the jobs less the implicit slot") {
  Host host = RunHost();
  host.Client(110, 100);
  CHECK(host.View().lanes.at(kA).explained == 0);
  host.P(111, 110, "sh");
  CHECK(host.View().lanes.at(kA).explained == 0);
  host.P(112, 110, "sh");
  host.P(113, 112, "nvcc", Role::kDriver);
  host.Tool(114, 113);
  host.Tool(115, 113);
  const TreeView view = host.View();
  const TreeLane& lane = view.lanes.at(kA);
  // nvcc's two ciccs run on one token.
  CHECK(lane.explained == 1);
  CHECK(lane.jobs ==
        std::vector<TreeJob>{{Host::Id(111), Host::Id(110)}, {Host::Id(112), Host::Id(110)}});
  // Processes by pid: 1, 100, 110, 111, 112, 113, 114, 115.
  CHECK(view.job_of == std::vector<int32_t>{-1, -1, -1, 3, 4, 4, 4, 4});
}

TEST_CASE("a dead job that its client has not waited for still holds its token") {
  Host host = RunHost();
  host.Client(110, 100);
  host.P(111, 110, "sh");
  TreeProcess& dead = host.P(112, 110, "sh");
  dead.dead = true;
  dead.uid = 0;
  const TreeLane lane = host.View().lanes.at(kA);
  CHECK(lane.explained == 1);
  CHECK(lane.jobs.size() == 1);
}

TEST_CASE("a sub-make uses its parent's token as its own implicit slot") {
  Host host = RunHost();
  host.Client(110, 100, "make");
  host.P(111, 110, "sh");
  host.Client(112, 111, "make");
  for (int pid = 120; pid < 123; ++pid) host.P(pid, 112, "sh");
  host.P(130, 110, "sh");
  const TreeLane lane = host.View().lanes.at(kA);
  CHECK(lane.clients == std::vector<ProcId>{Host::Id(110)});
  CHECK(lane.nested == std::vector<ProcId>{Host::Id(112)});
  CHECK(lane.explained == 3);  // four leaves
  CHECK(lane.jobs.size() == 4);
}

TEST_CASE("two builds of one lane have two implicit slots") {
  Host host;
  host.P(1, 0, "init");
  host.roots.push_back({kA, kUser, {}});
  for (const int client : {110, 210}) {
    host.Client(client, 1).env_lane = kA;
    for (int i = 1; i <= 3; ++i) host.P(client + i, client, "sh");
  }
  const TreeLane lane = host.View().lanes.at(kA);
  CHECK(lane.clients.size() == 2);
  CHECK(lane.explained == 4);
}

TEST_CASE("rustc's threads each may hold a token") {
  Host host = RunHost();
  host.Client(110, 100, "cargo");
  host.Tool(111, 110, "rustc").threads = 6;
  CHECK(host.View().lanes.at(kA).explained == 5);
}

TEST_CASE("an unknown program with the fifo open and children is a client") {
  Host host = RunHost();
  TreeProcess& python = host.P(110, 100, "python3");
  python.opener = true;
  for (int pid = 111; pid < 114; ++pid) host.P(pid, 110, "cc");
  const TreeLane lane = host.View().lanes.at(kA);
  CHECK(lane.clients == std::vector<ProcId>{Host::Id(110)});
  CHECK(lane.explained == 2);
}

TEST_CASE("who only passes descriptors on is no client, nor is a sleeper that inherited them") {
  Host host = RunHost();
  host.P(110, 100, "pip").opener = true;
  host.P(111, 110, "sh").opener = true;
  host.Client(112, 111, "make").opener = true;
  host.P(113, 112, "sh");
  host.P(114, 112, "sh");
  host.P(115, 100, "sleep").opener = true;  // K16: double-forked, `run` is its parent now
  const TreeLane lane = host.View().lanes.at(kA);
  CHECK(lane.clients == std::vector<ProcId>{Host::Id(112)});
  CHECK(lane.explained == 1);
}

TEST_CASE("nvcc --jobserver takes tokens for its own steps") {
  Host host = RunHost();
  host.Client(110, 100);
  host.P(111, 110, "nvcc", Role::kDriver).takes_tokens = true;
  for (int pid = 112; pid < 116; ++pid) host.Tool(pid, 111);
  const TreeLane lane = host.View().lanes.at(kA);
  CHECK(lane.explained == 3);
  CHECK(lane.clients == std::vector<ProcId>{Host::Id(110)});
}

TEST_CASE("a nested `run` is one job of the outer lane, and its build none") {
  Host host = RunHost();
  host.Client(110, 100);
  host.P(111, 110, "headroom");  // root of lane B, in lane A by its parent
  host.roots.push_back({kB, kUser, Host::Id(111)});
  host.Client(112, 111);
  host.P(113, 112, "sh");
  host.P(114, 112, "sh");
  const TreeView view = host.View();
  CHECK(view.lanes.at(kA).jobs == std::vector<TreeJob>{{Host::Id(111), Host::Id(110)}});
  CHECK(view.lanes.at(kA).explained == 0);
  CHECK(view.lanes.at(kB).clients == std::vector<ProcId>{Host::Id(112)});
  CHECK(view.lanes.at(kB).explained == 1);
}

TEST_CASE("a snapshot with impossible parents is borne") {
  Host host = RunHost();
  // A circle, a parent that started after its child, one that is missing.
  host.P(200, 201, "a").id.start = 5;
  host.P(201, 200, "b").id.start = 5;
  host.P(300, 301, "c").id.start = 1;
  host.P(301, 1, "d").id.start = 9;
  host.P(400, 9999, "e");
  host.P(500, 500, "f");
  const TreeView view = host.View();
  CHECK(view.lane_of.size() == host.processes.size());
  CHECK(view.lanes.at(kA).members.empty());
}

TEST_CASE("a chain of thousands of processes is borne") {
  Host host = RunHost();
  host.Client(1000, 100);
  for (int pid = 1001; pid < 9000; ++pid) host.P(pid, pid - 1, "sh");
  const TreeView view = host.View();
  CHECK(view.lanes.at(kA).explained == 0);
  CHECK(view.lanes.at(kA).members.size() == 8000);
}

// --- Command lines
// --------------------------------------------------------------------------------

TEST_CASE("a shell is not the compiler that it will run, but is known to run it") {
  const Recognised shell =
      RecogniseProcess({"/bin/sh", "-c", "cd x && /usr/bin/nvcc -c a.cu -o a.o"}, "sh");
  CHECK(shell.is_shell);
  CHECK(shell.command.role == Role::kOther);
  CHECK(shell.runs.name == "nvcc");
  CHECK(shell.runs.source == "a.cu");
  const Recognised tool =
      RecogniseProcess({"/opt/bin/cicc", "--arch", "sm_90", "a.cpp1.ii"}, "cicc");
  CHECK_FALSE(tool.is_shell);
  CHECK(tool.command.role == Role::kTool);
  CHECK(RecogniseProcess({}, "kthreadd").command.role == Role::kOther);
}

// --- build.ninja
// ------------------------------------------------------------------------------------

using Edges = policy::LaneHint::Edges;

std::vector<Edges> Parse(const std::map<std::string, std::string>& files,
                         const std::vector<std::string>& there = {}, HintLimits limits = {}) {
  HintSource source;
  source.read = [&](const std::string& path, size_t limit) -> std::optional<std::string> {
    const auto file = files.find(path);
    if (file == files.end()) return std::nullopt;
    return file->second.substr(0, limit);
  };
  source.exists = [&](const std::string& path) {
    return std::find(there.begin(), there.end(), path) != there.end();
  };
  return ParseNinja("build.ninja", source, limits);
}

// As torch.utils.cpp_extension writes it.
constexpr char kTorch[] = R"(ninja_required_version = 1.3
cxx = c++
nvcc = /usr/local/cuda/bin/nvcc

cflags = -DTORCH_API_INCLUDE_EXTENSION_H -fPIC -std=c++17
post_cflags = -O3
cuda_cflags = -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 --threads 4
cuda_post_cflags = -std=c++17
cuda_dlink_post_cflags =
ldflags =

rule compile
  command = $cxx -MMD -MF $out.d $cflags -c $in -o $out $post_cflags
  depfile = $out.d
  deps = gcc

rule cuda_compile
  depfile = $out.d
  deps = gcc
  command = $nvcc --generate-dependencies-with-compile --dependency-output $out.d $cuda_cflags -c $in -o $out $cuda_post_cflags

build /b/flash_api.o: compile /s/csrc/flash_api.cpp
build /b/flash_bwd_hdim128.o: cuda_compile /s/csrc/flash_bwd_hdim128.cu
build /b/flash_bwd_hdim256.o: cuda_compile /s/csrc/flash_bwd_hdim256.cu
build /b/flash_fwd.o: cuda_compile /s/csrc/flash_fwd.cu
)";

TEST_CASE("torch's build file tells nvcc from the host compiler, archs and threads") {
  CHECK(Parse({{"build.ninja", kTorch}}) == std::vector<Edges>{{"c++", 1, 1}, {"nvcc", 3, 2}});
  // What is there needn't be built again.
  CHECK(Parse({{"build.ninja", kTorch}}, {"/b/flash_fwd.o", "/b/flash_api.o"}) ==
        std::vector<Edges>{{"nvcc", 2, 2}});
}

TEST_CASE("CMake's build file is read with what it includes") {
  const std::string main = R"(include CMakeFiles/rules.ninja
build all: phony app
build CMakeFiles/app.dir/a.cu.o: CUDA_COMPILER__app_ /s/a.cu || cmake_object_order
  FLAGS = --generate-code=arch=compute_90,code=[compute_90,sm_90] $
      -O2
build CMakeFiles/app.dir/b.cpp.o | b.gcm: CXX_COMPILER__app_ /s/b.cpp
build app: CXX_EXECUTABLE_LINKER__app_ CMakeFiles/app.dir/a.cu.o CMakeFiles/app.dir/b.cpp.o
build gen.h: CUSTOM_COMMAND
  COMMAND = cd /b && python3 gen.py
)";
  const std::string rules = R"(rule CUDA_COMPILER__app_
  command = ${LAUNCHER}/usr/local/cuda/bin/nvcc $FLAGS -x cu -c $in -o $out
rule CXX_COMPILER__app_
  command = /usr/bin/ccache /usr/bin/g++ $FLAGS -o $out -c $in
rule CXX_EXECUTABLE_LINKER__app_
  command = $PRE_LINK && /usr/bin/g++ $FLAGS $in -o $TARGET_FILE && :
rule CUSTOM_COMMAND
  command = $COMMAND
)";
  const std::vector<Edges> edges =
      Parse({{"build.ninja", main}, {"CMakeFiles/rules.ninja", rules}});
  CHECK(edges == std::vector<Edges>{{"nvcc", 1, 1}, {"c++", 1, 1}, {"ld", 1, 1}, {"other", 1, 1}});
}

TEST_CASE("a build file that includes itself, or has no end of anything, is borne") {
  CHECK(Parse({{"build.ninja", "include build.ninja\nsubninja build.ninja\n"}}).empty());
  std::string doubling = "a0 = xxxxxxxxxxxxxxxx\n";
  for (int i = 1; i < 60; ++i) {
    const std::string before = "$a" + std::to_string(i - 1);
    doubling += "a" + std::to_string(i) + " = " + before + before + "\n";
  }
  doubling += "rule r\n  command = nvcc $a59\nbuild o: r i\n";
  CHECK(Parse({{"build.ninja", doubling}}).size() == 1);
  for (const char* text : {"", "\n", "$", "$\n", "build", "build :", "build o", "build o:", "rule",
                           "rule \n  command = ${", "build o: r\n  x = $", "a = ${b", "  x = y",
                           "build $ : $: :", "include ", "subninja $", "\r\n\r\n"}) {
    INFO(text);
    CHECK(Parse({{"build.ninja", text}}).empty());
  }
  // Cut off anywhere.
  const std::string torch = kTorch;
  for (size_t length = 0; length < torch.size(); length += 7) {
    CHECK(Parse({{"build.ninja", torch.substr(0, length)}}).size() <= 2);
  }
}

TEST_CASE("more edges than a bound are not counted") {
  std::string text = "rule r\n  command = g++ -c $in -o $out\n";
  for (int i = 0; i < 500; ++i) text += "build o" + std::to_string(i) + ": r i.cc\n";
  HintLimits limits;
  limits.edges = 100;
  CHECK(Parse({{"build.ninja", text}}, {}, limits) == std::vector<Edges>{{"c++", 100, 1}});
}

}  // namespace
}  // namespace headroom::daemon
