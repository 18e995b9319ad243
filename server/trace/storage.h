// The recorder's few wishes to a file system, as an interface: tests put a full or broken disk
// behind it.
#ifndef HEADROOM_SERVER_TRACE_STORAGE_H_
#define HEADROOM_SERVER_TRACE_STORAGE_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::trace {

// Errors everywhere: the path and the system's words for errno.
class Storage {
 public:
  class File {
   public:
    virtual ~File() = default;
    // All of it or an error; after an error the file's end is unknown.
    virtual absl::Status Append(std::string_view data) = 0;
  };
  struct Entry {
    std::string name;
    uint64_t bytes = 0;
  };

  virtual ~Storage() = default;
  // Makes the folder with its parents (0700 for what is new) and takes it for this process:
  // FailedPrecondition if another live process has it. Safe to call again.
  virtual absl::Status Claim(const std::string& dir) = 0;
  // Regular files of the folder, sorted by name.
  virtual absl::StatusOr<std::vector<Entry>> List(const std::string& dir) = 0;
  // A new file, 0600; an error if there is one.
  virtual absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path) = 0;
  // A file that is not there is removed already.
  virtual absl::Status Remove(const std::string& path) = 0;
};

// The real one. One for each folder: it holds the claim (a lock file) until it is destroyed.
std::unique_ptr<Storage> MakePosixStorage();

}  // namespace headroom::trace

#endif  // HEADROOM_SERVER_TRACE_STORAGE_H_
