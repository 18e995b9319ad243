// The lane's own rule for a time without a daemon: who may go, one by one. docs/protocol.md,
// "Without a daemon". State lives in locked files, so it ends with the processes that made it.
#ifndef HEADROOM_CLIENT_PRELOAD_SLOTS_H_
#define HEADROOM_CLIENT_PRELOAD_SLOTS_H_

#include "client/preload/text.h"

namespace headroom::preload {

class Slots {
 public:
  // `lane`: the lane's folder, lives as long as this. `cores`: how many may run at once.
  void Open(View lane, unsigned cores);

  // May one more go that needs `need` bytes at its peak? If so, a slot is held from now on and the
  // door stays shut for a while. `alone`: only when no other slot is taken, and the door then stays
  // shut until Release. `nested`: an ancestor of it holds a slot and waits for it, so the number of
  // slots doesn't count, nor, after a while, does the door.
  bool TryEnter(uint64_t need, bool alone, bool nested, uint64_t now);
  // Takes a slot without asking: the worker runs already.
  void Enter(uint64_t need);
  // Writes who runs under the slot, so that others can see how much it has grown.
  void SetWorker(uint64_t need, int pid);
  void Release();
  // Opens the door when its time has come. Returns nanoseconds until then, 0 if there's nothing to
  // do.
  uint64_t Tend(uint64_t now);

  // Has someone lately found the daemon silent? Whoever does spares the others the wait.
  bool IsSilenceKnown(uint64_t now) const;
  void NoteSilence(uint64_t now) const;

  // In the worker: forgets the descriptors without giving up the locks, which the keeper shares.
  void CloseInWorker();
  // For what must stay open when everything else is closed.
  bool Owns(int fd) const { return fd >= 0 && (fd == door_ || fd == slot_); }
  bool held() const { return slot_ >= 0; }

 private:
  int OpenFile(View name, bool create) const;
  bool TakeSlot(unsigned index);
  void LeaveDoor();

  View lane_;
  unsigned cores_ = 1;
  int door_ = -1;
  int slot_ = -1;
  uint64_t door_until_ = 0;  // ns; 0: not timed
  uint64_t waiting_since_ = 0;
  uint64_t go_at_ = 0;  // where there is no folder to agree in
};

// Different in every process and at every call: the time's low digits, stirred. Below `below`.
uint32_t Jitter(uint32_t below);

}  // namespace headroom::preload

#endif  // HEADROOM_CLIENT_PRELOAD_SLOTS_H_
