// The kernel, without a C library: the preload library must load under any libc (or none that it
// knows), so it asks the kernel itself. Everything that differs between processors is in this file.
//
// Every call returns what the kernel returns: a negative errno value is an error. Calls that the
// kernel has in two widths on 32-bit systems are wrapped so that callers see 64-bit values.
//
// Oldest kernel supported: 3.10 (CentOS 7). Calls that are newer than that say what happens without
// them. Sources: the kernel's syscall tables, syscall(2), and each call's man page.
#ifndef HEADROOM_CLIENT_PRELOAD_SYSCALLS_H_
#define HEADROOM_CLIENT_PRELOAD_SYSCALLS_H_

#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/futex.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/wait.h>
#include <stddef.h>
#include <stdint.h>

namespace headroom::preload::sys {

using Word = long;  // What a register holds and a system call returns.

#if defined(__x86_64__)
inline Word Call(Word n, Word a = 0, Word b = 0, Word c = 0, Word d = 0, Word e = 0, Word f = 0) {
  Word result;
  register Word r10 __asm__("r10") = d;
  register Word r8 __asm__("r8") = e;
  register Word r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
#elif defined(__i386__)
// Five arguments at most: the sixth would need ebp, which the compiler may use as frame pointer.
inline Word Call(Word n, Word a = 0, Word b = 0, Word c = 0, Word d = 0, Word e = 0) {
  Word result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(n), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
                   : "memory");
  return result;
}
#elif defined(__aarch64__)
inline Word Call(Word n, Word a = 0, Word b = 0, Word c = 0, Word d = 0, Word e = 0, Word f = 0) {
  register Word x8 __asm__("x8") = n;
  register Word x0 __asm__("x0") = a;
  register Word x1 __asm__("x1") = b;
  register Word x2 __asm__("x2") = c;
  register Word x3 __asm__("x3") = d;
  register Word x4 __asm__("x4") = e;
  register Word x5 __asm__("x5") = f;
  __asm__ volatile("svc 0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return x0;
}
#else
#error "no system calls for this processor: add them here"
#endif

template <typename T>
Word Pointer(T* pointer) {
  return reinterpret_cast<Word>(pointer);
}

// --- Files --------------------------------------------------------------------------------------

inline int Open(const char* path, int flags, unsigned mode = 0) {
  return static_cast<int>(
      Call(__NR_openat, AT_FDCWD, Pointer(path), flags, static_cast<Word>(mode)));
}
inline int Close(int fd) {
  return static_cast<int>(Call(__NR_close, fd));
}
inline Word Read(int fd, void* data, size_t size) {
  return Call(__NR_read, fd, Pointer(data), static_cast<Word>(size));
}
inline Word Write(int fd, const void* data, size_t size) {
  return Call(__NR_write, fd, Pointer(data), static_cast<Word>(size));
}
inline Word ReadLink(const char* path, char* data, size_t size) {
  return Call(__NR_readlinkat, AT_FDCWD, Pointer(path), Pointer(data), static_cast<Word>(size));
}
inline Word GetCwd(char* data, size_t size) {
  return Call(__NR_getcwd, Pointer(data), static_cast<Word>(size));
}
inline Word GetDents(int fd, void* data, size_t size) {
  return Call(__NR_getdents64, fd, Pointer(data), static_cast<Word>(size));
}
inline Word MakeDirectory(const char* path, unsigned mode) {
  return Call(__NR_mkdirat, AT_FDCWD, Pointer(path), static_cast<Word>(mode));
}
inline Word Fcntl(int fd, int command, Word argument = 0) {
  return Call(__NR_fcntl, fd, command, argument);
}
inline Word Truncate(int fd) {
  return Call(__NR_ftruncate, fd, 0);
}

inline constexpr int kLockShared = 1;
inline constexpr int kLockExclusive = 2;
inline constexpr int kLockNonBlocking = 4;
inline constexpr int kUnlock = 8;
inline Word Flock(int fd, int operation) {
  return Call(__NR_flock, fd, operation);
}

// Offset from the start of the file, or a negative errno (-ESPIPE on a pipe).
inline int64_t Seek(int fd, int64_t offset, int whence) {
#if defined(__i386__)
  int64_t result = 0;
  const Word status = Call(__NR__llseek, fd, static_cast<Word>(offset >> 32),
                           static_cast<Word>(offset), Pointer(&result), whence);
  return status < 0 ? status : result;
#else
  return Call(__NR_lseek, fd, static_cast<Word>(offset), whence);
#endif
}

// What this library wants to know of a file.
struct FileInfo {
  uint32_t mode = 0;    // st_mode, with the type
  uint64_t size = 0;    // bytes
  uint64_t device = 0;  // st_dev
  uint64_t inode = 0;
  uint64_t special = 0;  // st_rdev
};

#if defined(__i386__)
using KernelStat = struct ::stat64;
inline constexpr Word kFstat = __NR_fstat64;
inline constexpr Word kFstatat = __NR_fstatat64;
#else
using KernelStat = struct ::stat;
inline constexpr Word kFstat = __NR_fstat;
inline constexpr Word kFstatat = __NR_newfstatat;
#endif
inline FileInfo Convert(const KernelStat& from) {
  FileInfo info;
  info.mode = from.st_mode;
  info.size = static_cast<uint64_t>(from.st_size);
  info.device = from.st_dev;
  info.inode = from.st_ino;
  info.special = from.st_rdev;
  return info;
}
inline Word StatDescriptor(int fd, FileInfo* info) {
  KernelStat from = {};
  const Word status = Call(kFstat, fd, Pointer(&from));
  if (status == 0) *info = Convert(from);
  return status;
}
// Follows links.
inline Word StatPath(const char* path, FileInfo* info) {
  KernelStat from = {};
  const Word status = Call(kFstatat, AT_FDCWD, Pointer(path), Pointer(&from), 0);
  if (status == 0) *info = Convert(from);
  return status;
}

inline constexpr uint32_t kTypeMask = 0170000;
inline constexpr uint32_t kTypeFifo = 0010000;
inline constexpr uint32_t kTypeCharacter = 0020000;
inline constexpr uint32_t kTypeDirectory = 0040000;
inline constexpr uint32_t kTypeRegular = 0100000;
inline constexpr uint32_t kTypeSocket = 0140000;

// --- Memory -------------------------------------------------------------------------------------

inline constexpr int kProtRead = 1;
inline constexpr int kProtWrite = 2;
inline constexpr int kMapShared = 1;
inline constexpr int kMapPrivate = 2;
inline constexpr int kMapAnonymous = 0x20;
inline constexpr int kMapNoReserve = 0x4000;

// nullptr on failure.
inline void* Map(size_t size, int protection, int flags, int fd = -1) {
#if defined(__i386__)
  // The old call: its arguments are in memory, so the sixth needs no register.
  struct {
    unsigned long address, size, protection, flags, fd, offset;
  } arguments = {0,
                 size,
                 static_cast<unsigned long>(protection),
                 static_cast<unsigned long>(flags),
                 static_cast<unsigned long>(fd),
                 0};
  const Word result = Call(__NR_mmap, Pointer(&arguments));
#else
  const Word result =
      Call(__NR_mmap, 0, static_cast<Word>(size), protection, flags, static_cast<Word>(fd), 0);
#endif
  return result < 0 && result > -4096 ? nullptr : reinterpret_cast<void*>(result);
}
inline void Unmap(void* address, size_t size) {
  Call(__NR_munmap, Pointer(address), static_cast<Word>(size));
}

// --- Processes ----------------------------------------------------------------------------------

#if defined(__i386__)  // The plain ones are 16 bits wide.
inline constexpr Word kGetUid = __NR_getuid32, kGetEffectiveUid = __NR_geteuid32,
                      kGetGid = __NR_getgid32, kGetEffectiveGid = __NR_getegid32;
#else
inline constexpr Word kGetUid = __NR_getuid, kGetEffectiveUid = __NR_geteuid, kGetGid = __NR_getgid,
                      kGetEffectiveGid = __NR_getegid;
#endif

inline int GetPid() {
  return static_cast<int>(Call(__NR_getpid));
}
inline int GetTid() {
  return static_cast<int>(Call(__NR_gettid));
}
inline int GetParentPid() {
  return static_cast<int>(Call(__NR_getppid));
}
inline Word Kill(int pid, int signal) {
  return Call(__NR_kill, pid, signal);
}
inline Word Prctl(int option, Word argument = 0) {
  return Call(__NR_prctl, option, argument, 0, 0, 0);
}
[[noreturn]] inline void Exit(int code) {
  for (;;) Call(__NR_exit_group, code);
}

inline constexpr Word kCloneChildClearTid = 0x00200000;
inline constexpr Word kCloneChildSetTid = 0x01000000;
// fork(), and the kernel writes the child's id to *tid in the child and clears it when that ends:
// what a C library's own fork() asks for. tid may be null.
inline int Clone(Word flags, int* tid) {
#if defined(__x86_64__)
  return static_cast<int>(Call(__NR_clone, flags, 0, 0, Pointer(tid), 0));
#else  // Here the thread pointer comes before the child's id.
  return static_cast<int>(Call(__NR_clone, flags, 0, 0, 0, Pointer(tid)));
#endif
}

// options: WNOHANG and so on, of <linux/wait.h>.
inline int Wait(int pid, int* status, int options, struct rusage* usage) {
  return static_cast<int>(Call(__NR_wait4, pid, Pointer(status), options, Pointer(usage)));
}

// The same. Options that don't exist: nothing is reaped.
inline bool CanWait() {
  constexpr int kNoSuchOption = 0x00800000;
  return Call(__NR_wait4, -1, 0, kNoSuchOption, 0) == -EINVAL;
}

struct Limit {
  uint64_t soft;
  uint64_t hard;
};
inline Word GetLimit(int resource, Limit* limit) {
  return Call(__NR_prlimit64, 0, resource, 0, Pointer(limit));
}
inline Word SetLimit(int resource, const Limit* limit) {
  return Call(__NR_prlimit64, 0, resource, Pointer(limit), 0);
}

// Number of processors that this process may run on, at least 1. A mask of 8192 is the largest that
// a kernel is built for.
inline unsigned CountProcessors() {
  unsigned long mask[8192 / 8 / sizeof(unsigned long)] = {};
  const Word bytes = Call(__NR_sched_getaffinity, 0, sizeof(mask), Pointer(mask));
  unsigned count = 0;
  for (Word i = 0; i < bytes / static_cast<Word>(sizeof(unsigned long)); ++i) {
    for (unsigned long rest = mask[i]; rest != 0; rest &= rest - 1) ++count;
  }
  return count == 0 ? 1 : count;
}

// --- Signals ------------------------------------------------------------------------------------

inline constexpr int kSigHup = 1, kSigInt = 2, kSigQuit = 3, kSigKill = 9, kSigPipe = 13,
                     kSigTerm = 15, kSigChild = 17, kSigCont = 18, kSigStop = 19, kSigTstp = 20,
                     kSigTtin = 21, kSigTtou = 22, kSigWinch = 28;

// Signal s is bit s - 1.
using SignalSet = uint64_t;
inline constexpr SignalSet kAllSignals = ~SignalSet{0};
inline constexpr SignalSet Bit(int signal) {
  return SignalSet{1} << (signal - 1);
}

inline SignalSet SetMask(SignalSet set) {
  SignalSet old = 0;
  constexpr int kSetMask = 2;  // SIG_SETMASK
  Call(__NR_rt_sigprocmask, kSetMask, Pointer(&set), Pointer(&old), sizeof(set));
  return old;
}
// Whether the kernel lets us, as a filter (seccomp) may not.
inline bool CanSetMask() {
  return Call(__NR_rt_sigprocmask, 0, 0, 0, sizeof(SignalSet)) >= 0;
}
inline SignalSet Pending() {
  SignalSet set = 0;
  Call(__NR_rt_sigpending, Pointer(&set), sizeof(set));
  return set;
}

// As the kernel has it on these processors: handler, flags, restorer, mask. We only save one and
// put it back, or set the default action (all zero).
struct Action {
  unsigned long handler = 0;
  unsigned long flags = 0;
  unsigned long restorer = 0;
  SignalSet mask = 0;
};
inline Word SetAction(int signal, const Action* action, Action* old) {
  return Call(__NR_rt_sigaction, signal, Pointer(action), Pointer(old), sizeof(SignalSet));
}

struct SignalInfo {  // struct signalfd_siginfo: 128 bytes, the first fields are all we read.
  uint32_t signal;
  int32_t error;
  int32_t code;
  uint32_t pid;
  uint8_t rest[112];
};
static_assert(sizeof(SignalInfo) == 128);
inline constexpr int kCodeKernel = 0x80;  // SI_KERNEL: a terminal's driver, a timer.
inline int SignalDescriptor(SignalSet set) {
  return static_cast<int>(
      Call(__NR_signalfd4, -1, Pointer(&set), sizeof(set), O_CLOEXEC | O_NONBLOCK));
}

// --- Time ---------------------------------------------------------------------------------------

struct Time {  // The kernel's old timespec: as wide as a register.
  long seconds;
  long nanoseconds;
};
// Nanoseconds since boot, without time asleep.
inline uint64_t Now() {
  Time time = {};
  constexpr int kMonotonic = 1;
  Call(__NR_clock_gettime, kMonotonic, Pointer(&time));
  return static_cast<uint64_t>(time.seconds) * 1'000'000'000u +
         static_cast<uint64_t>(time.nanoseconds);
}

// Interrupted by a signal: -EINTR. Milliseconds; negative: for ever.
inline Word Poll(struct pollfd* descriptors, unsigned count, int milliseconds) {
  Time time = {milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  return Call(__NR_ppoll, Pointer(descriptors), static_cast<Word>(count),
              milliseconds < 0 ? 0 : Pointer(&time), 0, sizeof(SignalSet));
}

// --- Waiting on memory, for a process that has no descriptor to spare ----------------------------

inline void FutexWait(uint32_t* word, uint32_t value) {
  Call(__NR_futex, Pointer(word), FUTEX_WAIT, static_cast<Word>(value), 0);
}
inline void FutexWake(uint32_t* word) {
  Call(__NR_futex, Pointer(word), FUTEX_WAKE, 1, 0);
}

// --- Sockets ------------------------------------------------------------------------------------

inline constexpr int kFamilyUnix = 1;
inline constexpr int kSequencedPackets = 5;  // SOCK_SEQPACKET
inline constexpr int kNoSignal = 0x4000;     // MSG_NOSIGNAL
inline constexpr int kDontWait = 0x40;       // MSG_DONTWAIT
struct Address {
  uint16_t family = kFamilyUnix;
  char path[108] = {};
};

#if defined(__i386__)
// One call for all: the direct ones are newer (4.3) than the oldest kernel we support.
inline Word SocketCall(int what, Word a, Word b, Word c, Word d = 0) {
  Word arguments[6] = {a, b, c, d, 0, 0};
  return Call(__NR_socketcall, what, Pointer(arguments));
}
inline int Socket() {
  return static_cast<int>(
      SocketCall(1, kFamilyUnix, kSequencedPackets | O_CLOEXEC | O_NONBLOCK, 0));
}
inline Word Connect(int fd, const Address* address) {
  return SocketCall(3, fd, Pointer(address), sizeof(*address));
}
inline Word Send(int fd, const void* data, size_t size) {
  return SocketCall(9, fd, Pointer(data), static_cast<Word>(size), kNoSignal | kDontWait);
}
inline Word Receive(int fd, void* data, size_t size) {
  return SocketCall(10, fd, Pointer(data), static_cast<Word>(size), kDontWait);
}
#else
inline int Socket() {
  return static_cast<int>(
      Call(__NR_socket, kFamilyUnix, kSequencedPackets | O_CLOEXEC | O_NONBLOCK, 0));
}
inline Word Connect(int fd, const Address* address) {
  return Call(__NR_connect, fd, Pointer(address), sizeof(*address));
}
inline Word Send(int fd, const void* data, size_t size) {
  return Call(__NR_sendto, fd, Pointer(data), static_cast<Word>(size), kNoSignal | kDontWait, 0, 0);
}
inline Word Receive(int fd, void* data, size_t size) {
  return Call(__NR_recvfrom, fd, Pointer(data), static_cast<Word>(size), kDontWait, 0, 0);
}
#endif

}  // namespace headroom::preload::sys

#endif  // HEADROOM_CLIENT_PRELOAD_SYSCALLS_H_
