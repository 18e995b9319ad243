// What the tests share: folders, programs, memory cgroups, stand-in compilers and builds made of
// them.
//
// Everything here throws std::runtime_error with the thing, the value and the cause when the test's
// own set-up fails; what is under test is never reported that way. Objects own what they create and
// remove it in their destructor, also when a test fails. Not thread-safe, except that different
// objects may be used by different threads.
#ifndef HEADROOM_TESTS_SUPPORT_TESTING_H_
#define HEADROOM_TESTS_SUPPORT_TESTING_H_

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace headroom::testing {

namespace fs = std::filesystem;

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;
constexpr std::uint64_t kGiB = 1024 * kMiB;

// --- files ---

// An empty folder below $TMPDIR (or /tmp), removed with all its contents.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const fs::path& path() const { return path_; }
  fs::path operator/(const fs::path& name) const { return path_ / name; }

 private:
  fs::path path_;
};

// Whole text of a file; also of /proc files, whose size is 0. Throws if it can't be read.
std::string ReadFile(const fs::path& path);
// Creates the folders above it.
void WriteFile(const fs::path& path, const std::string& text);

// Checks `condition` each 10 ms until it holds or `timeout` is over. Returns whether it held.
bool WaitUntil(const std::function<bool()>& condition,
               std::chrono::milliseconds timeout = std::chrono::seconds(10));

// --- processes ---

// Resident anonymous memory in bytes (resident − shared of /proc/PID/statm); nothing if it is gone.
std::optional<std::uint64_t> AnonymousMemory(pid_t pid);
// The state letter of /proc/PID/stat: R, S, D, T (stopped), Z, ...; nothing if it is gone.
std::optional<char> ProcessState(pid_t pid);
std::optional<std::string> ProcessName(pid_t pid);
// Children of a process, and theirs, in no particular order; without `pid` itself.
std::vector<pid_t> Descendants(pid_t pid);

// --- memory cgroups ---

// A memory cgroup of the test's own: /sys/fs/cgroup/memory/headroom-test-<pid>-<n> (v1), or the
// same below /sys/fs/cgroup (v2). The destructor kills what is still in it, by pid, and removes it.
// Swap isn't given.
class MemoryCgroup {
 public:
  // Why no such cgroup can be made here, in words for "SKIPPED: ..."; nothing if it can.
  static std::optional<std::string> WhyUnavailable();

  explicit MemoryCgroup(std::optional<std::uint64_t> limit_bytes = std::nullopt);
  // A child of `parent`, which has to live longer.
  MemoryCgroup(const MemoryCgroup& parent, const std::string& name,
               std::optional<std::uint64_t> limit_bytes = std::nullopt);
  ~MemoryCgroup();
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;

  const fs::path& path() const { return path_; }
  bool is_v2() const { return v2_; }
  void SetLimit(std::uint64_t bytes);
  // Moves a process into it. For a child before its exec use ProgramOptions::cgroup.
  void Add(pid_t pid) const;
  // Processes in it and in cgroups below it.
  std::vector<pid_t> Pids() const;
  // kill -9 to all of them, until none is left (a stopped process dies, too). Throws after 10 s.
  void KillAll() const;

  std::uint64_t Usage() const;
  // Highest usage so far (v2: memory.peak, Linux 5.19; nothing where it is missing).
  std::optional<std::uint64_t> MaxUsage() const;
  // Processes that the kernel's OOM killer has killed in it or below it.
  std::uint64_t OomKills() const;

 private:
  void Create(std::optional<std::uint64_t> limit_bytes);
  fs::path path_;
  bool v2_ = false;
};

// --- programs ---

struct ProgramOptions {
  std::vector<std::string> argv;  // argv[0]: a path, or a name looked up in PATH
  // Added to the inherited environment; an empty optional removes the variable.
  std::map<std::string, std::optional<std::string>> env;
  bool clear_env = false;                // start from an empty environment
  fs::path cwd;                          // empty: inherited
  std::string stdin_text;                // given as a regular file; empty: /dev/null
  const MemoryCgroup* cgroup = nullptr;  // joined before exec
  std::optional<uid_t> uid;              // become this user and group before exec (root only)
  bool own_group = true;                 // in a process group of its own
};

struct ProgramResult {
  int exit_code = -1;      // -1 if it was ended by a signal
  int signal = 0;          // 0 if it ended by itself
  bool timed_out = false;  // killed by this library, with its process group
  std::string out;
  std::string err;
  double wall_seconds = 0;
  rusage usage = {};  // of the program and the children it has waited for
};

// A program that runs beside the test. Its output goes to files, so it never blocks on a full pipe
// and can be read while it runs. The destructor kills it with its process group.
class Program {
 public:
  explicit Program(const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const;
  bool Running();
  // Output so far.
  std::string Out() const;
  std::string Err() const;
  void Signal(int number) const;       // to the program alone
  void SignalGroup(int number) const;  // to its process group
  // Waits for its end; after `timeout` kills its group. May be called once.
  ProgramResult Wait(std::chrono::milliseconds timeout = std::chrono::seconds(60));

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Starts it and waits for its end.
ProgramResult Run(const ProgramOptions& options,
                  std::chrono::milliseconds timeout = std::chrono::seconds(60));
ProgramResult Run(const std::vector<std::string>& argv,
                  std::chrono::milliseconds timeout = std::chrono::seconds(60));

// A tool that scripts/setup puts into build/venv/bin ("ninja", "gmake" or "make" of PyPI); nothing
// where it isn't installed.
std::optional<fs::path> VenvTool(const std::string& name);
// A program on PATH.
std::optional<fs::path> FindProgram(const std::string& name);

// --- stand-in compilers ---

// tests/support/standin.cc under the names of compilers, as hard links (copies across file systems)
// in one folder: comm and the executable's name are the tool's.
class StandinTools {
 public:
  // `dir` must live longer. With `is_static` the programs are static, out of a preload library's
  // reach.
  explicit StandinTools(const fs::path& dir,
                        const std::vector<std::string>& names = {"nvcc", "cicc", "ptxas",
                                                                 "cudafe++", "cc1plus", "c++",
                                                                 "ld"},
                        bool is_static = false);
  const fs::path& dir() const { return dir_; }
  std::string Path(const std::string& name) const { return (dir_ / name).string(); }

 private:
  fs::path dir_;
};

// One line pair of a stand-in's --log.
struct StandinRun {
  std::string tool;
  std::string input;
  pid_t pid = 0;
  double start_seconds = 0;           // CLOCK_MONOTONIC
  std::optional<double> end_seconds;  // nothing if it was killed (or still runs)
};
std::vector<StandinRun> ReadStandinLog(const fs::path& log);
// Most of them at the same time. One without an end counts for `assume_seconds`.
int MaxParallel(const std::vector<StandinRun>& runs, double assume_seconds = 0);
// Time-weighted mean from the first start to the last end.
double MeanParallel(const std::vector<StandinRun>& runs, double assume_seconds = 0);

// --- builds made of stand-ins ---

struct StandinEdge {
  std::string name;  // source NAME.src and output NAME.o
  std::string tool = "cc1plus";
  std::string curve = "0:0";         // written into the source; a driver's own, if it has chains
  std::vector<std::string> options;  // more options of the stand-in
  std::vector<std::string> chains;   // --fork-tool values: the tool is then a driver
};

struct StandinBuild {
  std::vector<StandinEdge> edges;
  std::string common_options;  // put before each edge's own, as in "--time-factor 0.5"
};

// Writes the sources, and build.ninja or Makefile, into `dir`. Edges are started by ninja and make
// in the order given. The log of all tools is dir/standin.log. "all" is the default target.
void WriteNinjaBuild(const fs::path& dir, const StandinTools& tools, const StandinBuild& build);
void WriteMakeBuild(const fs::path& dir, const StandinTools& tools, const StandinBuild& build);
// Text of the outputs by edge name, for comparing two builds; a missing output is missing in the
// map.
std::map<std::string, std::string> ReadOutputs(const fs::path& dir, const StandinBuild& build);

// `count` edges of uneven size: peaks from `min_bytes` to `max_bytes`, `min_seconds` to
// `max_seconds` long, most of the growth early, as compilers do it. The same for the same seed.
StandinBuild UnevenBuild(int count, std::uint64_t min_bytes, std::uint64_t max_bytes,
                         double min_seconds, double max_seconds, std::uint64_t seed = 1);

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_SUPPORT_TESTING_H_
