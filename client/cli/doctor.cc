#include "client/cli/doctor.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "client/cli/makeflags.h"
#include "client/cli/parallel.h"
#include "client/cli/units.h"

namespace headroom::cli {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
// One cicc of a heavy kernel takes 3.5 to 7 GB, a cc1plus up to 2 (measured on flash-attn).
constexpr int64_t kLittleMemory = 4 * kGiB;
// The temporary files of one nvcc reach some 0.2 GB for each architecture (flash-attention#1043).
constexpr int64_t kLittleTemporarySpace = 4 * kGiB;
// A job is some five processes: sh, driver, compiler, and a keeper for each.
constexpr int64_t kTasksForEachCore = 16;
// pidfd_open(2), which the daemon needs to be sure whom it signals; it came with 5.3, and 5.4 is
// the first of these that was kept up.
constexpr Version kOldestKernel = {5, 4};

class Findings {
 public:
  void Ok(std::string id, std::string what, std::string value) {
    Add(Severity::kOk, std::move(id), std::move(what), std::move(value), "");
  }
  void Add(Severity severity, std::string id, std::string what, std::string value,
           std::string remedy) {
    all_.push_back({severity, std::move(id), std::move(what), std::move(value), std::move(remedy)});
  }
  std::vector<Finding> Take() { return std::move(all_); }

 private:
  std::vector<Finding> all_;
};

std::string Text(const Version& version) {
  return absl::StrCat(version.major, ".", version.minor);
}

void LookAtKernel(const MachineFacts& machine, Findings& out) {
  const std::string& release = machine.os_release;
  const auto version = FirstVersion(release);
  if (version && *version < kOldestKernel) {
    out.Add(Severity::kProblem, "kernel", "the kernel is too old to tell processes apart for sure",
            release, "use Linux 5.4 or newer");
  } else {
    out.Ok("kernel", "the kernel", release.empty() ? "unknown" : release);
  }
  std::string lower = release;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  if (lower.find("microsoft") != std::string::npos) {
    if (lower.find("wsl2") == std::string::npos && version && *version < Version{4, 19}) {
      out.Add(Severity::kProblem, "wsl", "this is WSL 1, which has no Linux kernel of its own",
              release, "convert the distribution: wsl --set-version NAME 2");
    } else {
      out.Add(
          Severity::kNote, "wsl",
          "this is WSL 2: Windows gives it half of the memory at first, and ends all of it where "
          "that is not enough",
          release,
          "set memory= and swap= under [wsl2] in %UserProfile%\\.wslconfig, then wsl --shutdown; "
          "keep sources and build folders out of /mnt/c");
    }
  }
  if (!machine.pressure)
    out.Add(
        Severity::kNote, "pressure",
        "the kernel tells no memory pressure (PSI); the brake goes by memory and swapping alone",
        "no /proc/pressure/memory", "boot with psi=1, where you can");
  if (!machine.oom_kills)
    out.Add(Severity::kWarning, "oom-counter",
            "the kernel does not count OOM kills: a killed compiler can't be told from a crash",
            "no oom_kill in /proc/vmstat", "use Linux 4.13 or newer");
  if (machine.overcommit == 2)
    out.Add(
        Severity::kWarning, "overcommit",
        "memory that is only asked for counts as used: compilers fail with \"out of memory\" while "
        "much of it is free",
        "vm.overcommit_memory = 2", "sysctl vm.overcommit_memory=0");
  if (machine.panic_on_oom.value_or(0) != 0)
    out.Add(Severity::kProblem, "panic-on-oom", "the kernel panics where others end one process",
            absl::StrCat("vm.panic_on_oom = ", *machine.panic_on_oom), "sysctl vm.panic_on_oom=0");
  if (machine.hides_processes)
    out.Add(Severity::kWarning, "hidepid",
            "/proc hides other users' processes: their compilers are not planned with",
            "/proc is mounted with hidepid",
            "run headroomd as root's service, or mount /proc with hidepid=0");
}

void LookAtMemory(const MachineFacts& machine, Findings& out) {
  if (!machine.memory) {
    out.Add(Severity::kProblem, "memory", "the machine's memory can't be read", "/proc/meminfo",
            "mount /proc");
    return;
  }
  const sys::MemInfo& memory = *machine.memory;
  int64_t limit = memory.total_bytes;
  std::string where = "the machine";
  for (const MachineFacts::Group& group : machine.groups) {
    const auto bound = group.memory.EffectiveLimitBytes();
    if (bound && *bound < limit) {
      limit = *bound;
      where = absl::StrCat("the cgroup ", group.name);
    }
  }
  const std::string value = absl::StrCat(
      HumanBytes(limit),
      where == "the machine" ? ""
                             : absl::StrCat(" of the machine's ", HumanBytes(memory.total_bytes)),
      ", ", HumanBytes(memory.available_bytes), " available on the machine");
  if (limit < kLittleMemory) {
    out.Add(Severity::kWarning, "memory",
            absl::StrCat(where, " has less memory than one large compiler may take"), value,
            machine.container || where != "the machine"
                ? "raise the limit (docker run --memory, MemoryMax= of the slice)"
                : "add swap, so that one compiler alone can end: a swap file of 8 GiB");
  } else {
    out.Ok("memory", absl::StrCat("what builds here can have is set by ", where), value);
  }
  if (memory.available_is_estimate)
    out.Add(Severity::kNote, "available-estimate",
            "the kernel does not say how much memory is available; it is estimated",
            "no MemAvailable in /proc/meminfo", "use Linux 3.14 or newer");

  if (machine.groups.empty())
    out.Add(Severity::kNote, "cgroup",
            "no memory cgroup can be seen: a limit above would not be known", machine.groups_error,
            "in a container, mount /sys/fs/cgroup (read-only is enough); or give --reserve");
  for (const MachineFacts::Group& group : machine.groups) {
    if (group.memory.oom_group)
      out.Add(
          Severity::kWarning, "oom-group",
          "one OOM kill in this cgroup ends all of it, the whole build with it: nothing is left "
          "to run a compiler again",
          absl::StrCat(group.name, "/memory.oom.group = 1"),
          "set it to 0 (systemd: OOMPolicy=continue in the unit; Kubernetes: singleProcessOOMKill)"
          "; until then give more room: headroom run --reserve 20%");
    if (group.memory.high_bytes &&
        (!group.memory.limit_bytes || *group.memory.high_bytes < *group.memory.limit_bytes))
      out.Add(
          Severity::kNote, "memory-high",
          "above this the kernel slows the build down instead of ending it; Headroom stays below",
          absl::StrCat(group.name, "/memory.high = ", HumanBytes(*group.memory.high_bytes)), "");
    if (memory.swap_total_bytes > 0 && group.memory.swap_limit_bytes == 0)
      out.Add(Severity::kNote, "cgroup-swap", "the machine's swap is closed to this cgroup",
              absl::StrCat(group.name, "/memory.swap.max = 0"), "");
  }
  if (memory.swap_total_bytes == 0) {
    out.Add(Severity::kNote, "swap",
            "there is no swap: a compiler that is larger than expected has nowhere to go", "0 B",
            "");
  } else {
    out.Ok("swap", "swap; not planned with, but it cushions what goes wrong",
           absl::StrCat(HumanBytes(memory.swap_free_bytes), " free of ",
                        HumanBytes(memory.swap_total_bytes)));
  }
  for (const std::string& name : machine.oom_daemons)
    out.Add(
        Severity::kWarning, absl::StrCat("oom-daemon"),
        name == "systemd-oomd" ? "systemd-oomd ends whole cgroups under pressure, a build's too"
                               : "a user-space OOM killer ends processes before the kernel would",
        name,
        name == "systemd-oomd"
            ? "run builds in a scope with ManagedOOMMemoryPressure=auto and ManagedOOMSwap=auto "
              "(systemd-run --user --scope -p ...), or give --reserve 15%"
            : "let it act below Headroom's reserve (earlyoom: -m 2), or give --reserve 15%");
}

void LookAtCores(const MachineFacts& machine, Findings& out) {
  const int cores = machine.cores.Count();
  const bool fewer = machine.processors > cores;
  std::string why;
  if (fewer) {
    if (machine.cores.quota_millicores && (*machine.cores.quota_millicores + 999) / 1000 == cores) {
      why = "a CPU quota";
    } else if (machine.cores.cpuset == cores) {
      why = "a cpuset";
    } else {
      why = "the CPU affinity";
    }
  }
  if (fewer) {
    out.Add(Severity::kNote, "cores",
            absl::StrCat(why, " leaves builds fewer cores than there are"),
            absl::StrCat(cores, " of ", machine.processors), "");
  } else {
    out.Ok("cores", "cores", std::to_string(cores));
  }
  if (machine.limits.address_space_bytes)
    out.Add(
        Severity::kWarning, "address-space",
        "each process's address space is limited: a large compiler fails, whatever memory is free",
        HumanBytes(*machine.limits.address_space_bytes), "ulimit -v unlimited");
  const int64_t tasks = kTasksForEachCore * cores;
  std::optional<int64_t> left = machine.pids_left;
  if (machine.limits.processes)
    left = std::min(left.value_or(*machine.limits.processes), *machine.limits.processes);
  if (left && *left < tasks)
    out.Add(Severity::kWarning, "tasks",
            "only so many more processes may be started: forks will fail", std::to_string(*left),
            "raise the limit (docker run --pids-limit, TasksMax= of the slice, ulimit -u)");
}

void LookAtTmp(const TmpFacts& tmp, Findings& out) {
  if (!tmp.space || !tmp.writable) {
    out.Add(Severity::kProblem, "tmp", "the folder for temporary files can't be used", tmp.path,
            "set TMPDIR to a folder that you may write to");
    return;
  }
  const std::string value = absl::StrCat(tmp.path, ": ", HumanBytes(tmp.space->available_bytes),
                                         " free of ", HumanBytes(tmp.space->total_bytes));
  const bool little = tmp.space->available_bytes < kLittleTemporarySpace;
  if (tmp.space->in_memory) {
    out.Add(
        Severity::kWarning, "tmp-in-memory",
        "temporary files are kept in memory: what nvcc writes there is missing to the compilers",
        value, "export TMPDIR=/var/tmp for builds");
  } else if (little) {
    out.Add(Severity::kWarning, "tmp-space",
            "there is little room for temporary files: nvcc fails with \"error while writing\"",
            value, "free some, or set TMPDIR to another disk");
  } else {
    out.Ok("tmp", "room for temporary files", value);
  }
}

std::string AbilityText(MakeAbility ability, bool library) {
  switch (ability) {
    case MakeAbility::kFifo:
      return "takes tokens";
    case MakeAbility::kDescriptors:
    case MakeAbility::kOldDescriptors:
      return library ? "takes tokens, by the preload library's adapter"
                     : "takes tokens only from headroom run -- make: it stops at a fifo: of others";
  }
  return "";
}

void LookAtTools(const DoctorFacts& facts, Findings& out) {
  const bool library = !facts.gate.library.empty();
  for (const ToolFacts& tool : facts.tools) {
    const std::string version = tool.version ? Text(*tool.version) : "version unknown";
    const std::string value = absl::StrCat(tool.path, ", ", version);
    if (tool.name == "make" && tool.make) {
      const bool fine = *tool.make == MakeAbility::kFifo || library;
      out.Add(fine ? Severity::kOk : Severity::kNote, "make",
              absl::StrCat("make ", AbilityText(*tool.make, library)), value,
              fine ? "" : "install Headroom's preload library, or make 4.4 or newer");
    } else if (tool.name == "ninja" && tool.version) {
      const bool takes = NinjaTakesTokens(*tool.version);
      out.Add(takes ? Severity::kOk : Severity::kNote, "ninja",
              takes ? "ninja takes tokens, where it is given no -j"
                    : "this ninja knows no jobserver: only the gate holds its compilers",
              value, takes ? "" : "for tokens as well: ninja 1.13 or newer (pip install ninja)");
    } else if (tool.name == "nvcc" && tool.version) {
      out.Ok("nvcc",
             NvccTakesTokens(*tool.version)
                 ? "nvcc; its --threads can take tokens (--jobserver)"
                 : "nvcc; its --threads take no tokens, the gate holds them",
             value);
    } else if (tool.name == "cargo") {
      out.Ok("cargo", "cargo takes tokens; one too old for a fifo: makes a jobserver of its own",
             value);
    }
    if (!tool.gated) continue;
    // What the gate can't hold is found by a scan and stopped, later and without a second try.
    const char* const kUngated =
        "it will be found and stopped where memory is short, but not run again after an OOM kill";
    if (tool.set_id) {
      out.Add(
          Severity::kWarning, "gate-setuid",
          absl::StrCat(tool.name, " is setuid or setgid, so that the gate is not loaded into it; ",
                       kUngated),
          tool.path, absl::StrCat("chmod ug-s ", tool.path));
    } else if (tool.loading == Loading::kStatic) {
      out.Add(Severity::kWarning, "gate-static",
              absl::StrCat(tool.name, " is a static program, into which nothing can be loaded; ",
                           kUngated),
              tool.path, "use a dynamically linked build of it");
    } else if (tool.sanitized) {
      out.Add(Severity::kNote, "gate-asan",
              absl::StrCat(tool.name,
                           " is built with AddressSanitizer, which the environment tells to "
                           "let the gate's library be"),
              tool.path, "");
    }
  }
}

void LookAtGate(const DoctorFacts& facts, Findings& out) {
  const std::string remedy = "install Headroom again, all of it (cmake --install)";
  if (facts.gate.library.empty()) {
    out.Add(Severity::kProblem, "gate", "the preload library was not found: compilers are not held",
            "no libheadroom.so beside headroom", remedy);
  } else if (!facts.gate.loads) {
    out.Add(Severity::kProblem, "gate", "the preload library does not load", facts.gate.library,
            "the loader says why: LD_PRELOAD=" + facts.gate.library + " /bin/true");
  } else if (Get(facts.env, "HEADROOM_GATE") == "0") {
    out.Add(Severity::kWarning, "gate", "the gate is switched off in this environment",
            "HEADROOM_GATE=0", "unset HEADROOM_GATE");
  } else {
    out.Ok("gate", "the gate loads", facts.gate.library);
  }
  const DaemonFacts& daemon = facts.daemon;
  switch (daemon.state) {
    case DaemonFacts::State::kAnswers:
      if (daemon.version != HEADROOM_VERSION) {
        out.Add(Severity::kWarning, "daemon", "the daemon is of another version than this program",
                absl::StrCat(daemon.version, ", this is ", HEADROOM_VERSION),
                "restart it: systemctl restart headroomd");
      } else {
        out.Ok("daemon", daemon.is_private ? "a private daemon answers" : "the daemon answers",
               absl::StrCat("version ", daemon.version));
      }
      if (daemon.broken_invariants != 0)
        out.Add(Severity::kProblem, "invariants", "the daemon found its own books wrong",
                absl::StrCat(daemon.broken_invariants, " times"),
                "please report it, with headroom explain and the trace");
      for (const std::string& note : daemon.notes)
        out.Add(Severity::kNote, "daemon-note", "the daemon says", note, "");
      break;
    case DaemonFacts::State::kNone:
      if (facts.gate.daemon.empty()) {
        out.Add(Severity::kProblem, "daemon", "no daemon runs, and none was found to start",
                "no headroomd beside headroom nor in PATH", remedy);
      } else {
        out.Add(Severity::kNote, "daemon", "no daemon runs; headroom run starts one for each build",
                facts.gate.daemon,
                "for all builds of the machine: systemctl enable --now headroomd");
      }
      break;
    case DaemonFacts::State::kBroken:
      out.Add(Severity::kProblem, "daemon", "there is a daemon, but it is of no use", daemon.text,
              "restart it: systemctl restart headroomd");
      break;
  }
  if (!daemon.runtime_error.empty())
    out.Add(Severity::kProblem, "runtime-folder",
            "headroom run could not start a daemon of its own here", daemon.runtime_error,
            "set HEADROOM_RUNTIME_DIR or XDG_RUNTIME_DIR to a folder of yours alone (mode 0700)");
}

void LookAtEnvironment(const Environment& env, Findings& out) {
  for (const char* name : {"MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"}) {
    if (const auto value = UsersOwn(env, name))
      out.Add(Severity::kWarning, "jobs-cap",
              absl::StrCat(name, " caps builds, whatever memory is free"),
              absl::StrCat(name, "=", *value), absl::StrCat("unset ", name));
  }
  for (const char* name : {"CARGO_BUILD_JOBS", "NINJAFLAGS", "NVCC_THREADS"}) {
    const std::string value = Get(env, name);
    if (!value.empty())
      out.Add(Severity::kNote, "jobs-cap",
              absl::StrCat(name, " is set, and fixes a number of jobs"),
              absl::StrCat(name, "=", value), "");
  }
  for (const char* name : {"MAKEFLAGS", "GNUMAKEFLAGS"}) {
    const std::string value = Get(env, name);
    const Makeflags flags = ParseMakeflags(value);
    const std::string lane = Get(env, "HEADROOM_LANE");
    const bool ours = !lane.empty() && flags.jobserver == absl::StrCat("fifo:", lane, "/fifo");
    if (flags.jobserver && !ours) {
      out.Add(Severity::kWarning, "jobserver",
              absl::StrCat(name, " names another jobserver; only headroom run replaces it"), value,
              absl::StrCat("unset ", name));
    } else if (!flags.jobserver && flags.jobs) {
      out.Add(Severity::kWarning, "jobs-cap",
              absl::StrCat(name, flags.jobs->count ? " caps builds, whatever memory is free"
                                                   : " starts all jobs at once"),
              value, absl::StrCat("take -j out of ", name));
    }
  }
}

void LookAtFolder(const FolderFacts& folder, Findings& out) {
  for (const FolderFacts::Pool& pool : folder.pools) {
    // "console" and the like have one on purpose.
    if (pool.depth > 0)
      out.Add(Severity::kNote, "pool",
              "build.ninja has a pool of its own: never more of its jobs at once, whatever memory "
              "is free",
              absl::StrCat(pool.name, ", depth ", pool.depth),
              "if it was made against OOM kills (CMAKE_JOB_POOLS, LLVM_PARALLEL_LINK_JOBS): leave "
              "it out "
              "under Headroom");
  }
  if (folder.ninja && !NinjaTakesTokens(*folder.ninja))
    out.Add(Severity::kNote, "folder-ninja",
            "this folder was configured with a ninja that knows no jobserver; cmake --build uses "
            "that one",
            absl::StrCat(folder.make_program, ", ", Text(*folder.ninja)),
            "for tokens as well: configure with -DCMAKE_MAKE_PROGRAM= of a ninja 1.13 or newer");
  for (const std::string& launcher : folder.launchers) {
    const size_t slash = launcher.rfind('/');
    const std::string name = slash == std::string::npos ? launcher : launcher.substr(slash + 1);
    const bool elsewhere = name == "distcc" || name == "icecc" || name == "sccache";
    out.Add(elsewhere ? Severity::kNote : Severity::kOk, "launcher",
            elsewhere
                ? "compilers may run outside of the build (another machine, a server); only what "
                  "runs in it is held"
                : "a compiler launcher; the gate holds what it starts",
            launcher, "");
  }
  for (const std::string& line : folder.fixed_jobs)
    out.Add(Severity::kNote, "fixed-jobs",
            "a makefile passes a number of jobs on: that part of the build takes no tokens", line,
            "leave -j out of it");
  if (folder.is_torch_extension)
    out.Ok("torch", "a torch extension: leave MAX_JOBS unset under headroom run", folder.path);
}

const char* Name(Severity severity) {
  switch (severity) {
    case Severity::kOk:
      return "ok";
    case Severity::kNote:
      return "note";
    case Severity::kWarning:
      return "warning";
    case Severity::kProblem:
      return "problem";
  }
  return "";
}

int64_t CountOf(const std::vector<Finding>& findings, Severity severity) {
  return std::count_if(findings.begin(), findings.end(),
                       [severity](const Finding& f) { return f.severity == severity; });
}

}  // namespace

std::vector<Finding> Diagnose(const DoctorFacts& facts) {
  Findings out;
  LookAtKernel(facts.machine, out);
  LookAtMemory(facts.machine, out);
  LookAtCores(facts.machine, out);
  LookAtTmp(facts.tmp, out);
  LookAtTools(facts, out);
  LookAtGate(facts, out);
  LookAtEnvironment(facts.env, out);
  LookAtFolder(facts.folder, out);
  return out.Take();
}

std::vector<FolderFacts::Pool> PoolsOf(std::string_view build_ninja) {
  std::vector<FolderFacts::Pool> pools;
  std::istringstream lines{std::string(build_ninja)};
  bool in_pool = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.substr(0, 5) == "pool ") {
      pools.push_back({line.substr(5), 0});
      in_pool = true;
      continue;
    }
    if (!line.empty() && line[0] != ' ') in_pool = false;
    if (!in_pool) continue;
    static const std::regex kDepth(R"(^ +depth *= *(\d{1,9})\s*$)");
    std::smatch match;
    if (std::regex_match(line, match, kDepth)) pools.back().depth = std::stoll(match[1].str());
  }
  return pools;
}

std::vector<std::string> FixedJobsOf(const std::string& name, std::string_view makefile) {
  // $(MAKE) -j4, make --jobs=4, ninja -C x -j 4; on lines of recipes or variables, no comments.
  static const std::regex kFixed(
      R"((\$[({]MAKE[)}]|\bg?make\b|\bninja\b|cmake --build)[^#\n]*\s(-j *\d+|--jobs[= ]\d+|--parallel \d+))");
  std::vector<std::string> found;
  std::istringstream lines{std::string(makefile)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    // std::regex recurses for each character of a line.
    if (line.size() > 1000 || line.find("-j") == std::string::npos) {
      if (line.size() > 1000 || (line.find("--jobs") == std::string::npos &&
                                 line.find("--parallel") == std::string::npos))
        continue;
    }
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line[first] == '#') continue;
    if (std::regex_search(line, kFixed))
      found.push_back(absl::StrCat(name, ":", number, ": ", line.substr(first)));
  }
  return found;
}

bool NeedsDoing(const std::vector<Finding>& findings) {
  return CountOf(findings, Severity::kWarning) + CountOf(findings, Severity::kProblem) > 0;
}

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    std::string mark = Name(finding.severity);
    mark.resize(9, ' ');
    absl::StrAppend(&text, mark, Printable(finding.what),
                    finding.value.empty() ? "" : absl::StrCat(": ", Printable(finding.value)),
                    "\n");
    if (!finding.remedy.empty())
      absl::StrAppend(&text, std::string(9, ' '), "-> ", Printable(finding.remedy), "\n");
  }
  const int64_t problems = CountOf(findings, Severity::kProblem);
  const int64_t warnings = CountOf(findings, Severity::kWarning);
  if (problems + warnings == 0) return text + "\nNothing needs doing.\n";
  absl::StrAppend(&text, "\n", Count(static_cast<uint64_t>(problems), "problem", "problems"), ", ",
                  Count(static_cast<uint64_t>(warnings), "warning", "warnings"), ".\n");
  return text;
}

std::string FindingsJson(const std::vector<Finding>& findings) {
  nlohmann::ordered_json document;
  document["version"] = HEADROOM_VERSION;
  document["needs_doing"] = NeedsDoing(findings);
  auto& list = document["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json entry;
    entry["severity"] = Name(finding.severity);
    entry["id"] = finding.id;
    entry["what"] = finding.what;
    entry["value"] = finding.value;
    entry["remedy"] = finding.remedy;
    list.push_back(std::move(entry));
  }
  // Names of files are whatever bytes their makers chose.
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace headroom::cli
