// `headroom doctor`: what on this machine, and in this build folder, keeps builds from being fast
// and safe, and what to do about it. Pure: facts in, findings out. doctor_facts.h collects the
// facts.
#ifndef HEADROOM_CLIENT_CLI_DOCTOR_H_
#define HEADROOM_CLIENT_CLI_DOCTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/elf.h"
#include "client/cli/environment.h"
#include "client/cli/make_version.h"
#include "client/cli/tool_version.h"
#include "server/sys/cgroup.h"
#include "server/sys/cores.h"
#include "server/sys/filesystem.h"
#include "server/sys/limits.h"
#include "server/sys/meminfo.h"

namespace headroom::cli {

enum class Severity {
  kOk,
  kNote,     // good to know; nothing needs doing
  kWarning,  // builds are slower or less safe than they could be
  kProblem,  // Headroom can't do its work, or builds will die
};

struct Finding {
  Severity severity = Severity::kOk;
  std::string id;      // stable, for programs: "swap", "tmp-in-memory", ...
  std::string what;    // a sentence
  std::string value;   // what was seen
  std::string remedy;  // what to do; empty where nothing needs doing
};

struct MachineFacts {
  std::string os_release;  // of the kernel: "6.1.0-13-amd64"
  bool container = false;
  std::optional<sys::MemInfo> memory;
  bool pressure = false;  // /proc/pressure/memory
  std::optional<int64_t> oom_kills;
  struct Group {
    std::string name;
    sys::CgroupVersion version = sys::CgroupVersion::kV2;
    sys::CgroupMemory memory;
  };
  std::vector<Group> groups;  // this process's cgroup first, then those above
  std::string groups_error;   // why there are none
  sys::Cores cores;
  int processors = 0;  // of the machine, as /proc/cpuinfo counts them
  sys::ResourceLimits limits;
  std::optional<int64_t> pids_left;
  std::optional<int64_t> overcommit;     // vm.overcommit_memory
  std::optional<int64_t> panic_on_oom;   // vm.panic_on_oom
  bool hides_processes = false;          // /proc is mounted with hidepid
  std::vector<std::string> oom_daemons;  // names of those that run
};

struct TmpFacts {
  std::string path;
  std::optional<sys::FilesystemSpace> space;  // unset: it is not there
  bool writable = true;
};

// A compiler or build tool that was found.
struct ToolFacts {
  std::string name;
  std::string path;
  std::optional<Version> version;
  std::optional<MakeAbility> make;  // of make
  bool gated = false;               // the gate should hold it
  Loading loading = Loading::kOther;
  bool set_id = false;     // setuid or setgid: the loader drops LD_PRELOAD
  bool sanitized = false;  // AddressSanitizer is built into it
};

struct GateFacts {
  std::string library;  // empty: none was found
  bool loads = false;   // a program that was started with it has it
  std::string daemon;   // headroomd's path; empty: none was found
};

struct DaemonFacts {
  enum class State { kAnswers, kNone, kBroken };
  State state = State::kNone;
  std::string text;     // what is wrong, in the client's words
  std::string version;  // of a daemon that answers
  bool is_private = false;
  uint64_t broken_invariants = 0;
  std::vector<std::string> notes;
  // Whether one of this user's runtime folders can be used, and why not.
  std::string runtime_error;
};

struct FolderFacts {
  std::string path;
  struct Pool {
    std::string name;
    int64_t depth = 0;
  };
  bool has_ninja = false;
  std::vector<Pool> pools;             // of build.ninja
  std::string make_program;            // CMakeCache.txt
  std::optional<Version> ninja;        // of make_program, if it is a ninja
  std::vector<std::string> launchers;  // compiler launchers in CMakeCache.txt
  std::vector<std::string>
      fixed_jobs;  // lines of a Makefile that pass a -jN on: "Makefile:12: ..."
  bool is_torch_extension = false;
};

struct DoctorFacts {
  Environment env;
  MachineFacts machine;
  TmpFacts tmp;
  std::vector<ToolFacts> tools;
  GateFacts gate;
  DaemonFacts daemon;
  FolderFacts folder;
};

// In the order in which they are best read: machine, temporary files, tools, gate, daemon,
// environment, folder.
std::vector<Finding> Diagnose(const DoctorFacts& facts);

// build.ninja's own pools; pure, for FolderFacts.
std::vector<FolderFacts::Pool> PoolsOf(std::string_view build_ninja);
// Lines of a makefile that give a make or ninja a number of jobs, "name:line: text".
std::vector<std::string> FixedJobsOf(const std::string& name, std::string_view makefile);

// Whether something needs doing: a warning or a problem.
bool NeedsDoing(const std::vector<Finding>& findings);
std::string FindingsText(const std::vector<Finding>& findings);
std::string FindingsJson(const std::vector<Finding>& findings);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_DOCTOR_H_
