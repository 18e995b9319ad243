#include "client/preload/proc.h"

#include "client/preload/syscalls.h"

namespace headroom::preload {
namespace {

View ReadProcess(int pid, const char* name, char* data, size_t capacity) {
  char path[64];
  Writer(path, sizeof(path)) << "/proc/" << static_cast<uint64_t>(pid) << "/" << name;
  return ReadFile(path, data, capacity);
}

// Largest of /proc/PID/stat: a name of 64 bytes and 51 numbers.
constexpr size_t kStatSize = 1024;

// A cgroup's counter file in folder `path`; false if it's missing or says "max".
bool ReadCounter(View path, const char* name, uint64_t* value) {
  char file[640];
  char text[64];
  Writer(file, sizeof(file)) << path << "/" << name;
  const View content = ReadFile(file, text, sizeof(text));
  if (content.empty() || content[0] < '0' || content[0] > '9') return false;
  *value = ParseNumber(content);
  return true;
}

uint64_t Less(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

uint64_t Reserve(uint64_t limit) {
  const uint64_t percent = Divide(limit, 100).value;
  constexpr uint64_t kEnough = 512u << 20;
  const uint64_t seven = percent * 7 < kEnough ? percent * 7 : kEnough;
  return percent * 3 > seven ? percent * 3 : seven;
}

void Tighten(uint64_t limit, uint64_t available, Memory* memory) {
  const uint64_t rest = Less(available, Reserve(limit));
  if (memory->limit == 0 || limit < memory->limit) memory->limit = limit;
  if (rest < memory->available) memory->available = rest;
}

// Octal escapes as in mountinfo ("\040" is a blank); `to` holds `capacity` bytes.
View Unescape(View from, char* to, size_t capacity) {
  Writer writer(to, capacity);
  for (size_t i = 0; i < from.size; ++i) {
    char c = from[i];
    if (c == '\\' && i + 3 < from.size) {
      c = static_cast<char>((from[i + 1] - '0') * 64 + (from[i + 2] - '0') * 8 + from[i + 3] - '0');
      i += 3;
    }
    writer << View(&c, 1);
  }
  return writer.view();
}

// Is `word` one of a comma-separated list?
bool Listed(View list, View word) {
  View item;
  while (NextPart(&list, ',', &item)) {
    if (Equal(item, word)) return true;
  }
  return false;
}

}  // namespace

View ReadFile(const char* path, char* data, size_t capacity) {
  data[0] = '\0';
  const int fd = sys::Open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return View();
  size_t size = 0;
  while (size + 1 < capacity) {
    const sys::Word got = sys::Read(fd, data + size, capacity - 1 - size);
    if (got == -EINTR) continue;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  sys::Close(fd);
  data[size] = '\0';
  return View(data, size);
}

Status ParseStatus(View text) {
  Status status;
  uint64_t tracer = 0;
  status.known =
      LineNumber(text, "TracerPid:", &tracer) && LineNumber(text, "Threads:", &status.threads);
  status.tracer = static_cast<int>(tracer);
  return status;
}

Stat ParseStat(View text) {
  Stat stat;
  const size_t end = FindLast(text, ')');
  if (end == kNotFound) return stat;
  const View rest = text.From(end + 1);
  const View state = Field(rest, 0);
  const View start = Field(rest, 19);
  if (state.size != 1 || start.empty()) return stat;
  stat.known = true;
  stat.state = state[0];
  stat.parent = static_cast<int>(ParseNumber(Field(rest, 1)));
  stat.start = ParseNumber(start);
  return stat;
}

Stat ReadStat(int pid) {
  char text[kStatSize];
  return ParseStat(ReadProcess(pid, "stat", text, sizeof(text)));
}

bool HasName(int pid, View name) {
  char text[64];
  const View comm = ReadProcess(pid, "comm", text, sizeof(text));
  return comm.size == name.size + 1 && StartsWith(comm, name);
}

uint64_t PendingSignals(int pid) {
  char text[4096];
  View rest = ReadProcess(pid, "status", text, sizeof(text));
  uint64_t all = 0;
  View line;
  while (NextPart(&rest, '\n', &line)) {
    if (!StartsWith(line, "SigPnd:") && !StartsWith(line, "ShdPnd:")) continue;
    const View digits = Field(line, 1);
    uint64_t set = 0;
    for (size_t i = 0; i < digits.size; ++i) {
      const char c = digits[i];
      set = set << 4 | static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    all |= set;
  }
  return all;
}

uint64_t AnonymousBytes(int pid) {
  char text[256];
  const View statm = ReadProcess(pid, "statm", text, sizeof(text));
  constexpr uint64_t kPage = 4096;  // On a kernel with larger pages this errs to too little.
  return Less(ParseNumber(Field(statm, 1)), ParseNumber(Field(statm, 2))) * kPage;
}

bool HasAncestor(View name) {
  int pid = sys::GetParentPid();
  for (int i = 0; i < 64 && pid > 1; ++i) {
    if (HasName(pid, name)) return true;
    pid = ReadStat(pid).parent;
  }
  return false;
}

bool ForEachNumber(int folder, void (*see)(void* context, int number), void* context) {
  alignas(8) char entries[4096];
  for (;;) {
    const sys::Word size = sys::GetDents(folder, entries, sizeof(entries));
    if (size <= 0) return size == 0;
    for (sys::Word at = 0; at < size;) {
      // struct linux_dirent64: inode 8, offset 8, length 2, type 1, name.
      uint16_t length = 0;
      __builtin_memcpy(&length, entries + at + 16, sizeof(length));
      const View name(entries + at + 19);
      at += length;
      if (name[0] >= '0' && name[0] <= '9') see(context, static_cast<int>(ParseNumber(name)));
    }
  }
}

size_t ForEachDescendant(View barrier, void (*see)(void* context, int pid), void* context) {
  // All pairs of process and parent first, then the tree: it may change meanwhile, so callers
  // repeat until they see nothing new.
  struct Pair {
    int pid;
    int parent;
    bool ours;
  };
  struct Pairs {
    Pair* pairs;
    size_t count;
  };
  constexpr size_t kMost = 65536;  // Touched only as far as used.
  constexpr size_t kBytes = kMost * sizeof(Pair);
  Pair* pairs =
      static_cast<Pair*>(sys::Map(kBytes, sys::kProtRead | sys::kProtWrite,
                                  sys::kMapPrivate | sys::kMapAnonymous | sys::kMapNoReserve));
  if (pairs == nullptr) return 0;
  Pairs found = {pairs, 0};
  const int folder = sys::Open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ForEachNumber(
        folder,
        [](void* list, int pid) {
          Pairs* all = static_cast<Pairs*>(list);
          if (all->count == kMost) return;
          const Stat stat = ReadStat(pid);
          if (stat.known && stat.state != 'Z') {
            all->pairs[all->count++] = {pid, stat.parent, false};
          }
        },
        &found);
    sys::Close(folder);
  }
  const size_t count = found.count;
  const int self = sys::GetPid();
  size_t seen = 0;
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < count; ++i) {
      Pair& pair = pairs[i];
      if (pair.ours || pair.pid == self) continue;
      bool below = pair.parent == self;
      for (size_t j = 0; j < count && !below; ++j) {
        below = pairs[j].pid == pair.parent && pairs[j].ours;
      }
      if (!below) continue;
      if (!barrier.empty() && HasName(pair.pid, barrier)) {
        pair.parent = 0;  // Cut off here: nothing below it is reached.
        continue;
      }
      pair.ours = true;
      again = true;
      ++seen;
      see(context, pair.pid);
    }
  }
  sys::Unmap(pairs, kBytes);
  return seen;
}

MemoryCgroup ParseMemoryCgroup(View cgroup, View mounts) {
  MemoryCgroup result;
  // "4:memory:/path" is version 1, "0::/path" is version 2; where both exist, memory is with 1.
  View path;
  bool v2 = false;
  bool found = false;
  View line;
  while (NextPart(&cgroup, '\n', &line)) {
    const size_t first = Find(line, ':');
    if (first == kNotFound) continue;
    const View rest = line.From(first + 1);
    const size_t second = Find(rest, ':');
    if (second == kNotFound) continue;
    const View controllers = rest.Before(second);
    if (Listed(controllers, "memory")) {
      path = rest.From(second + 1);
      v2 = false;
      found = true;
      break;
    }
    if (controllers.empty()) {
      path = rest.From(second + 1);
      v2 = true;
      found = true;
    }
  }
  if (!found) return result;
  while (NextPart(&mounts, '\n', &line)) {
    // "36 35 98:0 /root /mount options ... - type source super-options"
    const size_t dash = Find(line, View(" - "));
    if (dash == kNotFound) continue;
    const View tail = line.From(dash + 3);
    const View type = Field(tail, 0);
    if (v2 ? !Equal(type, "cgroup2")
           : !(Equal(type, "cgroup") && Listed(Field(tail, 2), "memory"))) {
      continue;
    }
    char root_text[512];
    char mount_text[512];
    const View root = Unescape(Field(line, 3), root_text, sizeof(root_text));
    const View mount = Unescape(Field(line, 4), mount_text, sizeof(mount_text));
    Writer writer(result.path, sizeof(result.path));
    writer << mount;
    result.top = writer.size();
    // The mount shows the tree from `root` on. A path outside it (the mount came from elsewhere):
    // the mount point itself is the nearest that can be seen.
    if (Equal(root, "/")) {
      if (!Equal(path, "/")) writer << path;
    } else if (StartsWith(path, root) && (path.size == root.size || path[root.size] == '/')) {
      writer << path.From(root.size);
    }
    if (writer.cut()) return MemoryCgroup();
    result.known = true;
    result.v2 = v2;
    return result;
  }
  return result;
}

MemoryCgroup FindMemoryCgroup() {
  constexpr size_t kSize = 256 * 1024;  // mountinfo of a busy container host; touched as used.
  char* text =
      static_cast<char*>(sys::Map(kSize, sys::kProtRead | sys::kProtWrite,
                                  sys::kMapPrivate | sys::kMapAnonymous | sys::kMapNoReserve));
  if (text == nullptr) return MemoryCgroup();
  constexpr size_t kCgroupSize = 8 * 1024;
  const View cgroup = ReadFile("/proc/self/cgroup", text, kCgroupSize);
  const View mounts = ReadFile("/proc/self/mountinfo", text + kCgroupSize, kSize - kCgroupSize);
  const MemoryCgroup result = ParseMemoryCgroup(cgroup, mounts);
  sys::Unmap(text, kSize);
  return result;
}

Memory ReadMemory(const MemoryCgroup& cgroup) {
  Memory memory;
  char text[8192];
  uint64_t total = 0;
  uint64_t available = 0;
  const View host = ReadFile("/proc/meminfo", text, sizeof(text));
  memory.available = ~uint64_t{0};
  if (LineNumber(host, "MemTotal:", &total) && LineNumber(host, "MemAvailable:", &available)) {
    Tighten(total * 1024, available * 1024, &memory);
  }
  if (cgroup.known) {
    View path(cgroup.path);
    for (;;) {
      uint64_t limit = 0;
      uint64_t used = 0;
      if (ReadCounter(path, cgroup.v2 ? "memory.max" : "memory.limit_in_bytes", &limit) &&
          ReadCounter(path, cgroup.v2 ? "memory.current" : "memory.usage_in_bytes", &used) &&
          limit < (uint64_t{1} << 60)) {  // Version 1 says "no limit" with a huge number.
        char file[640];
        Writer(file, sizeof(file)) << path << "/memory.stat";
        const View stat = ReadFile(file, text, sizeof(text));
        uint64_t inactive = 0;
        uint64_t active = 0;
        LineNumber(stat, cgroup.v2 ? "inactive_file " : "total_inactive_file ", &inactive);
        LineNumber(stat, cgroup.v2 ? "active_file " : "total_active_file ", &active);
        Tighten(limit, Less(limit, used) + inactive + active, &memory);
      }
      if (path.size <= cgroup.top) break;
      path = path.Before(FindLast(path, '/'));
    }
  }
  if (memory.limit == 0) memory.available = 0;
  return memory;
}

bool ReadOomKills(const MemoryCgroup& cgroup, uint64_t* count) {
  char file[640];
  char text[16384];
  if (cgroup.known) {
    Writer(file, sizeof(file)) << cgroup.path
                               << (cgroup.v2 ? "/memory.events" : "/memory.oom_control");
    if (LineNumber(ReadFile(file, text, sizeof(text)), "oom_kill ", count)) return true;
  }
  return LineNumber(ReadFile("/proc/vmstat", text, sizeof(text)), "oom_kill ", count);
}

}  // namespace headroom::preload
