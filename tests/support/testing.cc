#include "tests/support/testing.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#define BOOST_PROCESS_USE_STD_FS
#include <boost/process/args.hpp>
#include <boost/process/child.hpp>
#include <boost/process/env.hpp>
#include <boost/process/environment.hpp>
#include <boost/process/exe.hpp>
#include <boost/process/extend.hpp>
#include <boost/process/io.hpp>
#include <boost/process/search_path.hpp>
#include <boost/process/start_dir.hpp>

namespace headroom::testing {
namespace {

namespace bp = boost::process;
using Clock = std::chrono::steady_clock;

[[noreturn]] void Throw(const std::string& what) {
  throw std::runtime_error(what);
}
[[noreturn]] void ThrowErrno(const std::string& what) {
  Throw(what + ": " + std::strerror(errno));
}

std::optional<std::string> TryReadFile(const fs::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char buffer[16384];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n > 0) {
      text.append(buffer, static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    close(fd);
    if (n < 0) return std::nullopt;
    return text;
  }
}

// One write(2), as the kernel's control files want it. Returns errno, 0 for success.
int TryWriteControl(const fs::path& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const ssize_t n = write(fd, text.data(), text.size());
  const int error = n < 0 ? errno : 0;
  close(fd);
  return error;
}

void WriteControl(const fs::path& path, const std::string& text) {
  const int error = TryWriteControl(path, text);
  if (error != 0)
    Throw("cannot write '" + text + "' to " + path.string() + ": " + std::strerror(error));
}

std::vector<pid_t> ParsePids(const std::string& text) {
  std::vector<pid_t> pids;
  std::istringstream in(text);
  pid_t pid = 0;
  while (in >> pid) pids.push_back(pid);
  return pids;
}

std::uint64_t ParseCount(const std::string& text, const fs::path& from) {
  try {
    return std::stoull(text);
  } catch (const std::exception&) {
    Throw("not a number in " + from.string() + ": '" + text + "'");
  }
}

// The value of a "key value" line.
std::optional<std::uint64_t> KeyedCount(const std::string& text, const std::string& key) {
  std::istringstream in(text);
  std::string name;
  std::uint64_t value = 0;
  while (in >> name >> value) {
    if (name == key) return value;
  }
  return std::nullopt;
}

const char kV1Root[] = "/sys/fs/cgroup/memory";
const char kV2Root[] = "/sys/fs/cgroup";

bool HasV1() {
  return access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK) == 0 ||
         access("/sys/fs/cgroup/memory/memory.usage_in_bytes", F_OK) == 0;
}

bool HasWord(const std::string& text, const std::string& word) {
  std::istringstream in(text);
  std::string next;
  while (in >> next) {
    if (next == word) return true;
  }
  return false;
}

}  // namespace

// --- files ---

TempDir::TempDir() {
  const char* base = std::getenv("TMPDIR");
  std::string name =
      (base != nullptr && *base != '\0' ? std::string(base) : "/tmp") + "/headroom-test-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) ThrowErrno("cannot create a folder like " + name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string ReadFile(const fs::path& path) {
  std::optional<std::string> text = TryReadFile(path);
  if (!text) ThrowErrno("cannot read " + path.string());
  return *std::move(text);
}

void WriteFile(const fs::path& path, const std::string& text) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) Throw("cannot write " + path.string());
}

bool WaitUntil(const std::function<bool()>& condition, std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (!condition()) {
    if (Clock::now() >= deadline) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// --- processes ---

std::optional<std::uint64_t> AnonymousMemory(pid_t pid) {
  const auto text = TryReadFile("/proc/" + std::to_string(pid) + "/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  std::uint64_t shared = 0;
  if (!text || !(std::istringstream(*text) >> size >> resident >> shared)) return std::nullopt;
  return (resident - std::min(resident, shared)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::optional<char> ProcessState(pid_t pid) {
  const auto text = TryReadFile("/proc/" + std::to_string(pid) + "/stat");
  // The name may hold anything, ") R" too: the state follows its last parenthesis.
  const std::size_t end = text ? text->rfind(')') : std::string::npos;
  if (end == std::string::npos || end + 2 >= text->size()) return std::nullopt;
  return (*text)[end + 2];
}

std::optional<std::string> ProcessName(pid_t pid) {
  auto text = TryReadFile("/proc/" + std::to_string(pid) + "/comm");
  if (text && !text->empty() && text->back() == '\n') text->pop_back();
  return text;
}

std::vector<pid_t> Descendants(pid_t pid) {
  std::multimap<pid_t, pid_t> children;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto stat = TryReadFile(entry.path() / "stat");
    const std::size_t end = stat ? stat->rfind(')') : std::string::npos;
    if (end == std::string::npos) continue;
    char state = 0;
    pid_t parent = 0;
    if (std::istringstream(stat->substr(end + 1)) >> state >> parent)
      children.emplace(parent, std::stoi(name));
  }
  std::vector<pid_t> found = {pid};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto it = begin; it != end; ++it) found.push_back(it->second);
  }
  found.erase(found.begin());
  return found;
}

// --- memory cgroups ---

std::optional<std::string> MemoryCgroup::WhyUnavailable() {
  if (HasV1()) {
    if (access(kV1Root, W_OK) != 0) {
      return std::string("no right to create a memory cgroup in ") + kV1Root + ": run as root";
    }
    return std::nullopt;
  }
  const auto controllers = TryReadFile(fs::path(kV2Root) / "cgroup.controllers");
  if (!controllers) return "no memory cgroups: neither v1 nor v2 is mounted at /sys/fs/cgroup";
  if (!HasWord(*controllers, "memory"))
    return "the memory controller isn't available in /sys/fs/cgroup";
  if (access(kV2Root, W_OK) != 0)
    return "no right to create a cgroup in /sys/fs/cgroup: run as root";
  const fs::path subtree = fs::path(kV2Root) / "cgroup.subtree_control";
  if (HasWord(TryReadFile(subtree).value_or(""), "memory")) return std::nullopt;
  const int error = TryWriteControl(subtree, "+memory");
  if (error == 0) return std::nullopt;
  return std::string("cannot enable the memory controller below /sys/fs/cgroup: ") +
         std::strerror(error) +
         " (in a container, start it with a cgroup of the host's or with a delegated one)";
}

MemoryCgroup::MemoryCgroup(std::optional<std::uint64_t> limit_bytes) {
  static int count = 0;
  if (const auto why = WhyUnavailable()) Throw(*why);
  v2_ = !HasV1();
  path_ = fs::path(v2_ ? kV2Root : kV1Root) /
          ("headroom-test-" + std::to_string(getpid()) + "-" + std::to_string(++count));
  Create(limit_bytes);
}

MemoryCgroup::MemoryCgroup(const MemoryCgroup& parent, const std::string& name,
                           std::optional<std::uint64_t> limit_bytes)
    : path_(parent.path_ / name), v2_(parent.v2_) {
  if (v2_) WriteControl(parent.path_ / "cgroup.subtree_control", "+memory");
  Create(limit_bytes);
}

void MemoryCgroup::Create(std::optional<std::uint64_t> limit_bytes) {
  if (mkdir(path_.c_str(), 0755) != 0) ThrowErrno("cannot create the cgroup " + path_.string());
  // Before Linux 5.11 a v1 cgroup has to be told that its children count. Fails where it is fixed
  // to 1.
  if (!v2_) TryWriteControl(path_ / "memory.use_hierarchy", "1");
  try {
    if (limit_bytes) SetLimit(*limit_bytes);
  } catch (...) {
    rmdir(path_.c_str());
    throw;
  }
}

MemoryCgroup::~MemoryCgroup() {
  try {
    KillAll();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  // A dying process leaves its cgroup a little after it has left cgroup.procs.
  for (int i = 0; rmdir(path_.c_str()) != 0; ++i) {
    if (i == 500 || (errno != EBUSY && errno != EINTR)) {
      std::fprintf(stderr, "cannot remove the cgroup %s: %s\n", path_.c_str(),
                   std::strerror(errno));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void MemoryCgroup::SetLimit(std::uint64_t bytes) {
  const std::string text = std::to_string(bytes);
  if (v2_) {
    WriteControl(path_ / "memory.max", text);
    TryWriteControl(path_ / "memory.swap.max",
                    "0");  // missing where the kernel has no swap accounting
    return;
  }
  // The limit may never be above that of memory and swap together: first raise the one or lower the
  // other.
  const bool has_swap_limit = access((path_ / "memory.memsw.limit_in_bytes").c_str(), F_OK) == 0;
  if (has_swap_limit) TryWriteControl(path_ / "memory.memsw.limit_in_bytes", "-1");
  WriteControl(path_ / "memory.limit_in_bytes", text);
  if (has_swap_limit) WriteControl(path_ / "memory.memsw.limit_in_bytes", text);
}

void MemoryCgroup::Add(pid_t pid) const {
  WriteControl(path_ / "cgroup.procs", std::to_string(pid));
}

std::vector<pid_t> MemoryCgroup::Pids() const {
  std::vector<pid_t> pids = ParsePids(TryReadFile(path_ / "cgroup.procs").value_or(""));
  std::error_code error;
  for (fs::recursive_directory_iterator it(path_, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_directory(error)) continue;
    const auto below = ParsePids(TryReadFile(it->path() / "cgroup.procs").value_or(""));
    pids.insert(pids.end(), below.begin(), below.end());
  }
  return pids;
}

void MemoryCgroup::KillAll() const {
  const bool none_left = WaitUntil([&] {
    const std::vector<pid_t> pids = Pids();
    for (const pid_t pid : pids) {
      if (pid != getpid()) kill(pid, SIGKILL);
    }
    // Zombies stay listed in v1 until somebody waits for them; they no longer count for anything.
    return std::all_of(pids.begin(), pids.end(),
                       [](pid_t pid) { return ProcessState(pid).value_or('Z') == 'Z'; });
  });
  if (!none_left) Throw("processes in " + path_.string() + " survive kill -9");
}

std::uint64_t MemoryCgroup::Usage() const {
  const fs::path file = path_ / (v2_ ? "memory.current" : "memory.usage_in_bytes");
  return ParseCount(ReadFile(file), file);
}

std::optional<std::uint64_t> MemoryCgroup::MaxUsage() const {
  const fs::path file = path_ / (v2_ ? "memory.peak" : "memory.max_usage_in_bytes");
  const auto text = TryReadFile(file);
  if (!text) return std::nullopt;
  return ParseCount(*text, file);
}

std::uint64_t MemoryCgroup::OomKills() const {
  if (v2_) return KeyedCount(ReadFile(path_ / "memory.events"), "oom_kill").value_or(0);
  // v1 counts each cgroup's own tasks only.
  std::uint64_t kills = KeyedCount(ReadFile(path_ / "memory.oom_control"), "oom_kill").value_or(0);
  std::error_code error;
  for (fs::recursive_directory_iterator it(path_, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_directory(error)) continue;
    const auto text = TryReadFile(it->path() / "memory.oom_control");
    if (text) kills += KeyedCount(*text, "oom_kill").value_or(0);
  }
  return kills;
}

// --- programs ---

struct Program::State {
  TempDir files;
  bp::child child;
  bool own_group = true;
  Clock::time_point start;
  bool waited = false;

  // Ends of the process by wait4: Boost.Process's own wait gives no rusage, and its wait_for is
  // unreliable in 1.81 (it may miss the SIGCHLD it waits for).
  std::optional<int> TryWait(bool block, rusage* usage) {
    int status = 0;
    while (true) {
      const pid_t pid = wait4(child.id(), &status, block ? 0 : WNOHANG, usage);
      if (pid == child.id()) return status;
      if (pid == 0) return std::nullopt;
      if (errno != EINTR) ThrowErrno("cannot wait for process " + std::to_string(child.id()));
    }
  }
};

Program::Program(const ProgramOptions& options) : state_(std::make_unique<State>()) {
  if (options.argv.empty()) Throw("no program given");
  fs::path exe = options.argv[0];
  if (options.argv[0].find('/') == std::string::npos) {
    const auto found = FindProgram(options.argv[0]);
    if (!found) Throw("no program '" + options.argv[0] + "' on PATH");
    exe = *found;
  }
  if (access(exe.c_str(), X_OK) != 0) ThrowErrno("cannot run " + exe.string());

  bp::environment env;
  if (!options.clear_env) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const std::size_t equals = text.find('=');
      if (equals != std::string::npos) env[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  for (const auto& [name, value] : options.env) {
    if (value) {
      env[name] = *value;
    } else {
      env.erase(name);
    }
  }
  const std::string cwd = options.cwd.empty() ? fs::current_path().string() : options.cwd.string();
  const fs::path in = state_->files / "stdin";
  WriteFile(in, options.stdin_text);
  const std::string input = options.stdin_text.empty() ? "/dev/null" : in.string();
  const std::string join =
      options.cgroup == nullptr ? "" : (options.cgroup->path() / "cgroup.procs").string();
  state_->own_group = options.own_group;
  state_->start = Clock::now();

  // Runs in the child between fork and exec.
  const auto setup = [&](auto& executor) {
    if (options.own_group) setpgid(0, 0);
    if (!join.empty()) {
      const int fd = open(join.c_str(), O_WRONLY | O_CLOEXEC);
      if (fd < 0 || write(fd, "0", 1) != 1) {
        executor.set_error(std::error_code(errno, std::generic_category()),
                           "cannot join the cgroup");
        _exit(126);
      }
      close(fd);
    }
    if (options.uid) {
      const gid_t gid = *options.uid;
      if (setresgid(gid, gid, gid) != 0 ||
          setresuid(*options.uid, *options.uid, *options.uid) != 0) {
        executor.set_error(std::error_code(errno, std::generic_category()),
                           "cannot become the user");
        _exit(126);
      }
    }
  };
  const std::vector<std::string> args(options.argv.begin() + 1, options.argv.end());
  state_->child = bp::child(bp::exe = exe.string(), bp::args = args, bp::start_dir = cwd, env,
                            bp::std_in<input, bp::std_out>(state_->files / "stdout").string(),
                            bp::std_err > (state_->files / "stderr").string(),
                            bp::extend::on_exec_setup = setup);
}

Program::~Program() {
  if (state_->waited) return;
  if (state_->own_group) SignalGroup(SIGKILL);
  Signal(SIGKILL);
  rusage usage = {};
  try {
    state_->TryWait(true, &usage);
  } catch (const std::exception&) {
    // Somebody else has waited for it: it is gone either way.
  }
  state_->child.detach();
}

pid_t Program::pid() const {
  return state_->child.id();
}

bool Program::Running() {
  if (state_->waited) return false;
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(pid()), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return false;
  return info.si_pid == 0;
}

std::string Program::Out() const {
  return ReadFile(state_->files / "stdout");
}
std::string Program::Err() const {
  return ReadFile(state_->files / "stderr");
}
void Program::Signal(int number) const {
  if (!state_->waited) kill(pid(), number);
}
void Program::SignalGroup(int number) const {
  if (state_->own_group) kill(-pid(), number);
}

ProgramResult Program::Wait(std::chrono::milliseconds timeout) {
  if (state_->waited) Throw("Wait was called before");
  ProgramResult result;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid(), 0));
  if (pidfd < 0) ThrowErrno("cannot open a pidfd of process " + std::to_string(pid()));
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    pollfd poll_fd = {pidfd, POLLIN, 0};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int n = poll(&poll_fd, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (n > 0) break;
    if (n < 0 && errno != EINTR) ThrowErrno("cannot poll a pidfd");
    if (n == 0) {
      result.timed_out = true;
      SignalGroup(SIGKILL);
      Signal(SIGKILL);
      break;
    }
  }
  close(pidfd);
  const int status = state_->TryWait(true, &result.usage).value_or(0);
  state_->waited = true;
  state_->child.detach();
  result.wall_seconds = std::chrono::duration<double>(Clock::now() - state_->start).count();
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  } else {
    result.exit_code = WEXITSTATUS(status);
  }
  result.out = Out();
  result.err = Err();
  return result;
}

ProgramResult Run(const ProgramOptions& options, std::chrono::milliseconds timeout) {
  return Program(options).Wait(timeout);
}

ProgramResult Run(const std::vector<std::string>& argv, std::chrono::milliseconds timeout) {
  ProgramOptions options;
  options.argv = argv;
  return Run(options, timeout);
}

std::optional<fs::path> VenvTool(const std::string& name) {
  const fs::path path = fs::path(HEADROOM_VENV_BIN) / name;
  if (access(path.c_str(), X_OK) != 0) return std::nullopt;
  return path;
}

std::optional<fs::path> FindProgram(const std::string& name) {
  const auto found = bp::search_path(name);
  if (found.empty()) return std::nullopt;
  return fs::path(found.string());
}

// --- stand-in compilers ---

StandinTools::StandinTools(const fs::path& dir, const std::vector<std::string>& names,
                           bool is_static)
    : dir_(dir) {
  fs::create_directories(dir);
  const fs::path program = is_static ? HEADROOM_STANDIN_STATIC : HEADROOM_STANDIN;
  for (const std::string& name : names) {
    std::error_code error;
    fs::create_hard_link(program, dir / name, error);
    if (error) fs::copy_file(program, dir / name, fs::copy_options::overwrite_existing);
  }
}

std::vector<StandinRun> ReadStandinLog(const fs::path& log) {
  std::vector<StandinRun> runs;
  const auto text = TryReadFile(log);
  if (!text) return runs;
  std::istringstream in(*text);
  std::string what;
  std::string tool;
  pid_t pid = 0;
  double seconds = 0;
  std::string input;
  while (in >> what >> tool >> pid >> seconds && std::getline(in >> std::ws, input)) {
    if (what == "start") {
      runs.push_back({tool, input, pid, seconds, std::nullopt});
      continue;
    }
    // From the newest on: a pid may have been used before.
    const auto run = std::find_if(runs.rbegin(), runs.rend(), [&](const StandinRun& r) {
      return r.pid == pid && r.tool == tool;
    });
    if (run != runs.rend()) run->end_seconds = seconds;
  }
  return runs;
}

namespace {

// +1 at each start, -1 at each end, in time; ends before starts.
std::vector<std::pair<double, int>> Steps(const std::vector<StandinRun>& runs,
                                          double assume_seconds) {
  std::vector<std::pair<double, int>> steps;
  for (const StandinRun& run : runs) {
    steps.emplace_back(run.start_seconds, 1);
    steps.emplace_back(run.end_seconds.value_or(run.start_seconds + assume_seconds), -1);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string EdgeCommand(const StandinTools& tools, const StandinBuild& build,
                        const StandinEdge& edge) {
  std::string command = tools.Path(edge.tool) + " --log standin.log";
  if (!build.common_options.empty()) command += " " + build.common_options;
  for (const std::string& option : edge.options) command += " " + option;
  for (const std::string& chain : edge.chains) command += " --fork-tool " + chain;
  return command + " -c " + edge.name + ".src -o " + edge.name + ".o";
}

void WriteSources(const fs::path& dir, const StandinBuild& build) {
  for (const StandinEdge& edge : build.edges) {
    WriteFile(dir / (edge.name + ".src"),
              "// source " + edge.name + "\n// curve " + edge.tool + ": " + edge.curve + "\n");
  }
}

}  // namespace

int MaxParallel(const std::vector<StandinRun>& runs, double assume_seconds) {
  int running = 0;
  int most = 0;
  for (const auto& [seconds, change] : Steps(runs, assume_seconds)) {
    running += change;
    most = std::max(most, running);
  }
  return most;
}

double MeanParallel(const std::vector<StandinRun>& runs, double assume_seconds) {
  const auto steps = Steps(runs, assume_seconds);
  if (steps.empty() || steps.back().first <= steps.front().first) return 0;
  double area = 0;
  int running = 0;
  double last = steps.front().first;
  for (const auto& [seconds, change] : steps) {
    area += running * (seconds - last);
    running += change;
    last = seconds;
  }
  return area / (steps.back().first - steps.front().first);
}

// --- builds made of stand-ins ---

void WriteNinjaBuild(const fs::path& dir, const StandinTools& tools, const StandinBuild& build) {
  WriteSources(dir, build);
  std::string text = "rule standin\n  command = $command\n  description = $out\n";
  for (const StandinEdge& edge : build.edges) {
    text += "build " + edge.name + ".o: standin " + edge.name +
            ".src\n  command = " + EdgeCommand(tools, build, edge) + "\n";
  }
  text += "build all: phony";
  for (const StandinEdge& edge : build.edges) text += " " + edge.name + ".o";
  WriteFile(dir / "build.ninja", text + "\ndefault all\n");
}

void WriteMakeBuild(const fs::path& dir, const StandinTools& tools, const StandinBuild& build) {
  WriteSources(dir, build);
  std::string text = "all:";
  for (const StandinEdge& edge : build.edges) text += " " + edge.name + ".o";
  text += "\n.PHONY: all\n";
  for (const StandinEdge& edge : build.edges) {
    text += edge.name + ".o: " + edge.name + ".src\n\t" + EdgeCommand(tools, build, edge) + "\n";
  }
  WriteFile(dir / "Makefile", text);
}

std::map<std::string, std::string> ReadOutputs(const fs::path& dir, const StandinBuild& build) {
  std::map<std::string, std::string> outputs;
  for (const StandinEdge& edge : build.edges) {
    if (auto text = TryReadFile(dir / (edge.name + ".o"))) outputs[edge.name] = *std::move(text);
  }
  return outputs;
}

StandinBuild UnevenBuild(int count, std::uint64_t min_bytes, std::uint64_t max_bytes,
                         double min_seconds, double max_seconds, std::uint64_t seed) {
  StandinBuild build;
  std::mt19937_64 random(seed);  // its sequence is fixed by the standard, unlike the distributions'
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1.0p-53; };
  for (int i = 0; i < count; ++i) {
    StandinEdge edge;
    edge.name = (i < 9 ? "unit0" : "unit") + std::to_string(i + 1);
    // Even in the logarithm: a few giants among many small ones. Time goes with size, loosely.
    const double share = uniform();
    const double peak =
        static_cast<double>(min_bytes) *
        std::pow(static_cast<double>(max_bytes) / static_cast<double>(min_bytes), share);
    const double seconds =
        min_seconds + (max_seconds - min_seconds) * (0.7 * share + 0.3 * uniform());
    std::ostringstream curve;
    curve << "0:0," << 0.1 * seconds << ':' << static_cast<std::uint64_t>(0.3 * peak) << ','
          << 0.4 * seconds << ':' << static_cast<std::uint64_t>(0.85 * peak) << ',' << 0.9 * seconds
          << ':' << static_cast<std::uint64_t>(peak) << ',' << seconds << ':'
          << static_cast<std::uint64_t>(0.6 * peak);
    edge.curve = curve.str();
    build.edges.push_back(edge);
  }
  return build;
}

}  // namespace headroom::testing
