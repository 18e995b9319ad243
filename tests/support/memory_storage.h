// The recorder's file system in memory, with faults: a disk that fills up, files that can't be
// made, a folder that is another's.
#ifndef HEADROOM_TESTS_SUPPORT_MEMORY_STORAGE_H_
#define HEADROOM_TESTS_SUPPORT_MEMORY_STORAGE_H_

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/trace/storage.h"

namespace headroom::testing {

class MemoryStorage : public trace::Storage {
 public:
  // Path to content. Removed files stay readable for nobody: the recorder reads none.
  std::map<std::string, std::string> files;
  // Bytes that still fit; unset: any number.
  std::optional<uint64_t> room;
  bool read_only = false;
  bool claimed_by_another = false;
  uint64_t appends = 0;

  absl::Status Claim(const std::string& dir) override {
    if (claimed_by_another)
      return absl::FailedPreconditionError("the folder " + dir + " is another daemon's");
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Entry>> List(const std::string& dir) override {
    std::vector<Entry> entries;
    for (const auto& [path, content] : files)
      entries.push_back({path.substr(dir.size() + 1), content.size()});
    return entries;
  }

  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path) override {
    if (read_only) return absl::UnavailableError("cannot make " + path + ": Read-only file system");
    if (!files.emplace(path, "").second)
      return absl::UnavailableError("cannot make " + path + ": File exists");
    return std::make_unique<MemoryFile>(*this, path);
  }

  absl::Status Remove(const std::string& path) override {
    if (read_only)
      return absl::UnavailableError("cannot remove " + path + ": Read-only file system");
    const auto file = files.find(path);
    if (file == files.end()) return absl::OkStatus();
    if (room) *room += file->second.size();
    files.erase(file);
    return absl::OkStatus();
  }

  uint64_t total() const {
    uint64_t sum = 0;
    for (const auto& [path, content] : files) sum += content.size();
    return sum;
  }

  std::string All() const {
    std::string all;
    for (const auto& [path, content] : files) all += content;
    return all;
  }

 private:
  class MemoryFile : public File {
   public:
    MemoryFile(MemoryStorage& storage, std::string path)
        : storage_(storage), path_(std::move(path)) {}

    absl::Status Append(std::string_view data) override {
      ++storage_.appends;
      // As a disk: what fits is written, then there is an error.
      const std::string_view fits =
          storage_.room ? data.substr(0, static_cast<size_t>(*storage_.room)) : data;
      if (const auto file = storage_.files.find(path_); file != storage_.files.end())
        file->second += fits;
      if (storage_.room) *storage_.room -= fits.size();
      if (fits.size() == data.size()) return absl::OkStatus();
      return absl::UnavailableError("cannot write " + path_ + ": No space left on device");
    }

   private:
    MemoryStorage& storage_;
    std::string path_;
  };
};

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_SUPPORT_MEMORY_STORAGE_H_
