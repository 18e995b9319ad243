#include "client/cli/doctor.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace headroom::cli {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// A machine and an environment with nothing to say about.
DoctorFacts Healthy() {
  DoctorFacts facts;
  facts.machine.os_release = "6.1.0-13-amd64";
  sys::MemInfo memory;
  memory.total_bytes = 64 * kGiB;
  memory.available_bytes = 60 * kGiB;
  memory.swap_total_bytes = memory.swap_free_bytes = 8 * kGiB;
  facts.machine.memory = memory;
  facts.machine.pressure = true;
  facts.machine.oom_kills = 0;
  facts.machine.groups = {{"/", sys::CgroupVersion::kV2, {}}};
  facts.machine.cores.affinity = 16;
  facts.machine.processors = 16;
  facts.machine.overcommit = 0;
  facts.machine.panic_on_oom = 0;
  facts.tmp = {"/tmp", sys::FilesystemSpace{100 * kGiB, 80 * kGiB, false}, true};
  facts.gate = {"/usr/lib/libheadroom.so", true, "/usr/bin/headroomd"};
  facts.daemon.state = DaemonFacts::State::kAnswers;
  facts.daemon.version = HEADROOM_VERSION;
  return facts;
}

ToolFacts Tool(const std::string& name, Version version) {
  ToolFacts tool;
  tool.name = name;
  tool.path = "/usr/bin/" + name;
  tool.version = version;
  return tool;
}

ToolFacts Compiler(const std::string& name) {
  ToolFacts tool;
  tool.name = name;
  tool.path = "/opt/" + name;
  tool.gated = true;
  return tool;
}

// The findings of one kind.
std::vector<Finding> Of(const std::vector<Finding>& findings, const std::string& id) {
  std::vector<Finding> some;
  for (const Finding& finding : findings)
    if (finding.id == id) some.push_back(finding);
  return some;
}

// The only finding of one kind; each that needs doing names a remedy.
Finding The(const DoctorFacts& facts, const std::string& id) {
  const std::vector<Finding> findings = Diagnose(facts);
  for (const Finding& finding : findings) {
    INFO(finding.id);
    CHECK(!finding.what.empty());
    if (finding.severity == Severity::kWarning || finding.severity == Severity::kProblem)
      CHECK(!finding.remedy.empty());
  }
  const std::vector<Finding> some = Of(findings, id);
  INFO(id << " among:\n" << FindingsText(findings));
  REQUIRE(some.size() == 1);
  return some[0];
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("doctor: a healthy machine needs nothing") {
  const std::vector<Finding> findings = Diagnose(Healthy());
  INFO(FindingsText(findings));
  CHECK(!NeedsDoing(findings));
  for (const Finding& finding : findings) CHECK(finding.severity == Severity::kOk);
  CHECK(Contains(FindingsText(findings), "Nothing needs doing."));
}

TEST_CASE("doctor: the kernel") {
  DoctorFacts facts = Healthy();
  facts.machine.os_release = "4.18.0-513.el8.x86_64";
  CHECK(The(facts, "kernel").severity == Severity::kProblem);

  facts = Healthy();
  facts.machine.pressure = false;
  CHECK(The(facts, "pressure").severity == Severity::kNote);
  facts.machine.oom_kills.reset();
  CHECK(The(facts, "oom-counter").severity == Severity::kWarning);
  facts.machine.overcommit = 2;
  CHECK(Contains(The(facts, "overcommit").remedy, "vm.overcommit_memory=0"));
  facts.machine.panic_on_oom = 1;
  CHECK(The(facts, "panic-on-oom").severity == Severity::kProblem);
  facts.machine.hides_processes = true;
  CHECK(The(facts, "hidepid").severity == Severity::kWarning);
  facts.machine.memory->available_is_estimate = true;
  CHECK(The(facts, "available-estimate").severity == Severity::kNote);
  facts.machine.memory.reset();
  CHECK(The(facts, "memory").severity == Severity::kProblem);
}

TEST_CASE("doctor: WSL, by its kernel's name") {
  DoctorFacts facts = Healthy();
  facts.machine.os_release = "5.15.167.4-microsoft-standard-WSL2";
  CHECK(The(facts, "wsl").severity == Severity::kNote);
  CHECK(Contains(The(facts, "wsl").remedy, ".wslconfig"));
  facts.machine.os_release = "4.4.0-19041-Microsoft";
  CHECK(The(facts, "wsl").severity == Severity::kProblem);
  CHECK(Contains(The(facts, "wsl").remedy, "--set-version"));
}

TEST_CASE("doctor: memory, by the tightest limit") {
  DoctorFacts facts = Healthy();
  sys::CgroupMemory group;
  group.limit_bytes = 8 * kGiB;
  facts.machine.groups.insert(facts.machine.groups.begin(),
                              {"/build", sys::CgroupVersion::kV2, group});
  CHECK(The(facts, "memory").severity == Severity::kOk);
  CHECK(Contains(The(facts, "memory").what, "/build"));
  CHECK(Contains(The(facts, "memory").value, "8.0 GiB"));

  facts.machine.groups[0].memory.limit_bytes = 2 * kGiB;
  CHECK(The(facts, "memory").severity == Severity::kWarning);
  facts.machine.groups[0].memory.limit_bytes = 8 * kGiB;
  facts.machine.groups[0].memory.high_bytes = 6 * kGiB;
  CHECK(Contains(The(facts, "memory-high").value, "6.0 GiB"));
  facts.machine.groups[0].memory.oom_group = true;
  CHECK(The(facts, "oom-group").severity == Severity::kWarning);
  CHECK(Contains(The(facts, "oom-group").remedy, "OOMPolicy=continue"));
  facts.machine.groups[0].memory.swap_limit_bytes = 0;
  CHECK(The(facts, "cgroup-swap").severity == Severity::kNote);

  facts.machine.groups.clear();
  facts.machine.groups_error = "no memory controller is mounted";
  CHECK(Contains(The(facts, "cgroup").value, "no memory controller"));
}

TEST_CASE("doctor: swap and user-space OOM killers") {
  DoctorFacts facts = Healthy();
  facts.machine.memory->swap_total_bytes = 0;
  CHECK(The(facts, "swap").severity == Severity::kNote);
  for (const std::string name : {"earlyoom", "systemd-oomd"}) {
    facts.machine.oom_daemons = {name};
    const Finding finding = The(facts, "oom-daemon");
    CHECK(finding.severity == Severity::kWarning);
    CHECK(finding.value == name);
  }
}

TEST_CASE("doctor: cores and limits of processes") {
  DoctorFacts facts = Healthy();
  facts.machine.cores.quota_millicores = 2500;
  CHECK(The(facts, "cores").value == "3 of 16");
  CHECK(Contains(The(facts, "cores").what, "quota"));
  facts.machine.cores.quota_millicores.reset();
  facts.machine.cores.cpuset = 4;
  CHECK(Contains(The(facts, "cores").what, "cpuset"));
  facts.machine.cores.cpuset.reset();
  facts.machine.cores.affinity = 4;
  CHECK(Contains(The(facts, "cores").what, "affinity"));
  facts.machine.limits.address_space_bytes = 4 * kGiB;
  CHECK(The(facts, "address-space").severity == Severity::kWarning);
  facts.machine.pids_left = 63;
  CHECK(The(facts, "tasks").value == "63");
  facts.machine.limits.processes = 20;
  CHECK(The(facts, "tasks").value == "20");
  facts.machine.pids_left = 4000;
  facts.machine.limits.processes.reset();
  CHECK(Of(Diagnose(facts), "tasks").empty());
}

TEST_CASE("doctor: room for temporary files") {
  DoctorFacts facts = Healthy();
  facts.tmp.space->in_memory = true;
  CHECK(Contains(The(facts, "tmp-in-memory").remedy, "TMPDIR=/var/tmp"));
  facts.tmp.space->in_memory = false;
  facts.tmp.space->available_bytes = kGiB;
  CHECK(The(facts, "tmp-space").severity == Severity::kWarning);
  facts.tmp.writable = false;
  CHECK(The(facts, "tmp").severity == Severity::kProblem);
  facts.tmp = {"/none", std::nullopt, true};
  CHECK(The(facts, "tmp").value == "/none");
}

TEST_CASE("doctor: what each tool can do here") {
  DoctorFacts facts = Healthy();
  facts.tools = {Tool("make", {4, 3}), Tool("ninja", {1, 11}), Tool("nvcc", {12, 8}),
                 Tool("cargo", {1, 80})};
  facts.tools[0].make = MakeAbility::kDescriptors;
  CHECK(Contains(The(facts, "make").what, "adapter"));
  CHECK(The(facts, "ninja").severity == Severity::kNote);
  CHECK(Contains(The(facts, "nvcc").what, "the gate holds them"));
  CHECK(The(facts, "cargo").severity == Severity::kOk);
  facts.gate.library.clear();
  CHECK(The(facts, "make").severity == Severity::kNote);

  facts = Healthy();
  facts.tools = {Tool("make", {4, 4}), Tool("ninja", {1, 13}), Tool("nvcc", {13, 0})};
  facts.tools[0].make = MakeAbility::kFifo;
  CHECK(The(facts, "make").severity == Severity::kOk);
  CHECK(The(facts, "ninja").severity == Severity::kOk);
  CHECK(Contains(The(facts, "nvcc").what, "--jobserver"));
}

TEST_CASE("doctor: compilers that the gate can't hold") {
  DoctorFacts facts = Healthy();
  facts.tools = {Compiler("cicc")};
  CHECK(!NeedsDoing(Diagnose(facts)));
  facts.tools[0].loading = Loading::kMusl;
  CHECK(!NeedsDoing(Diagnose(facts)));
  facts.tools[0].sanitized = true;
  CHECK(The(facts, "gate-asan").severity == Severity::kNote);
  facts.tools[0].loading = Loading::kStatic;
  CHECK(The(facts, "gate-static").severity == Severity::kWarning);
  facts.tools[0].set_id = true;
  CHECK(The(facts, "gate-setuid").value == "/opt/cicc");
}

TEST_CASE("doctor: the gate and the daemon") {
  DoctorFacts facts = Healthy();
  facts.env["HEADROOM_GATE"] = "0";
  CHECK(The(facts, "gate").severity == Severity::kWarning);
  facts.gate.loads = false;
  CHECK(The(facts, "gate").severity == Severity::kProblem);
  facts.gate.library.clear();
  CHECK(Contains(The(facts, "gate").what, "not found"));

  facts = Healthy();
  facts.daemon.version = "0.0.1";
  CHECK(The(facts, "daemon").severity == Severity::kWarning);
  facts.daemon.broken_invariants = 2;
  CHECK(The(facts, "invariants").severity == Severity::kProblem);
  facts.daemon.notes = {"no PSI"};
  CHECK(The(facts, "daemon-note").value == "no PSI");

  facts = Healthy();
  facts.daemon.state = DaemonFacts::State::kNone;
  CHECK(The(facts, "daemon").severity == Severity::kNote);
  facts.gate.daemon.clear();
  CHECK(The(facts, "daemon").severity == Severity::kProblem);
  facts.daemon.state = DaemonFacts::State::kBroken;
  facts.daemon.text = "it hangs";
  CHECK(The(facts, "daemon").value == "it hangs");
  facts.daemon.runtime_error = "/tmp/headroom-7: belongs to user 0";
  CHECK(The(facts, "runtime-folder").severity == Severity::kProblem);
}

TEST_CASE("doctor: what in the environment caps builds") {
  DoctorFacts facts = Healthy();
  for (const std::string name : {"MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"}) {
    facts.env = {{name, "4"}};
    CHECK(The(facts, "jobs-cap").severity == Severity::kWarning);
    CHECK(The(facts, "jobs-cap").value == name + "=4");
    // A lane's own.
    facts.env["HEADROOM_PARALLEL"] = name + "=4";
    CHECK(Of(Diagnose(facts), "jobs-cap").empty());
  }
  facts.env = {{"MAKEFLAGS", "k -j4"}};
  CHECK(Contains(The(facts, "jobs-cap").what, "caps"));
  facts.env = {{"GNUMAKEFLAGS", "-j"}};
  CHECK(Contains(The(facts, "jobs-cap").what, "all jobs at once"));
  facts.env = {{"MAKEFLAGS", " -j8 --jobserver-auth=3,4"}};
  CHECK(The(facts, "jobserver").severity == Severity::kWarning);
  facts.env = {{"MAKEFLAGS", " -j8 --jobserver-auth=fifo:/r/fifo"}, {"HEADROOM_LANE", "/r"}};
  CHECK(Of(Diagnose(facts), "jobserver").empty());
  facts.env = {{"NVCC_THREADS", "8"}};
  CHECK(The(facts, "jobs-cap").severity == Severity::kNote);
}

TEST_CASE("doctor: what the build folder fixes") {
  DoctorFacts facts = Healthy();
  facts.folder.pools = {{"console", 0}, {"link", 2}};
  CHECK(The(facts, "pool").value == "link, depth 2");
  facts.folder.make_program = "/usr/bin/ninja";
  facts.folder.ninja = Version{1, 11};
  CHECK(Contains(The(facts, "folder-ninja").remedy, "CMAKE_MAKE_PROGRAM"));
  facts.folder.launchers = {"/usr/bin/ccache"};
  CHECK(The(facts, "launcher").severity == Severity::kOk);
  facts.folder.launchers = {"/usr/bin/distcc"};
  CHECK(The(facts, "launcher").severity == Severity::kNote);
  facts.folder.fixed_jobs = {"Makefile:3: $(MAKE) -j8"};
  CHECK(The(facts, "fixed-jobs").value == "Makefile:3: $(MAKE) -j8");
  facts.folder.is_torch_extension = true;
  CHECK(The(facts, "torch").severity == Severity::kOk);
}

TEST_CASE("Pools of a build.ninja") {
  const auto pools = PoolsOf(
      "ninja_required_version = 1.5\npool link\n  depth = 3\nrule cc\n  depth = 9\n"
      "pool other\n  # depth = 4\n  depth=x\npool last\n    depth = 12  \n");
  REQUIRE(pools.size() == 3);
  CHECK(pools[0].name == "link");
  CHECK(pools[0].depth == 3);
  CHECK(pools[1].depth == 0);
  CHECK(pools[2].depth == 12);
  CHECK(PoolsOf("").empty());
}

TEST_CASE("Lines of a makefile that fix a number of jobs") {
  const auto found = FixedJobsOf("Makefile",
                                 "all:\n\t$(MAKE) -C sub -j8\n\t# make -j4\n\t+make sub\n"
                                 "\tcmake --build x --parallel 4\n\tninja -C out -j 2 && echo\n"
                                 "\techo make-j4\n\t$(MAKE) -C new-j4\n\t" +
                                     std::string(100000, 'x') + " make -j4\n\tmake --jobs=3");
  CHECK(found == std::vector<std::string>{
                     "Makefile:2: $(MAKE) -C sub -j8", "Makefile:5: cmake --build x --parallel 4",
                     "Makefile:6: ninja -C out -j 2 && echo", "Makefile:10: make --jobs=3"});
}

TEST_CASE("Findings as JSON, and as text without control characters") {
  const std::vector<Finding> findings = {
      {Severity::kWarning, "tmp", "a \"quoted\" thing", "\x1b[31m\xff", "do it"}};
  const auto json = nlohmann::json::parse(FindingsJson(findings));
  CHECK(json["needs_doing"] == true);
  CHECK(json["findings"][0]["id"] == "tmp");
  CHECK(json["findings"][0]["severity"] == "warning");
  CHECK(json["findings"][0]["remedy"] == "do it");
  const std::string text = FindingsText(findings);
  CHECK(!Contains(text, "\x1b"));
  CHECK(Contains(text, "warning  a \"quoted\" thing: "));
  CHECK(Contains(text, "-> do it\n"));
  CHECK(Contains(text, "0 problems, 1 warning."));
}

}  // namespace
}  // namespace headroom::cli
