// The anonymous memory and CPU time of one process, again and again: a file kept open, and the
// process's CPU clock.
//
// Anonymous memory is resident - shared of statm. Plain RSS counts mapped text and files, which the
// kernel can drop. The kernel keeps these counters in batches per CPU, so they lag by up to some
// hundred KiB per CPU. An open file of /proc/PID stays with its process: after its end, reads say
// so, even where the pid is used again.
//
// CPU time is that of clock_getcpuclockid(3), all threads together: a tenth of what a read of stat
// takes, whose text is long. Where /proc isn't that of our own pid namespace (a fake tree, a
// foreign mount), stat it is.
#ifndef HEADROOM_SERVER_SYS_ANON_READER_H_
#define HEADROOM_SERVER_SYS_ANON_READER_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "server/sys/file.h"
#include "server/sys/process.h"
#include "server/sys/roots.h"

namespace headroom::sys {

class AnonReader {
 public:
  struct Memory {
    int64_t anon_bytes = 0;
    int64_t resident_bytes = 0;
  };
  struct Sample {
    Memory memory;
    std::chrono::nanoseconds cpu{0};
  };

  // nullopt: gone, or pid belongs to another process by now.
  static std::optional<AnonReader> Open(const Roots& roots, const ProcessId& id);

  const ProcessId& id() const { return id_; }
  // 1.3 us (measured). nullopt: the process has ended, whether or not it has been waited for.
  std::optional<Memory> ReadMemory() const;
  // With its CPU time: 0.5 us more. nullopt: as above.
  std::optional<Sample> Read() const;

 private:
  AnonReader() = default;
  ProcessId id_;
  KeptFile statm_;
  std::optional<clockid_t> clock_;
  KeptFile stat_;  // where there is no clock
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_ANON_READER_H_
