#include "server/trace/reader.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "server/trace/posix.h"

namespace headroom::trace {
namespace {

// What a reader takes into memory at once. A segment has at most 64 MiB and a snapshot; a copy of a
// whole ring may have more than this, its segments never.
constexpr uint64_t kMaxFileBytes = uint64_t{4} << 30;

struct OpenFile {
  Fd fd;
  uint64_t bytes = 0;
  std::string path;
};

absl::StatusOr<OpenFile> OpenRegular(const std::string& path) {
  // Non-blocking: a fifo in a trace's place must not stop the reader.
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    const std::string text = absl::StrCat("cannot open ", path, ": ", ErrnoText(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
  }
  struct stat file {};
  if (fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  return OpenFile{std::move(fd), static_cast<uint64_t>(file.st_size), path};
}

// Up to `size` bytes; less at the file's end.
absl::StatusOr<std::string> ReadSome(const OpenFile& file, uint64_t offset, size_t size) {
  std::string data(size, '\0');
  size_t got = 0;
  while (got < size) {
    const ssize_t n =
        pread(file.fd.get(), data.data() + got, size - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return absl::UnavailableError(
          absl::StrCat("cannot read ", file.path, ": ", ErrnoText(errno)));
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  data.resize(got);
  return data;
}

// The length of a record with its varint; unset: the varint is not complete or none. 0: a length of
// zero, which no record has (a hole that a power loss left reads as zeros).
std::optional<uint64_t> WholeLength(std::string_view bytes) {
  uint64_t length = 0;
  for (size_t used = 0; used < bytes.size() && used < 5; ++used) {
    const auto byte = static_cast<uint8_t>(bytes[used]);
    length |= uint64_t{byte & 0x7fU} << (7 * used);
    if (byte < 0x80) return length == 0 ? 0 : length + used + 1;
  }
  return std::nullopt;
}

}  // namespace

Reader::Reader(std::string bytes, std::string name)
    : bytes_(std::move(bytes)), name_(std::move(name)) {}

absl::StatusOr<Reader> Reader::Open(const std::string& path) {
  const auto file = OpenRegular(path);
  if (!file.ok()) return file.status();
  if (file->bytes > kMaxFileBytes)
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", file->bytes,
                                                   " bytes, more than can be read at once (",
                                                   kMaxFileBytes, "): read its segments instead"));
  auto bytes = ReadSome(*file, 0, file->bytes);
  if (!bytes.ok()) return bytes.status();
  return FromBytes(*std::move(bytes), path);
}

absl::StatusOr<Reader> Reader::FromBytes(std::string bytes, std::string name) {
  Reader reader(std::move(bytes), std::move(name));
  const auto first = reader.Next();
  if (!first || !first->has_segment())
    return absl::InvalidArgumentError(
        absl::StrCat(reader.name_, " is not a trace of Headroom, or lost its beginning"));
  if (first->segment().format() != kTraceFormat)
    return absl::InvalidArgumentError(absl::StrCat(
        reader.name_, " has format ", first->segment().format(), ", this version reads ",
        kTraceFormat, ": use the version that wrote it, ", first->segment().version()));
  reader.at_ = 0;
  return reader;
}

std::optional<v1::TraceRecord> Reader::Next() {
  if (torn_ || at_ == bytes_.size()) return std::nullopt;
  const std::string_view rest = std::string_view(bytes_).substr(at_);
  const auto whole = WholeLength(rest);
  v1::TraceRecord record;
  if (!whole || *whole == 0 || *whole > rest.size()) {
    torn_ = true;
    return std::nullopt;
  }
  size_t header = 1;
  while ((static_cast<uint8_t>(rest[header - 1]) & 0x80U) != 0) ++header;
  if (!record.ParseFromArray(rest.data() + header, static_cast<int>(*whole - header)) ||
      record.record_case() == v1::TraceRecord::RECORD_NOT_SET ||
      (record.has_segment() && record.segment().magic() != kTraceMagic)) {
    torn_ = true;
    return std::nullopt;
  }
  offset_ = at_;
  at_ += *whole;
  return record;
}

struct Export::Impl {
  std::vector<OpenFile> files;
  size_t current = 0;
  uint64_t offset = 0;
  uint64_t record_left = 0;  // of a record that did not fit into one chunk
};

Export::Export(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Export::Export(Export&&) noexcept = default;
Export& Export::operator=(Export&&) noexcept = default;
Export::~Export() = default;

absl::StatusOr<Export> Export::Open(const std::vector<std::string>& paths) {
  auto impl = std::make_unique<Impl>();
  for (const std::string& path : paths) {
    auto file = OpenRegular(path);
    // The ring has dropped it since it was named.
    if (absl::IsNotFound(file.status())) continue;
    if (!file.ok()) return file.status();
    impl->files.push_back(*std::move(file));
  }
  return Export(std::move(impl));
}

absl::StatusOr<std::string> Export::Next(size_t max_bytes) {
  Impl& to = *impl_;
  while (to.current < to.files.size()) {
    const OpenFile& file = to.files[to.current];
    const uint64_t left = file.bytes - std::min(to.offset, file.bytes);
    auto data = ReadSome(file, to.offset, std::min<uint64_t>(max_bytes, left));
    if (!data.ok()) return data.status();
    if (to.record_left > 0) {
      data->resize(std::min<uint64_t>(data->size(), to.record_left));
      to.record_left -= data->size();
      to.offset += data->size();
      if (!data->empty()) return data;
      to.record_left = 0;  // shorter than it was: go on with the next file
    }
    size_t good = 0;
    while (good < data->size()) {
      const auto whole = WholeLength(std::string_view(*data).substr(good));
      if (!whole || *whole == 0 || *whole > data->size() - good) {
        // Cut by the chunk, unless the file has no more: then it is torn. A first record that is
        // larger than the chunk goes out in pieces, if the file has all of it.
        if (good == 0 && whole && *whole > max_bytes && *whole <= left) {
          to.record_left = *whole - data->size();
          good = data->size();
        }
        break;
      }
      good += *whole;
    }
    if (good == 0) {
      ++to.current;
      to.offset = 0;
      continue;
    }
    to.offset += good;
    data->resize(good);
    return data;
  }
  return std::string();
}

}  // namespace headroom::trace
