// The constructor: what every process of a build runs before its main(). In one that is none of our
// business it looks through its environment and reads one link.
//
// It must not rely on its place among the other constructors: the C library may not have run its
// own yet.
#include "client/preload/adapter.h"
#include "client/preload/environment.h"
#include "client/preload/keeper.h"
#include "client/preload/syscalls.h"
#include "client/preload/tools.h"

// The C library's. Weak and without a version: absent is fine. The function exists in glibc only.
extern "C" __attribute__((weak)) char** environ;
extern "C" __attribute__((weak)) const char* gnu_get_libc_version();

namespace headroom::preload {
namespace {

// What the kernel put behind the environment, as far as we want it.
struct Auxiliary {
  bool secure = false;         // set-user-ID or the like
  const char* path = nullptr;  // what was executed, as written
};

Auxiliary ReadAuxiliary(char** environment) {
  Auxiliary result;
  // Only behind the kernel's own array, which is on the stack above us; a constructor before this
  // one may have put another in its place.
  char here = 0;
  constexpr uintptr_t kLargestStart = 64u << 20;
  if (reinterpret_cast<uintptr_t>(environment) - reinterpret_cast<uintptr_t>(&here) >
      kLargestStart) {
    result.secure = sys::Call(sys::kGetUid) != sys::Call(sys::kGetEffectiveUid) ||
                    sys::Call(sys::kGetGid) != sys::Call(sys::kGetEffectiveGid);
    return result;
  }
  while (*environment != nullptr) ++environment;
  struct Entry {
    unsigned long type;
    unsigned long value;
  };
  constexpr unsigned long kPath = 31;    // AT_EXECFN
  constexpr unsigned long kSecure = 23;  // AT_SECURE
  const Entry* entry = reinterpret_cast<const Entry*>(environment + 1);
  for (; entry->type != 0; ++entry) {
    if (entry->type == kSecure) result.secure = entry->value != 0;
    if (entry->type == kPath) result.path = reinterpret_cast<const char*>(entry->value);
  }
  return result;
}

// Was the program started by the name of a tool that links to it? (A script of that name doesn't
// count: the program is then its interpreter.)
bool IsProgram(const char* path) {
  sys::FileInfo named;
  sys::FileInfo running;
  return sys::StatPath(path, &named) == 0 && sys::StatPath("/proc/self/exe", &running) == 0 &&
         named.device == running.device && named.inode == running.inode;
}

// `original`: the array that main() gets; `current`: the one that getenv() looks at. Mostly the
// same.
void Start(char** original, char** current) {
  const Environment environment = ReadEnvironment(original);
  if (environment.empty()) return;
  char text[1024];
  const sys::Word size = sys::ReadLink("/proc/self/exe", text, sizeof(text));
  if (size <= 0) return;
  const View program = BaseName(View(text, static_cast<size_t>(size)));

  const Client client = environment.makeflags == nullptr ? Client::kNone : ClientByName(program);
  if (client != Client::kNone) {
    char* const before = *environment.makeflags;
    Adapt(client, environment.makeflags);
    if (current != original) {
      const Environment other = ReadEnvironment(current);
      if (other.makeflags != nullptr && Equal(*other.makeflags, before)) {
        *other.makeflags = *environment.makeflags;
      }
    }
    return;
  }
  if (environment.lane.empty() || Equal(environment.gate, "0")) return;
  const Auxiliary auxiliary = ReadAuxiliary(original);
  if (auxiliary.secure) return;
  Tool tool;
  if (FindTool(program, environment.tools, &tool) ||
      (auxiliary.path != nullptr &&
       FindTool(BaseName(View(auxiliary.path)), environment.tools, &tool) &&
       IsProgram(auxiliary.path))) {
    PassGate(environment, tool);
  }
}

// glibc passes these three to constructors. musl passes nothing, so they are rubbish there, but it
// has set `environ` by now, which glibc may not have.
__attribute__((constructor)) void Construct(int, char**, char** passed) {
  char** const current = &environ == nullptr ? nullptr : environ;
  char** const original = &gnu_get_libc_version != nullptr ? passed : current;
  if (original != nullptr) Start(original, current == nullptr ? original : current);
}

}  // namespace
}  // namespace headroom::preload
