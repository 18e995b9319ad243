// Reads what the recorder wrote. A file holds one or more segments (`headroom run --trace` writes
// several into one); each is a v1::TraceSegment followed by v1::TraceSteps, all delimited.
//
// A tail that a kill -9 or a power loss tore is normal: reading ends there, and torn() says so.
// Hostile files give errors or a torn end, never more memory than the file has.
//
// Threading: one thread.
#ifndef HEADROOM_SERVER_TRACE_READER_H_
#define HEADROOM_SERVER_TRACE_READER_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/v1/trace.pb.h"

namespace headroom::trace {

inline constexpr std::string_view kTraceMagic = "headroom trace";
inline constexpr uint32_t kTraceFormat = 1;

class Reader {
 public:
  // NotFound, or the system's words; a file that does not begin with a segment is InvalidArgument.
  static absl::StatusOr<Reader> Open(const std::string& path);
  // `name` stands for the path in errors.
  static absl::StatusOr<Reader> FromBytes(std::string bytes, std::string name);

  // The next record, a segment's beginning or a step; unset at the end.
  std::optional<v1::TraceRecord> Next();

  // After Next gave nothing: the file does not end where a record does.
  bool torn() const { return torn_; }
  // Where the last record began, in bytes.
  uint64_t offset() const { return offset_; }
  const std::string& name() const { return name_; }

 private:
  Reader(std::string bytes, std::string name);

  std::string bytes_;
  std::string name_;
  uint64_t at_ = 0;
  uint64_t offset_ = 0;
  bool torn_ = false;
};

// The segments' bytes for another program, cut into chunks of whole records; torn ends are left
// out, so that what follows them stays readable. Files are opened at once: that the ring drops one
// while it is read does no harm.
class Export {
 public:
  static absl::StatusOr<Export> Open(const std::vector<std::string>& paths);
  Export(Export&&) noexcept;
  Export& operator=(Export&&) noexcept;
  ~Export();

  // At most `max_bytes`, unless one record is larger (then that record's bytes in pieces). Empty:
  // the end.
  absl::StatusOr<std::string> Next(size_t max_bytes);

 private:
  struct Impl;
  explicit Export(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::trace

#endif  // HEADROOM_SERVER_TRACE_READER_H_
