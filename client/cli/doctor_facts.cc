#include "client/cli/doctor_facts.h"

#include <absl/strings/str_cat.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "client/cli/connection.h"
#include "server/sys/file.h"
#include "server/sys/mountinfo.h"
#include "server/sys/process.h"
#include "server/sys/psi.h"
#include "server/sys/vmstat.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// Enough of a build file or makefile; and of a program for its loader's names and symbols.
constexpr size_t kMaxBuildFile = size_t{64} << 20;
constexpr size_t kMaxImage = size_t{16} << 20;

// Of regular files only: a fifo would be waited for.
std::string TextOf(const fs::path& path, size_t limit = kMaxBuildFile) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  auto text = sys::ReadFile(path.string(), limit);
  return text.ok() ? *std::move(text) : "";
}

std::string KernelText(const std::string& path) {
  auto text = sys::ReadFile(path);
  if (!text.ok()) return "";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *std::move(text);
}

std::optional<int64_t> KernelNumber(const std::string& path) {
  const std::string text = KernelText(path);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> OomDaemons(const sys::Roots& roots) {
  constexpr std::array<std::string_view, 5> kNames = {"earlyoom", "systemd-oomd", "nohang",
                                                      "nohang-desktop", "oomd"};
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(roots.proc, error), end; !error && at != end;
       at.increment(error)) {
    if (!IsNumber(at->path().filename().string())) continue;
    const std::string comm = KernelText((at->path() / "comm").string());
    if (std::find(kNames.begin(), kNames.end(), comm) == kNames.end()) continue;
    // A kernel thread, or any process that calls itself so, has no program of that name.
    const auto exe =
        sys::ReadExe(roots, static_cast<pid_t>(std::stol(at->path().filename().string())));
    if (exe && sys::Basename(*exe) != comm && sys::Basename(*exe).find("python") != 0) continue;
    if (std::find(found.begin(), found.end(), comm) == found.end()) found.push_back(comm);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool IsExecutableFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

// NAME:TYPE=VALUE of CMakeCache.txt.
std::optional<std::string> CacheValue(const std::string& line, const std::string& name) {
  if (line.compare(0, name.size() + 1, name + ":") != 0) return std::nullopt;
  const size_t equals = line.find('=');
  if (equals == std::string::npos) return std::nullopt;
  return line.substr(equals + 1);
}

}  // namespace

MachineFacts CollectMachine(const sys::Roots& roots, const Environment& env, uid_t uid, pid_t pid) {
  MachineFacts facts;
  const std::string& proc = roots.proc;
  facts.os_release = KernelText(proc + "/sys/kernel/osrelease");
  std::error_code error;
  facts.container = !Get(env, "container").empty() ||
                    fs::exists(roots.prefix + "/.dockerenv", error) ||
                    fs::exists(roots.prefix + "/run/.containerenv", error);
  if (const auto memory = sys::ReadMemInfo(roots); memory.ok()) facts.memory = *memory;
  facts.pressure = sys::ReadMemoryPsi(roots).has_value();
  if (const auto vmstat = sys::ReadVmStat(roots); vmstat.ok()) facts.oom_kills = vmstat->oom_kills;
  if (const auto chain = sys::CgroupChain::OpenFor(roots, pid); chain.ok()) {
    for (const sys::MemoryCgroup& level : chain->levels())
      if (const auto reading = level.Read())
        facts.groups.push_back({level.name(), level.version(), *reading});
  } else {
    facts.groups_error = std::string(chain.status().message());
  }
  facts.cores = sys::ReadCores(roots, pid);
  std::istringstream lines(KernelText(proc + "/stat"));
  for (std::string line; std::getline(lines, line);)
    if (line.compare(0, 3, "cpu") == 0 && line.size() > 3 && line[3] != ' ') ++facts.processors;
  facts.limits = sys::ReadLimits(roots, pid);
  facts.pids_left = sys::ReadPidsLeft(roots, pid);
  facts.overcommit = KernelNumber(proc + "/sys/vm/overcommit_memory");
  facts.panic_on_oom = KernelNumber(proc + "/sys/vm/panic_on_oom");
  // Root sees them all.
  if (uid != 0) {
    const std::string mine = pid == 0 ? "self" : std::to_string(pid);
    for (const sys::Mount& mount :
         sys::ParseMountInfo(KernelText(proc + "/" + mine + "/mountinfo")))
      if (mount.type == "proc" && mount.mount_point == "/proc" &&
          mount.super_options.find("hidepid=") != std::string::npos &&
          mount.super_options.find("hidepid=0") == std::string::npos)
        facts.hides_processes = true;
  }
  facts.oom_daemons = OomDaemons(roots);
  return facts;
}

TmpFacts CollectTmp(const Environment& env) {
  TmpFacts facts;
  facts.path = Get(env, "TMPDIR").empty() ? "/tmp" : Get(env, "TMPDIR");
  if (const auto space = sys::ReadFilesystemSpace(facts.path); space.ok()) facts.space = *space;
  facts.writable = access(facts.path.c_str(), W_OK | X_OK) == 0;
  return facts;
}

ToolFacts InspectTool(std::string name, std::string path) {
  ToolFacts facts;
  facts.name = std::move(name);
  facts.path = std::move(path);
  facts.gated = true;
  const std::string image = TextOf(facts.path, kMaxImage);
  facts.loading = LoadingOf(image);
  facts.sanitized =
      facts.loading != Loading::kNotElf && image.find("__asan_init") != std::string::npos;
  struct stat status {};
  facts.set_id =
      stat(facts.path.c_str(), &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)) != 0;
  return facts;
}

std::vector<ToolFacts> CollectTools(const Environment& env) {
  std::vector<ToolFacts> tools;
  const auto find = [&](const std::string& name) -> std::string {
    const Found found = FindProgram(name, env);
    return found.kind == Found::Kind::kExecutable ? found.path : "";
  };
  for (const std::string name : {"make", "ninja", "nvcc", "cargo"}) {
    ToolFacts tool;
    tool.name = name;
    tool.path = find(name);
    if (tool.path.empty()) continue;
    if (name == "make") {
      const auto make = ProbeMake(tool.path);
      if (!make) continue;  // another program of that name
      tool.make = make->ability;
    }
    tool.version = VersionInPath(name, env);
    tools.push_back(std::move(tool));
  }
  const auto inspect = [&](const std::string& name, const fs::path& path) {
    if (IsExecutableFile(path)) tools.push_back(InspectTool(name, path.string()));
  };
  for (const char* driver : {"g++", "gcc"}) {
    const std::string path = find(driver);
    if (path.empty()) continue;
    for (const std::string name : {"cc1plus", "cc1", "lto1", "ld"}) {
      std::string program = OutputOf(path, {"-print-prog-name=" + name});
      while (!program.empty() && program.back() == '\n') program.pop_back();
      // What gcc doesn't have it calls by its mere name, to be looked for in PATH.
      if (!program.empty() && program.find('/') == std::string::npos) program = find(program);
      if (!program.empty()) inspect(name, program);
    }
    break;
  }
  for (const std::string name : {"clang", "ld.lld", "mold", "rustc"})
    if (const std::string path = find(name); !path.empty()) inspect(name, path);
  if (const std::string nvcc = find("nvcc"); !nvcc.empty()) {
    std::error_code error;
    const fs::path bin = fs::canonical(nvcc, error).parent_path();
    if (!error) {
      for (const std::string name : {"ptxas", "cudafe++", "nvlink"}) inspect(name, bin / name);
      // nvcc.profile has it there in all versions so far; some packages keep another place.
      inspect("cicc", bin / ".." / "nvvm" / "bin" / "cicc");
    }
  }
  return tools;
}

GateFacts CollectGate(const Environment& env, const std::string& own_folder) {
  GateFacts facts;
  facts.library = FindPreload(own_folder);
  facts.daemon = FindDaemon(own_folder, env);
  const Found cat = FindProgram("cat", env);
  if (!facts.library.empty() && cat.kind == Found::Kind::kExecutable) {
    const std::string maps =
        OutputOf(cat.path, {"/proc/self/maps"}, {{"LD_PRELOAD", facts.library}});
    facts.loads = maps.find("/libheadroom.so") != std::string::npos;
  }
  return facts;
}

DaemonFacts CollectDaemon(const Environment& env, uid_t uid) {
  DaemonFacts facts;
  v1::Request request;
  request.mutable_status();
  if (const auto response = Ask(request); response.ok()) {
    facts.state = DaemonFacts::State::kAnswers;
    const v1::Status& status = response->status();
    facts.version = status.version();
    facts.is_private = status.private_daemon();
    facts.broken_invariants = status.broken_invariants();
    facts.notes.assign(status.notes().begin(), status.notes().end());
    return facts;
  } else if (!absl::IsNotFound(response.status())) {
    facts.state = DaemonFacts::State::kBroken;
    facts.text = std::string(response.status().message());
    return facts;
  }
  const auto places = FindPlaces(env, uid);
  if (!places.ok()) {
    facts.runtime_error = std::string(places.status().message());
    return facts;
  }
  for (const std::string& place : places->own) {
    std::error_code error;
    std::string wrong;
    if (fs::exists(fs::symlink_status(place, error))) {
      if (const absl::Status usable = PrepareRuntimeDir(place, uid); !usable.ok())
        wrong = std::string(usable.message());
    } else {
      const std::string parent = fs::path(place).parent_path().string();
      if (access(parent.c_str(), W_OK | X_OK) != 0)
        wrong = absl::StrCat(place, ": can't be made in ", parent);
    }
    if (wrong.empty()) {
      facts.runtime_error.clear();
      return facts;
    }
    absl::StrAppend(&facts.runtime_error, facts.runtime_error.empty() ? "" : "; ", wrong);
  }
  return facts;
}

FolderFacts CollectFolder(const std::string& path) {
  FolderFacts facts;
  facts.path = path;
  const fs::path folder = path;
  std::error_code error;
  facts.has_ninja = fs::is_regular_file(folder / "build.ninja", error);
  // CMake keeps pools beside its rules.
  for (const char* name : {"build.ninja", "CMakeFiles/rules.ninja"})
    for (FolderFacts::Pool& pool : PoolsOf(TextOf(folder / name)))
      facts.pools.push_back(std::move(pool));
  std::istringstream cache(TextOf(folder / "CMakeCache.txt"));
  for (std::string line; std::getline(cache, line);) {
    if (const auto program = CacheValue(line, "CMAKE_MAKE_PROGRAM")) facts.make_program = *program;
    for (const char* language : {"C", "CXX", "CUDA"}) {
      const auto launcher =
          CacheValue(line, absl::StrCat("CMAKE_", language, "_COMPILER_LAUNCHER"));
      if (!launcher || launcher->empty()) continue;
      const std::string program = launcher->substr(0, launcher->find(';'));
      if (std::find(facts.launchers.begin(), facts.launchers.end(), program) ==
          facts.launchers.end())
        facts.launchers.push_back(program);
    }
  }
  const std::string_view program = sys::Basename(facts.make_program);
  // A folder's file may name any program: only a ninja by name is asked, and only by its full path.
  if ((program == "ninja" || program == "ninja-build") && facts.make_program[0] == '/')
    facts.ninja = FirstVersion(OutputOf(facts.make_program, {"--version"}));
  for (const char* name : {"GNUmakefile", "makefile", "Makefile"})
    for (std::string& line : FixedJobsOf(name, TextOf(folder / name)))
      facts.fixed_jobs.push_back(std::move(line));
  facts.is_torch_extension =
      TextOf(folder / "setup.py").find("torch.utils.cpp_extension") != std::string::npos;
  return facts;
}

DoctorFacts CollectFacts(const Environment& env, const std::string& folder) {
  DoctorFacts facts;
  facts.env = env;
  facts.machine = CollectMachine(sys::Roots(), env, geteuid());
  facts.tmp = CollectTmp(env);
  facts.tools = CollectTools(env);
  facts.gate = CollectGate(env, OwnFolder());
  facts.daemon = CollectDaemon(env, geteuid());
  facts.folder = CollectFolder(folder);
  return facts;
}

}  // namespace headroom::cli
