// The anonymous memory and CPU time of one process, again and again: two files kept open.
//
// Anonymous memory is resident - shared of statm. Plain RSS counts mapped text and files, which the
// kernel can drop. The kernel keeps these counters in batches per CPU, so they lag by up to some
// hundred KiB per CPU. An open file of /proc/PID stays with its process: after its end, reads say
// so, even where the pid is used again.
#ifndef HEADROOM_SERVER_SYS_ANON_READER_H_
#define HEADROOM_SERVER_SYS_ANON_READER_H_

#include <cstdint>
#include <optional>

#include "server/sys/file.h"
#include "server/sys/process.h"
#include "server/sys/roots.h"

namespace headroom::sys {

class AnonReader {
 public:
  struct Sample {
    int64_t anon_bytes = 0;
    int64_t resident_bytes = 0;
    uint64_t cpu_ticks = 0;
    char state = '?';
  };

  // nullopt: gone, or pid belongs to another process by now.
  static std::optional<AnonReader> Open(const Roots& roots, const ProcessId& id);

  const ProcessId& id() const { return id_; }
  // Of statm alone: 1.3 us (measured). nullopt: the process ended and was reaped;
  // a zombie has 0 bytes.
  std::optional<int64_t> ReadAnonBytes() const;
  // Both files. nullopt: as above, or a zombie.
  std::optional<Sample> Read() const;

 private:
  AnonReader() = default;
  ProcessId id_;
  KeptFile statm_, stat_;
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_ANON_READER_H_
