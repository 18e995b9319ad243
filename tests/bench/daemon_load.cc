// daemon_load: what the daemon has to watch, without any compiling. A client ("make") with many
// jobs, each a shell, a driver and a tool process as of a real compiler (sh, c++, cc1plus), that
// sleep; but for some of the tools, which take memory at a steady rate up to a peak, give it all
// back and begin again, each at another moment.
//
//   daemon_load JOBS GROWING BYTES_PER_SECOND PEAK_BYTES
//
// Runs until standard input is closed; then says on standard output how many bytes a second each of
// the growing ones really took on average, which is less on a machine that is too slow.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

// A compiler's allocator takes memory in small pieces; this often it is looked up to what the rate
// asks for.
constexpr auto kStep = std::chrono::milliseconds(10);

constexpr const char* kNames[] = {"make", "sh", "c++", "cc1plus"};

[[noreturn]] void Fail(const char* what) {
  fprintf(stderr, "daemon_load: %s: %s\n", what, strerror(errno));
  exit(1);
}

uint64_t Number(const char* text) {
  char* end = nullptr;
  errno = 0;
  const uint64_t value = strtoull(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0') {
    fprintf(stderr, "daemon_load: '%s' is no number\n", text);
    exit(2);
  }
  return value;
}

// Becomes `tool`, a link to this very program: its name is then what daemons look at.
void Become(const std::string& dir, const char* tool, const char* const argv[]) {
  const std::string path = dir + "/" + tool;
  execv(path.c_str(), const_cast<char* const*>(argv));
  Fail("exec");
}

// One tool process; `total` is shared with all others.
[[noreturn]] void Grow(uint64_t rate, uint64_t peak, double phase, std::atomic<uint64_t>* total) {
  if (rate == 0) {
    while (true) pause();
  }
  char* memory = static_cast<char*>(
      mmap(nullptr, peak, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED) Fail("mmap");
  // Huge pages where there are any: 30 of these would else keep two cores busy with page faults.
  madvise(memory, peak, MADV_HUGEPAGE);
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const double cycle = static_cast<double>(peak) / static_cast<double>(rate);
  Clock::time_point begin = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(phase * cycle));
  // The first round starts in the middle: what it has already is not counted.
  uint64_t have = 0;
  bool counted = false;
  while (true) {
    const double since = std::chrono::duration<double>(Clock::now() - begin).count();
    const uint64_t want = std::min(peak, static_cast<uint64_t>(since * static_cast<double>(rate)));
    const uint64_t before = have;
    for (; have + page <= want; have += page) memory[have] = 1;
    if (counted) total->fetch_add(have - before);
    counted = true;
    if (since >= cycle) {
      madvise(memory, peak, MADV_DONTNEED);
      have = 0;
      begin = Clock::now();
    }
    std::this_thread::sleep_for(kStep);
  }
}

std::atomic<uint64_t>* SharedTotal(int fd) {
  void* shared =
      mmap(nullptr, sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shared == MAP_FAILED) Fail("mmap");
  return static_cast<std::atomic<uint64_t>*>(shared);
}

}  // namespace

// client: make DIR SHARED_FD JOBS GROWING RATE PEAK
// job:    sh | c++ DIR SHARED_FD RATE PEAK PHASE_PERCENT
// tool:   cc1plus SHARED_FD RATE PEAK PHASE_PERCENT
int main(int argc, char** argv) {
  const char* slash = strrchr(argv[0], '/');
  const std::string name = slash == nullptr ? argv[0] : slash + 1;
  // What is started ends with what started it.
  if (argc > 5 || name == "cc1plus") prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (name == "cc1plus" && argc == 5) {
    Grow(Number(argv[2]), Number(argv[3]), static_cast<double>(Number(argv[4])) / 100,
         SharedTotal(static_cast<int>(Number(argv[1]))));
  }
  if ((name == "sh" || name == "c++") && argc == 6) {
    const pid_t child = fork();
    if (child < 0) Fail("fork");
    if (child == 0 && name == "sh") {
      const char* words[] = {"c++", argv[1], argv[2], argv[3], argv[4], argv[5], nullptr};
      Become(argv[1], "c++", words);
    }
    if (child == 0) {
      const char* words[] = {"cc1plus", argv[2], argv[3], argv[4], argv[5], nullptr};
      Become(argv[1], "cc1plus", words);
    }
    while (true) pause();
  }
  if (name == "make" && argc == 7) {
    const uint64_t jobs = Number(argv[3]);
    const uint64_t growing = Number(argv[4]);
    for (uint64_t i = 0; i < jobs; ++i) {
      const pid_t child = fork();
      if (child < 0) Fail("fork");
      if (child > 0) continue;
      const bool grows = i < growing;
      const std::string phase = std::to_string(grows ? i * 100 / growing : 0);
      const char* words[] = {"sh",    argv[1],       argv[2], grows ? argv[5] : "0",
                             argv[6], phase.c_str(), nullptr};
      Become(argv[1], "sh", words);
    }
    while (true) pause();
  }
  if (argc != 5) {
    fprintf(stderr, "usage: daemon_load JOBS GROWING BYTES_PER_SECOND PEAK_BYTES\n");
    return 2;
  }
  for (int i = 1; i < argc; ++i) Number(argv[i]);
  const uint64_t growing = Number(argv[2]);

  const int fd = memfd_create("total", 0);  // inherited by the tools
  if (fd < 0 || ftruncate(fd, sizeof(std::atomic<uint64_t>)) != 0) Fail("memfd");
  std::atomic<uint64_t>* total = SharedTotal(fd);
  std::string dir = "/tmp/daemon-load-XXXXXX";
  if (mkdtemp(dir.data()) == nullptr) Fail("mkdtemp");
  for (const char* tool : kNames) {
    char self[4096];
    const ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    if (size < 0) Fail("/proc/self/exe");
    self[size] = '\0';
    if (symlink(self, (dir + "/" + tool).c_str()) != 0) Fail("symlink");
  }
  const pid_t client = fork();
  if (client < 0) Fail("fork");
  if (client == 0) {
    const std::string shared = std::to_string(fd);
    const char* words[] = {"make",  dir.c_str(), shared.c_str(), argv[1],
                           argv[2], argv[3],     argv[4],        nullptr};
    Become(dir, "make", words);
  }
  const Clock::time_point begin = Clock::now();
  char byte = 0;
  while (true) {
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  kill(client, SIGKILL);
  waitpid(client, nullptr, 0);
  for (const char* tool : kNames) unlink((dir + "/" + tool).c_str());
  rmdir(dir.c_str());
  printf("%.0f\n", growing == 0 ? 0
                                : static_cast<double>(total->load()) /
                                      static_cast<double>(growing) / seconds);
  return 0;
}
