// actor: acts a recorded tool process out, or the driver of some. A hundred of them run at once, in
// a memory that is a 32nd of what they act, so it is small itself: C, libc, no allocation but the
// curve's. It sleeps where a compiler computes: cores don't bind.
//
// As a tool (run under the tool's name, for the gate knows tools by that):
//   cicc WORD... curve:SECONDS:BYTES,SECONDS:BYTES,...    memory linear in between, gone at the end
// All other words are for who reads command lines.
//
// As nvcc or c++ (... -o OUT): runs what OUT.plan says, a line each, and creates OUT if all of it
// has succeeded:
//   threads N                       chains that run at once
//   front | chain | back            what follows: before all chains; a chain; after all of them
//   stage GAP_SECONDS WORD...       a tool to run, so long after the one before it
//   end GAP_SECONDS                 the driver's last work
// Where a tool dies, no other is started, those that run are waited for, and the exit code is 255.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack it
#endif

extern char** environ;

static const char* g_name = "actor";

static void Fail(const char* what, const char* about) {
  // No stdio: its buffers are memory as well.
  char line[512];
  const int size =
      snprintf(line, sizeof line, "%s: %s%s%s\n", g_name, what, *about ? ": " : "", about);
  if (size > 0) (void)!write(STDERR_FILENO, line, (size_t)size);
  _exit(2);
}

static double Now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct timespec ToTimespec(double seconds) {
  struct timespec t;
  if (seconds < 0) seconds = 0;
  t.tv_sec = (time_t)seconds;
  t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
  return t;
}

// --- A tool -------------------------------------------------------------------------------------

enum { kPage = 4096, kMostPoints = 64 };
// Memory moves in steps of so much: at 1:32 a hundred compilers that grow at full speed then wake
// up 1,600 times a second, all together.
static const size_t kStepBytes = (size_t)1 << 20;
// A stop is noticed at its end, by SIGCONT: what the clock says of it and up to so much before it
// is not counted.
static const double kLongestSleep = 0.05;

static volatile sig_atomic_t g_continued = 0;
static void OnContinued(int number) {
  (void)number;
  g_continued = 1;
}

static char* g_memory = NULL;
static size_t g_size = 0;

static void Resize(double bytes) {
  const size_t size = (size_t)bytes & ~(size_t)(kPage - 1);
  if (size > g_size) {
    if (madvise(g_memory + g_size, size - g_size, MADV_POPULATE_WRITE) != 0) {
      for (size_t at = g_size; at < size; at += kPage) g_memory[at] = 1;
    }
  } else if (size < g_size) {
    madvise(g_memory + size, g_size - size, MADV_DONTNEED);
  }
  g_size = size;
}

static int ActTool(const char* curve) {
  double seconds[kMostPoints];
  double bytes[kMostPoints];
  int count = 0;
  double peak = 0;
  for (const char* at = curve; *at != '\0';) {
    if (count == kMostPoints) Fail("a curve of too many points", curve);
    char* end = NULL;
    seconds[count] = strtod(at, &end);
    if (end == at || *end != ':') Fail("bad curve, want SECONDS:BYTES,...", curve);
    at = end + 1;
    bytes[count] = strtod(at, &end);
    if (end == at || (*end != ',' && *end != '\0'))
      Fail("bad curve, want SECONDS:BYTES,...", curve);
    at = *end == ',' ? end + 1 : end;
    if (bytes[count] > peak) peak = bytes[count];
    ++count;
  }
  const size_t capacity = ((size_t)peak + kPage) & ~(size_t)(kPage - 1);
  g_memory = mmap(NULL, capacity, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (g_memory == MAP_FAILED) Fail("cannot map memory", strerror(errno));
  // Huge pages would let memory run ahead of the curve, by 64 MB at 1:32.
  madvise(g_memory, capacity, MADV_NOHUGEPAGE);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = OnContinued;
  sigaction(SIGCONT, &action, NULL);

  double progress = 0;
  double last = Now();
  for (int i = 0; i < count; ++i) {
    const double from = i == 0 ? 0 : seconds[i - 1];
    const double start = i == 0 ? bytes[0] : bytes[i - 1];
    const double length = seconds[i] - from;
    const double rate = length > 0 ? (bytes[i] - start) / length : 0;
    while (progress < seconds[i]) {
      double sleep = seconds[i] - progress;
      const double step =
          rate == 0 ? kLongestSleep : (double)kStepBytes / (rate < 0 ? -rate : rate);
      if (sleep > step) sleep = step;
      if (sleep > kLongestSleep) sleep = kLongestSleep;
      const struct timespec t = ToTimespec(sleep);
      nanosleep(&t, NULL);
      const double now = Now();
      if (g_continued) {
        g_continued = 0;
      } else {
        progress += now - last;
      }
      last = now;
      const double at = progress < seconds[i] ? progress : seconds[i];
      const double want = start + rate * (at - from);
      if (want >= (double)(g_size + kStepBytes) || want + (double)kStepBytes <= (double)g_size)
        Resize(want);
    }
    Resize(bytes[i]);
  }
  return 0;
}

// --- A driver -----------------------------------------------------------------------------------

enum { kMostStages = 64, kMostChains = 64, kMostWords = 32 };

struct Stage {
  double gap;
  char* words;  // separated by single spaces
};
struct Chain {
  int first, end;  // of g_stages
  int next;
  double due;  // when the next stage starts; < 0: one runs
  pid_t pid;
};

static struct Stage g_stages[kMostStages];
static int g_stage_count = 0;
static int g_failed = 0;

static pid_t Start(char* words) {
  char* argv[kMostWords + 1];
  int count = 0;
  for (char* word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
    if (count == kMostWords) Fail("too many words for a stage", "");
    argv[count++] = word;
  }
  argv[count] = NULL;
  // As it was before main() blocked SIGCHLD.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], NULL, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) Fail(argv[0], strerror(error));
  return pid;
}

// Runs chains, at most `threads` at once, in order.
static void RunChains(struct Chain* chains, int count, int threads) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  int begun = 0;
  int live = 0;
  while (live > 0 || (begun < count && !g_failed)) {
    for (; begun < count && live < threads && !g_failed; ++begun, ++live) {
      chains[begun].next = chains[begun].first;
      chains[begun].due = Now() + g_stages[chains[begun].first].gap;
    }
    double wait = 3600;
    for (int i = 0; i < begun; ++i) {
      struct Chain* chain = &chains[i];
      if (chain->next < 0 || chain->due < 0) continue;
      const double left = chain->due - Now();
      if (left > 0) {
        if (left < wait) wait = left;
      } else if (g_failed) {
        chain->next = -1;
        --live;
        wait = 0;
      } else {
        chain->pid = Start(g_stages[chain->next].words);
        chain->due = -1;
      }
    }
    if (wait > 0 && live > 0) {
      const struct timespec t = ToTimespec(wait);
      sigtimedwait(&child, NULL, &t);
    }
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      for (int i = 0; i < begun; ++i) {
        struct Chain* chain = &chains[i];
        if (chain->next < 0 || chain->due >= 0 || chain->pid != pid) continue;
        if (status != 0) g_failed = 1;
        if (++chain->next == chain->end || g_failed) {
          chain->next = -1;
          --live;
        } else {
          chain->due = Now() + g_stages[chain->next].gap;
        }
      }
    }
  }
}

static int ActDriver(const char* out) {
  char path[4096];
  if (snprintf(path, sizeof path, "%s.plan", out) >= (int)sizeof path) Fail("too long a name", out);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) Fail("cannot read a plan", path);
  // A plan is some KB; one large enough to matter would be memory that no driver has.
  static char text[64 << 10];
  size_t size = 0;
  for (ssize_t n; (n = read(fd, text + size, sizeof text - 1 - size)) > 0;) size += (size_t)n;
  close(fd);
  if (size == sizeof text - 1) Fail("too large a plan", path);

  static struct Chain chains[kMostChains];
  struct Chain front = {0, 0, 0, 0, 0};
  struct Chain back = {0, 0, 0, 0, 0};
  int chain_count = 0;
  int threads = 1;
  double end_gap = 0;
  struct Chain* part = NULL;
  char* rest = NULL;
  for (char* line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    if (strncmp(line, "threads ", 8) == 0) {
      threads = atoi(line + 8);
    } else if (strcmp(line, "front") == 0) {
      part = &front;
      part->first = g_stage_count;
    } else if (strcmp(line, "back") == 0) {
      part = &back;
      part->first = g_stage_count;
    } else if (strcmp(line, "chain") == 0) {
      if (chain_count == kMostChains) Fail("too many chains", path);
      part = &chains[chain_count++];
      part->first = g_stage_count;
    } else if (strncmp(line, "stage ", 6) == 0 && part != NULL) {
      if (g_stage_count == kMostStages) Fail("too many stages", path);
      struct Stage* stage = &g_stages[g_stage_count++];
      stage->gap = strtod(line + 6, &stage->words);
      ++stage->words;
      part->end = g_stage_count;
    } else if (strncmp(line, "end ", 4) == 0) {
      end_gap = strtod(line + 4, NULL);
    } else {
      Fail("bad line in a plan", line);
    }
  }
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, NULL);
  if (front.end > front.first) RunChains(&front, 1, 1);
  if (!g_failed) RunChains(chains, chain_count, threads < 1 ? 1 : threads);
  if (!g_failed && back.end > back.first) RunChains(&back, 1, 1);
  if (g_failed) return 255;
  const struct timespec t = ToTimespec(end_gap);
  nanosleep(&t, NULL);
  const int made = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (made < 0) Fail("cannot create", out);
  close(made);
  return 0;
}

int main(int argc, char** argv) {
  const char* slash = strrchr(argv[0], '/');
  g_name = slash == NULL ? argv[0] : slash + 1;
  if (strcmp(g_name, "nvcc") == 0 || strcmp(g_name, "c++") == 0) {
    for (int i = 1; i + 1 < argc; ++i) {
      if (strcmp(argv[i], "-o") == 0) return ActDriver(argv[i + 1]);
    }
    Fail("a driver needs -o OUT", "");
  }
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], "curve:", 6) == 0) return ActTool(argv[i] + 6);
  }
  Fail("a tool needs a curve: word", "");
}
