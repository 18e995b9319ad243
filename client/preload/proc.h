// What the library reads under /proc and /sys. Parse... are pure; the others read the calling
// process's own view and give up quietly: a file that is missing or strange is a normal result.
#ifndef HEADROOM_CLIENT_PRELOAD_PROC_H_
#define HEADROOM_CLIENT_PRELOAD_PROC_H_

#include "client/preload/text.h"

namespace headroom::preload {

// Reads at most capacity - 1 bytes from the start of a file and ends them with NUL. Empty on error.
View ReadFile(const char* path, char* data, size_t capacity);

// Of /proc/self/status. `known` is false where a field is missing.
struct Status {
  bool known = false;
  int tracer = 0;
  uint64_t threads = 0;
};
Status ParseStatus(View text);

// Of /proc/PID/stat. The name may hold blanks and parentheses: fields count from the last ')'.
struct Stat {
  bool known = false;
  char state = '?';
  int parent = 0;
  uint64_t start = 0;  // clock ticks since boot
};
Stat ParseStat(View text);
Stat ReadStat(int pid);

// Is the process's name this one? False where it can't be read.
bool HasName(int pid, View name);
// Signals sent to the process or its only thread that it hasn't taken yet, as a set of bits.
uint64_t PendingSignals(int pid);
// Resident memory that is not file-backed or shared, bytes; 0 if the process is gone.
uint64_t AnonymousBytes(int pid);
// Is one of the ancestors named so? Looks at no more than 64 of them.
bool HasAncestor(View name);

// Calls see(context, number) for each entry of a folder whose name is a number: processes of /proc,
// descriptors of /proc/self/fd. `folder` is an open one; it stays open. False: it can't be read.
bool ForEachNumber(int folder, void (*see)(void* context, int number), void* context);

// Calls see(context, pid) for every descendant of this process that can be seen. Below a process
// that is named `barrier` (it has a keeper of its own) it doesn't look, nor at that process itself;
// empty: no barrier. Returns the number seen.
size_t ForEachDescendant(View barrier, void (*see)(void* context, int pid), void* context);

// The memory cgroup of this process.
struct MemoryCgroup {
  bool known = false;
  bool v2 = false;
  size_t top = 0;       // length of the part of `path` that is the mount point
  char path[512] = {};  // folder of the innermost one
};
// From the texts of /proc/self/cgroup and /proc/self/mountinfo.
MemoryCgroup ParseMemoryCgroup(View cgroup, View mounts);
MemoryCgroup FindMemoryCgroup();

// What the tightest of the host and the cgroups can still give, less a reserve of its own (design:
// max(3 %, min(7 %, 512 MiB)) of it), and the smallest limit of them. Bytes; 0 if unknown.
struct Memory {
  uint64_t available = 0;
  uint64_t limit = 0;
};
Memory ReadMemory(const MemoryCgroup& cgroup);

// The kernel's count of processes killed for memory: of the process's own cgroup, else of the host.
// False where the kernel has neither (before 4.13).
bool ReadOomKills(const MemoryCgroup& cgroup, uint64_t* count);

}  // namespace headroom::preload

#endif  // HEADROOM_CLIENT_PRELOAD_PROC_H_
