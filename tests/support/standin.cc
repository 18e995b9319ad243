// standin: takes memory as a compiler does, without compiling anything.
//
// It is run under a compiler's name (a hard link or copy called cicc, ptxas, cc1plus, nvcc, ld,
// ...), because /proc/PID/comm and the name of the executable are what daemons look at. It follows
// a curve of anonymous memory over time, writes its output, and ends. Its output depends on its
// input alone, so that objects of two builds can be compared byte for byte.
//
//   TOOL [OPTION...] INPUT...          INPUT is a file, a mere name, or - for standard input
//   --curve POINTS        "0:0,1.5:300M,3:300M": seconds:bytes, linear between; K, M, G are
//   1024-based
//   --curve-file FILE     the same, one point a line
//                         Without either, the first line of INPUT that reads "// curve TOOL:
//                         POINTS" for this tool (or *) counts, so that command lines can look as a
//                         compiler's do.
//   --scale X             multiplies all bytes      --time-factor Y   multiplies all seconds
//   --cpu SHARE           burns that share of a core instead of sleeping; the curve then follows
//   CPU time
//   --output FILE, -o FILE   written at the end; - is standard output     --output-bytes N   (4096)
//   --temp-bytes N --temp-dir D   keeps a temporary file of N bytes while it runs (stays if it is
//   killed)
//   --exit N              exit code                 --signal SIG      ends by that signal, at the
//   curve's end
//   --once FILE           --exit and --signal hold only for the run that creates FILE
//   --log FILE            appends "start|end NAME PID SECONDS INPUT" lines (CLOCK_MONOTONIC)
//   --stderr TEXT         prints TEXT, as a compiler does its warnings
//   --fork-tool TOOL:POINTS[+TOOL:POINTS...]   a driver: runs those tools, found beside its own
//   executable,
//                         one after the other; given several times, chains run --threads N at once
//                         (1)
// Words that start with one dash are a compiler's flags and mean nothing here (-o excepted).
//
// Plain C++ and libc only: its own footprint has to be small beside the curve, and a preloaded
// library has to meet the same kind of program as a real compiler is.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack it
#endif

namespace {

struct Point {
  double seconds;
  double bytes;
};

struct Options {
  std::string tool;  // the name that this program was run under
  std::vector<Point> curve;
  bool has_curve = false;
  double scale = 1;
  double time_factor = 1;
  double cpu = 0;
  std::string output;
  uint64_t output_bytes = 4096;
  uint64_t temp_bytes = 0;
  std::string temp_dir;
  int exit_code = 0;
  int signal = 0;
  std::string once;
  std::string log;
  std::string stderr_text;
  std::vector<std::string> chains;
  unsigned threads = 1;
  std::vector<std::string> inputs;
};

const char* g_tool = "standin";

[[noreturn]] void Fail(const std::string& what) {
  fprintf(stderr, "%s: %s\n", g_tool, what.c_str());
  exit(2);
}

double Seconds(clockid_t clock) {
  timespec t = {};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void Sleep(double seconds) {
  if (seconds <= 0) return;
  timespec t = {};
  t.tv_sec = static_cast<time_t>(seconds);
  t.tv_nsec = static_cast<long>((seconds - static_cast<double>(t.tv_sec)) * 1e9);
  nanosleep(&t, nullptr);
}

double ParseNumber(const std::string& text, const char* what) {
  char* end = nullptr;
  const double value = strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0))
    Fail("bad " + std::string(what) + ": '" + text + "'");
  return value;
}

double ParseSize(const std::string& text, const char* what) {
  if (text.empty()) Fail("empty " + std::string(what));
  double unit = 1;
  std::string digits = text;
  switch (text.back()) {
    case 'K':
      unit = 1024.0;
      break;
    case 'M':
      unit = 1024.0 * 1024;
      break;
    case 'G':
      unit = 1024.0 * 1024 * 1024;
      break;
    default:
      break;
  }
  if (unit > 1) digits.pop_back();
  return ParseNumber(digits, what) * unit;
}

Point ParsePoint(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) Fail("bad point '" + text + "': want SECONDS:BYTES");
  return {ParseNumber(text.substr(0, colon), "seconds"),
          ParseSize(text.substr(colon + 1), "bytes")};
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::vector<Point> ParseCurve(const std::string& text) {
  std::vector<Point> curve;
  for (const std::string& word : Split(text, ',')) {
    const std::string point = Trim(word);
    if (point.empty()) continue;
    curve.push_back(ParsePoint(point));
    if (curve.size() > 1 && curve.back().seconds < curve[curve.size() - 2].seconds) {
      Fail("bad curve '" + text + "': time goes backwards");
    }
  }
  return curve;
}

bool ReadAll(int fd, std::string* text) {
  char buffer[16384];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n > 0) {
      text->append(buffer, static_cast<size_t>(n));
    } else if (n == 0) {
      return true;
    } else if (errno != EINTR) {
      return false;
    }
  }
}

bool ReadFile(const std::string& path, std::string* text) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = ReadAll(fd, text);
  close(fd);
  return ok;
}

void WriteAll(int fd, const char* data, size_t size, const std::string& path) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("cannot write " + path + ": " + strerror(errno));
    data += n;
    size -= static_cast<size_t>(n);
  }
}

// SplitMix64 seeded with FNV-1a of the input: the same bytes on every machine.
class Bytes {
 public:
  explicit Bytes(const std::string& seed) {
    for (const char c : seed) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  void Write(int fd, uint64_t count, const std::string& path) {
    char buffer[4096];
    while (count > 0) {
      for (size_t i = 0; i < sizeof buffer; i += sizeof(uint64_t)) {
        const uint64_t word = Next();
        memcpy(buffer + i, &word, sizeof word);
      }
      const size_t part = static_cast<size_t>(std::min<uint64_t>(count, sizeof buffer));
      WriteAll(fd, buffer, part, path);
      count -= part;
    }
  }

 private:
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  uint64_t state_ = 0xcbf29ce484222325U;
};

// The anonymous memory that follows the curve: one mapping as large as the curve's peak, of which
// the first `size` bytes are touched.
class Memory {
 public:
  explicit Memory(size_t capacity) : capacity_(capacity) {
    if (capacity == 0) return;
    base_ = static_cast<char*>(mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) Fail("cannot map memory: " + std::string(strerror(errno)));
    // Huge pages would let RSS run ahead of the curve by up to 2 MB.
    madvise(base_, capacity, MADV_NOHUGEPAGE);
  }
  void Resize(size_t size) {
    size = std::min(size, capacity_) & ~(kPage - 1);
    if (size > size_) {
      // One call for many pages: faulting them in one by one costs twice the CPU at 2 GB/s.
      if (madvise(base_ + size_, size - size_, MADV_POPULATE_WRITE) != 0) {
        for (size_t i = size_; i < size; i += kPage) base_[i] = 1;
      }
    } else if (size < size_) {
      madvise(base_ + size, size_ - size, MADV_DONTNEED);
    }
    size_ = size;
  }
  static constexpr size_t kPage = 4096;

 private:
  size_t capacity_;
  size_t size_ = 0;
  char* base_ = nullptr;
};

// Time along the curve. While the process is stopped or gets no core it must not advance, as a
// compiler doesn't: a late wake-up counts only up to kGrace.
class Progress {
 public:
  explicit Progress(double cpu_share) : share_(cpu_share), last_(Now()) {}
  double seconds() const { return seconds_; }
  void Advance(double want) {
    if (share_ > 0) {
      const double burn_until = last_ + want * share_;
      const double start = Seconds(CLOCK_MONOTONIC);
      while (Now() < burn_until) {
      }
      Sleep(want * (1 - share_) - std::max(0.0, Seconds(CLOCK_MONOTONIC) - start - want * share_));
    } else {
      Sleep(want);
    }
    const double now = Now();
    const double step = share_ > 0 ? (now - last_) / share_ : std::min(now - last_, want + kGrace);
    seconds_ += step;
    last_ = now;
  }

 private:
  static constexpr double kGrace = 0.02;
  double Now() const { return Seconds(share_ > 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC); }
  double share_;
  double last_;
  double seconds_ = 0;
};

void FollowCurve(const std::vector<Point>& curve, double cpu_share) {
  double peak = 0;
  for (const Point& p : curve) peak = std::max(peak, p.bytes);
  Memory memory((static_cast<size_t>(peak) + Memory::kPage - 1) & ~(Memory::kPage - 1));
  Progress progress(cpu_share);
  // Steps of at most 5 ms or 4 MB while memory changes: fine enough for a daemon that samples at 10
  // ms.
  constexpr double kStepSeconds = 0.005;
  constexpr double kStepBytes = 4e6;
  constexpr double kFlatSeconds = 0.05;  // how late a stop can be noticed in a flat part
  for (size_t i = 0; i < curve.size(); ++i) {
    const Point& to = curve[i];
    const Point& from = i == 0 ? to : curve[i - 1];
    const double length = to.seconds - from.seconds;
    const double rate = length > 0 ? (to.bytes - from.bytes) / length : 0;
    while (progress.seconds() < to.seconds) {
      double step = kFlatSeconds;
      if (rate != 0) {
        step = std::clamp(kStepBytes / std::max(rate, -rate), 0.001, kStepSeconds);
        const double at = std::max(progress.seconds() - from.seconds, 0.0);
        memory.Resize(static_cast<size_t>(std::max(0.0, from.bytes + at * rate)));
      }
      progress.Advance(std::min(step, to.seconds - progress.seconds()));
    }
    memory.Resize(static_cast<size_t>(to.bytes));
  }
}

void Log(const Options& options, const char* what) {
  if (options.log.empty()) return;
  char line[PIPE_BUF];
  const int n =
      snprintf(line, sizeof line, "%s %s %d %.6f %s\n", what, g_tool, static_cast<int>(getpid()),
               Seconds(CLOCK_MONOTONIC), options.inputs.empty() ? "-" : options.inputs[0].c_str());
  const int fd = open(options.log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) Fail("cannot open log " + options.log + ": " + strerror(errno));
  WriteAll(fd, line, std::min(static_cast<size_t>(n), sizeof line - 1), options.log);
  close(fd);
}

int ParseSignal(const std::string& text) {
  const char* name = text.c_str();
  if (strncasecmp(name, "SIG", 3) == 0) name += 3;
  for (int number = 1; number < 32; ++number) {
    const char* known = sigabbrev_np(number);
    if (known != nullptr && strcasecmp(known, name) == 0) return number;
  }
  return static_cast<int>(ParseNumber(text, "signal"));
}

// Ends as a killed or crashed compiler does, but leaves no core file.
[[noreturn]] void DieBySignal(int number) {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  ::signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  raise(number);
  Fail("signal " + std::to_string(number) + " did not end this process");
}

// --- driver ---

struct Stage {
  std::string tool;
  std::string curve;
};

std::string ToolFolder() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  if (n < 0) Fail("cannot read /proc/self/exe: " + std::string(strerror(errno)));
  const std::string exe(path, static_cast<size_t>(n));
  return exe.substr(0, exe.rfind('/'));
}

std::string NumberText(double value) {
  char text[64];
  snprintf(text, sizeof text, "%.17g", value);
  return text;
}

pid_t StartStage(const Options& options, const std::string& folder, const Stage& stage,
                 const std::string& intermediate) {
  std::vector<std::string> words = {folder + "/" + stage.tool,
                                    "--curve",
                                    stage.curve,
                                    "--scale",
                                    NumberText(options.scale),
                                    "--time-factor",
                                    NumberText(options.time_factor),
                                    "--cpu",
                                    NumberText(options.cpu)};
  if (!options.log.empty()) words.insert(words.end(), {"--log", options.log});
  words.insert(words.end(), {"-o", intermediate});
  words.insert(words.end(), options.inputs.begin(), options.inputs.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) Fail("cannot fork: " + std::string(strerror(errno)));
  if (pid == 0) {
    execv(argv[0], argv.data());
    fprintf(stderr, "%s: cannot run %s: %s\n", g_tool, argv[0], strerror(errno));
    _exit(127);
  }
  return pid;
}

// Runs all chains, at most options.threads at once. A failed stage ends the driver with its code
// (128 + the signal for a killed one), after the chains that run have ended: no chain is started
// any more.
int RunChains(const Options& options) {
  struct Chain {
    std::vector<Stage> stages;
    size_t next = 0;
    pid_t pid = -1;
  };
  std::vector<Chain> chains;
  for (const std::string& text : options.chains) {
    Chain chain;
    for (const std::string& part : Split(text, '+')) {
      const size_t colon = part.find(':');
      if (colon == std::string::npos) Fail("bad --fork-tool '" + part + "': want TOOL:POINTS");
      chain.stages.push_back({part.substr(0, colon), part.substr(colon + 1)});
    }
    chains.push_back(chain);
  }
  const std::string folder = ToolFolder();
  const std::string base = options.output.empty() || options.output == "-"
                               ? "/tmp/standin-" + std::to_string(getpid())
                               : options.output;
  std::vector<std::string> intermediates;
  int result = 0;
  unsigned running = 0;
  size_t next_chain = 0;
  const auto start = [&](size_t index) {
    Chain& chain = chains[index];
    const std::string file =
        base + "." + std::to_string(index) + "." + std::to_string(chain.next) + ".tmp";
    intermediates.push_back(file);
    chain.pid = StartStage(options, folder, chain.stages[chain.next++], file);
    ++running;
  };
  while (true) {
    while (result == 0 && next_chain < chains.size() && running < options.threads)
      start(next_chain++);
    if (running == 0) break;
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) Fail("cannot wait: " + std::string(strerror(errno)));
    const auto ended = std::find_if(chains.begin(), chains.end(),
                                    [&](const Chain& chain) { return chain.pid == pid; });
    if (ended == chains.end()) continue;
    --running;
    ended->pid = -1;
    const std::string& tool = ended->stages[ended->next - 1].tool;
    if (WIFSIGNALED(status)) {
      fprintf(stderr, "%s error   : '%s' died due to signal %d\n", g_tool, tool.c_str(),
              WTERMSIG(status));
      if (result == 0) result = 128 + WTERMSIG(status);
    } else if (WEXITSTATUS(status) != 0) {
      if (result == 0) result = WEXITSTATUS(status);
    } else if (result == 0 && ended->next < ended->stages.size()) {
      start(static_cast<size_t>(ended - chains.begin()));
    }
  }
  for (const std::string& file : intermediates) unlink(file.c_str());
  return result;
}

// --- command line ---

Options ParseOptions(int argc, char** argv) {
  Options options;
  const auto value = [&](int* i) -> std::string {
    if (*i + 1 >= argc) Fail("option " + std::string(argv[*i]) + " needs a value");
    return argv[++*i];
  };
  // A compiler's own options that take their value as the next word.
  const char* const kWithValue[] = {"-x", "-MF",      "-MT",      "-MQ",  "-D",
                                    "-I", "-isystem", "-include", "-arch"};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--curve") {
      options.curve = ParseCurve(value(&i));
      options.has_curve = true;
    } else if (word == "--curve-file") {
      const std::string path = value(&i);
      std::string text;
      if (!ReadFile(path, &text)) Fail("cannot read curve file " + path + ": " + strerror(errno));
      std::replace(text.begin(), text.end(), '\n', ',');
      options.curve = ParseCurve(text);
      options.has_curve = true;
    } else if (word == "--scale") {
      options.scale = ParseNumber(value(&i), "scale");
    } else if (word == "--time-factor") {
      options.time_factor = ParseNumber(value(&i), "time factor");
    } else if (word == "--cpu") {
      options.cpu = ParseNumber(value(&i), "CPU share");
      if (options.cpu > 1) Fail("bad CPU share: a process has one thread, so at most 1");
    } else if (word == "--output" || word == "-o") {
      options.output = value(&i);
    } else if (word == "--output-bytes") {
      options.output_bytes = static_cast<uint64_t>(ParseSize(value(&i), "output bytes"));
    } else if (word == "--temp-bytes") {
      options.temp_bytes = static_cast<uint64_t>(ParseSize(value(&i), "temp bytes"));
    } else if (word == "--temp-dir") {
      options.temp_dir = value(&i);
    } else if (word == "--exit") {
      options.exit_code = static_cast<int>(ParseNumber(value(&i), "exit code"));
    } else if (word == "--signal") {
      options.signal = ParseSignal(value(&i));
    } else if (word == "--once") {
      options.once = value(&i);
    } else if (word == "--log") {
      options.log = value(&i);
    } else if (word == "--stderr") {
      options.stderr_text = value(&i);
    } else if (word == "--fork-tool") {
      options.chains.push_back(value(&i));
    } else if (word == "--threads") {
      options.threads = static_cast<unsigned>(std::max(1.0, ParseNumber(value(&i), "threads")));
    } else if (word.size() > 2 && word.compare(0, 2, "--") == 0 &&
               word.find('=') == std::string::npos && word != "--c++17" && word != "--c++20") {
      Fail("unknown option " + word);
    } else if (word.size() > 1 && word[0] == '-') {
      for (const char* with_value : kWithValue) {
        if (word == with_value) value(&i);
      }
    } else {
      options.inputs.push_back(word);
    }
  }
  return options;
}

// The curve that an input names for this tool: "// curve TOOL: POINTS", or * for every tool.
bool CurveFromInput(const std::string& text, const std::string& tool, std::vector<Point>* curve) {
  for (const std::string& line : Split(text, '\n')) {
    for (const std::string& name : {tool, std::string("*")}) {
      const std::string start = "// curve " + name + ":";
      if (line.compare(0, start.size(), start) != 0) continue;
      *curve = ParseCurve(line.substr(start.size()));
      return true;
    }
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 0) {
    const char* slash = strrchr(argv[0], '/');
    g_tool = slash == nullptr ? argv[0] : slash + 1;
  }
  Options options = ParseOptions(argc, argv);
  Log(options, "start");

  std::string seed = g_tool;
  for (const std::string& input : options.inputs) {
    std::string text;
    if (input == "-") {
      if (!ReadAll(STDIN_FILENO, &text))
        Fail("cannot read standard input: " + std::string(strerror(errno)));
    } else if (!ReadFile(input, &text)) {
      text = input;  // a mere name
    }
    if (!options.has_curve) options.has_curve = CurveFromInput(text, g_tool, &options.curve);
    seed += '\0' + text;
  }
  for (Point& p : options.curve) {
    p.seconds *= options.time_factor;
    p.bytes *= options.scale;
  }

  std::string temp;
  if (options.temp_bytes > 0) {
    temp = (options.temp_dir.empty() ? "/tmp" : options.temp_dir) + "/standin-" +
           std::to_string(getpid());
    const int fd = open(temp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) Fail("cannot create " + temp + ": " + strerror(errno));
    Bytes(seed).Write(fd, options.temp_bytes, temp);
    close(fd);
  }
  if (!options.stderr_text.empty()) fprintf(stderr, "%s\n", options.stderr_text.c_str());

  int result = 0;
  if (!options.chains.empty()) result = RunChains(options);
  FollowCurve(options.curve, options.cpu);
  if (!temp.empty()) unlink(temp.c_str());

  bool fails = options.exit_code != 0 || options.signal != 0;
  if (fails && !options.once.empty()) {
    const int fd = open(options.once.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    fails = fd >= 0;
    if (fd >= 0) close(fd);
  }
  if (fails && options.signal != 0) {
    Log(options, "end");
    DieBySignal(options.signal);
  }
  if (result == 0 && fails) result = options.exit_code;
  if (result == 0 && !options.output.empty()) {
    const bool to_stdout = options.output == "-";
    const int fd =
        to_stdout ? STDOUT_FILENO
                  : open(options.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) Fail("cannot create " + options.output + ": " + strerror(errno));
    Bytes(seed).Write(fd, options.output_bytes, options.output);
    if (!to_stdout && close(fd) != 0)
      Fail("cannot write " + options.output + ": " + strerror(errno));
  }
  Log(options, "end");
  return result;
}
