#include "client/preload/slots.h"

#include "client/preload/proc.h"
#include "client/preload/syscalls.h"
#include "proto/headroom/v1/gate_wire.h"

namespace headroom::preload {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
// Slots are looked at in order and files are never removed, so this bounds a broken folder only.
constexpr unsigned kMostSlots = 4096;
// A nested tool that finds the door shut goes anyway after this: the door's holder may wait for the
// very slot that the tool's ancestor holds.
constexpr uint64_t kNestedPatience = 500 * kMillisecond;
// Silence is believed for so long; then one process tries in full again.
constexpr uint64_t kSilenceAge = uint64_t{30'000} * kMillisecond;
// How long the door stays shut after someone went: between these, by the share of the free memory
// that it is going to take. A process that takes all of it shows its first growth in that time; one
// that takes a thousandth must not hold up a build of small files.
constexpr uint32_t kShortestPaceMs = 2;
constexpr uint32_t kLongestPaceMs = 500;

uint32_t PaceMs(uint64_t need, uint64_t available) {
  if (available == 0 || need >= available) return kLongestPaceMs;
  // In permille; shifts first so that 32 bits hold the divisor.
  uint64_t small_need = need;
  uint64_t small_available = available;
  while (small_available >= (uint64_t{1} << 31)) {
    small_available >>= 1;
    small_need >>= 1;
  }
  const uint64_t permille = Divide(small_need * 1000, static_cast<uint32_t>(small_available)).value;
  const uint32_t pace = static_cast<uint32_t>(Divide(permille * 2 * kLongestPaceMs, 1000).value);
  if (pace < kShortestPaceMs) return kShortestPaceMs;
  return pace < kLongestPaceMs ? pace : kLongestPaceMs;
}

}  // namespace

uint32_t Jitter(uint32_t below) {
  if (below == 0) return 0;
  // splitmix64's finisher over time and process: near seeds give far values.
  uint64_t x = sys::Now() ^ (static_cast<uint64_t>(sys::GetPid()) << 40);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return Divide(x, below).rest;
}

void Slots::Open(View lane, unsigned cores) {
  lane_ = lane;
  cores_ = cores < kMostSlots ? cores : kMostSlots;
}

int Slots::OpenFile(View name, bool create) const {
  char path[1100];
  Writer writer(path, sizeof(path));
  writer << lane_ << "/" << gate::kGateSlotsName;
  if (create) sys::MakeDirectory(path, 0700);
  writer << "/" << name;
  if (writer.cut()) return -ENAMETOOLONG;
  return sys::Open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
}

bool Slots::TakeSlot(unsigned index) {
  char name[16];
  Writer(name, sizeof(name)) << uint64_t{index};
  const int fd = OpenFile(name, true);
  if (fd < 0) return false;
  if (sys::Flock(fd, sys::kLockExclusive | sys::kLockNonBlocking) != 0) {
    sys::Close(fd);
    return false;
  }
  slot_ = fd;
  return true;
}

bool Slots::TryEnter(uint64_t need, bool alone, bool nested, uint64_t now) {
  if (waiting_since_ == 0) waiting_since_ = now;
  if (door_ < 0) {
    const int fd = OpenFile("start", true);
    if (fd < 0) {
      // No folder to agree in (another user's, read-only, full): go, but not all at once.
      if (go_at_ == 0) go_at_ = now + uint64_t{Jitter(kLongestPaceMs)} * kMillisecond;
      return now >= go_at_;
    }
    if (sys::Flock(fd, sys::kLockExclusive | sys::kLockNonBlocking) != 0) {
      sys::Close(fd);
      return nested && now - waiting_since_ > kNestedPatience;
    }
    door_ = fd;
    door_until_ = 0;
  }
  unsigned taken = 0;
  unsigned lowest_free = kMostSlots;
  uint64_t growth = 0;
  for (unsigned i = 0; i < kMostSlots; ++i) {
    char name[16];
    Writer(name, sizeof(name)) << uint64_t{i};
    const int fd = OpenFile(name, false);
    if (fd < 0) {
      if (lowest_free == kMostSlots) lowest_free = i;
      break;
    }
    if (sys::Flock(fd, sys::kLockShared | sys::kLockNonBlocking) == 0) {
      if (lowest_free == kMostSlots) lowest_free = i;
    } else {
      ++taken;
      char text[64];
      const sys::Word size = sys::Read(fd, text, sizeof(text));
      if (size > 0) {
        const View line(text, static_cast<size_t>(size));
        const uint64_t peak = ParseNumber(Field(line, 0));
        const int pid = static_cast<int>(ParseNumber(Field(line, 1)));
        const uint64_t has = pid > 0 ? AnonymousBytes(pid) : 0;
        if (peak > has) growth += peak - has;
      }
    }
    sys::Close(fd);
  }
  uint64_t available = 0;
  if (taken > 0) {
    if (alone || (taken >= cores_ && !nested)) return false;
    const Memory memory = ReadMemory(FindMemoryCgroup());
    available = memory.available;
    const bool fits = memory.limit == 0 || available >= growth + need;
    if (!fits && !(nested && now - waiting_since_ > kNestedPatience)) return false;
  } else {
    available = ReadMemory(FindMemoryCgroup()).available;
  }
  if (lowest_free == kMostSlots || !TakeSlot(lowest_free)) return false;
  SetWorker(need, 0);
  if (!alone) {
    const uint32_t pace = PaceMs(need, available);
    door_until_ = now + uint64_t{pace + Jitter(pace)} * kMillisecond;
  }
  waiting_since_ = 0;
  return true;
}

void Slots::Enter(uint64_t need) {
  for (unsigned i = 0; slot_ < 0 && i < kMostSlots; ++i) {
    if (TakeSlot(i)) break;
    if (i > 0) continue;
    const int fd = OpenFile("0", true);  // Not there at all: don't try each one.
    if (fd < 0) return;
    sys::Close(fd);
  }
  SetWorker(need, 0);
}

void Slots::SetWorker(uint64_t need, int pid) {
  if (slot_ < 0) return;
  char text[64];
  Writer writer(text, sizeof(text));
  writer << need << " " << static_cast<uint64_t>(pid) << "\n";
  sys::Seek(slot_, 0, 0);
  sys::Truncate(slot_);
  sys::Write(slot_, text, writer.size());
}

void Slots::LeaveDoor() {
  if (door_ >= 0) sys::Close(door_);
  door_ = -1;
  door_until_ = 0;
}

void Slots::Release() {
  LeaveDoor();
  if (slot_ >= 0) sys::Close(slot_);
  slot_ = -1;
  waiting_since_ = 0;
}

uint64_t Slots::Tend(uint64_t now) {
  if (door_ < 0 || door_until_ == 0) return 0;
  if (now < door_until_) return door_until_ - now;
  LeaveDoor();
  return 0;
}

bool Slots::IsSilenceKnown(uint64_t now) const {
  const int fd = OpenFile("silent", false);
  if (fd < 0) return false;
  char text[32];
  const sys::Word size = sys::Read(fd, text, sizeof(text));
  sys::Close(fd);
  if (size <= 0) return false;
  const uint64_t then = ParseNumber(View(text, static_cast<size_t>(size)));
  return then <= now && now - then < kSilenceAge;  // From before a restart of the machine: later.
}

void Slots::NoteSilence(uint64_t now) const {
  const int fd = OpenFile("silent", true);
  if (fd < 0) return;
  char text[32];
  Writer writer(text, sizeof(text));
  writer << now << "\n";
  sys::Truncate(fd);
  sys::Write(fd, text, writer.size());
  sys::Close(fd);
}

void Slots::CloseInWorker() {
  if (door_ >= 0) sys::Close(door_);
  if (slot_ >= 0) sys::Close(slot_);
  door_ = -1;
  slot_ = -1;
}

}  // namespace headroom::preload
