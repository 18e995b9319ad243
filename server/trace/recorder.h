// Writes what went into the policy and what came out: every event and action, in a ring of segment
// files, each of which begins with a snapshot of the whole State. Replay (replay.h) can start at
// any of them.
//
// Use: Begin(state) once; after every Step, Record(event, now, actions, state after it); Flush()
// about once a second. A daemon that is killed loses at most what it had not flushed.
//
// Nothing here ever stops the daemon. A write that fails (full disk, read-only, no permission, the
// folder is another daemon's) pauses the recording; problem() says so in words for `status`, and
// Record tries again after a while with a new segment.
//
// Privacy: files are 0600 in a folder that is made 0700.
//
// Threading: one thread.
#ifndef HEADROOM_SERVER_TRACE_RECORDER_H_
#define HEADROOM_SERVER_TRACE_RECORDER_H_

#include <absl/status/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/policy/action.h"
#include "server/policy/event.h"
#include "server/policy/state.h"
#include "server/policy/types.h"
#include "server/trace/storage.h"

namespace headroom::trace {

struct RecorderOptions {
  std::string dir;
  // All segments together; the oldest goes first. The default holds half an hour of the fastest
  // sampling of 30 growing processes (40 KB a second), hours of a usual build.
  uint64_t max_bytes = uint64_t{64} << 20;
  // More segments lose less when the oldest goes, but write more snapshots.
  int segments = 8;
  // Of the program that records, for who reads it later.
  std::string version;
  // How long a failed recording rests before it tries again.
  policy::Duration retry_after = std::chrono::seconds(10);
};

class Recorder {
 public:
  // `storage`: where the files are; PosixStorage in the daemon. Must outlive the recorder.
  Recorder(Storage& storage, RecorderOptions options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Opens the first segment with this state, which is what the next Record's event will meet.
  void Begin(const policy::State& state, policy::Time now);

  void Record(const policy::Event& event, policy::Time now, std::span<const policy::Action> actions,
              const policy::State& after);

  // Hands what is buffered to the kernel.
  void Flush();

  // Empty: all is recorded. Else why not, and what to do about it.
  const std::string& problem() const;

  // Of this and earlier runs, oldest first. Flush before reading them.
  std::vector<std::string> SegmentPaths() const;

  // Written to files since Begin, for the daemon's own figures.
  uint64_t bytes_written() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::trace

#endif  // HEADROOM_SERVER_TRACE_RECORDER_H_
