// Takes tokens out of busy fifos: the dedicated reader for debt.
//
// A client writes its token back and takes the next one within microseconds, so whoever wants it
// has to be on a core by then. Measured job starts between the decision and a drained pool (5
// tokens, ~80 starts/s): a plain epoll reader 18 to 45, nice -20 no better, SCHED_FIFO with one
// poll() thread pinned on each core 1 to 5, a short EEVDF slice 5 to 16. So: a thread for each core
// (at most Options::max_threads; then not pinned), SCHED_FIFO where that is allowed, else a short
// slice and the best nice level that is.
//
// Cost without debt: none, all threads are blocked. With debt, one wake-up a thread for each token
// that moves.
//
// Threading: every function may be called from any thread; calls are serialised by a mutex with
// priority inheritance. No more tokens are ever taken than there is debt.
#ifndef HEADROOM_SERVER_SYS_TOKEN_COLLECTOR_H_
#define HEADROOM_SERVER_SYS_TOKEN_COLLECTOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headroom::sys {

class TokenCollector {
 public:
  struct Options {
    // On more cores than this the threads float: the scheduler puts a woken real-time thread on
    // whichever core is free, and there is one.
    int max_threads = 8;
    bool realtime = true;
  };
  // How the threads run: what the kernel allowed.
  enum class Scheduling { kRealtime, kShortSlice, kNormal };

  using Lane = uint64_t;  // the caller's name for a fifo

  static absl::StatusOr<std::unique_ptr<TokenCollector>> Start(const Options& options);
  virtual ~TokenCollector() = default;

  // Adds a fifo; its descriptor is duplicated. AlreadyExists for a lane that is there.
  virtual absl::Status Add(Lane lane, int fifo_fd) = 0;
  // Forgets a lane; returns what was collected and not yet taken. No token is taken from its fifo
  // after the return. NotFound for a lane that isn't there.
  virtual absl::StatusOr<int64_t> Remove(Lane lane) = 0;

  // Sets what is still to be collected from `lane`, as of all that TakeCollected() and this
  // function have returned so far: tokens collected since then count towards `debt`. They are
  // returned, and TakeCollected() won't return them again; the debt left is max(0, debt -
  // returned). 0 stops it. `debt` may be any size; a negative one is 0. An unknown lane returns 0.
  virtual int64_t SetDebt(Lane lane, int64_t debt) = 0;

  // Tokens collected since the last call.
  virtual int64_t TakeCollected(Lane lane) = 0;

  // An eventfd, non-blocking: readable when tokens were collected since it was last read. The
  // caller reads its 8 bytes, then calls TakeCollected() for its lanes.
  virtual int event_fd() const = 0;

  virtual Scheduling scheduling() const = 0;
  virtual int threads() const = 0;
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_TOKEN_COLLECTOR_H_
