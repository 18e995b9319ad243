#include "server/trace/recorder.h"

#include <absl/strings/str_cat.h>
#include <google/protobuf/arena.h>
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>

#include "headroom/v1/trace.pb.h"
#include "server/trace/codec.h"
#include "server/trace/reader.h"

namespace headroom::trace {
namespace {

// What is handed to the kernel at once: large enough that a busy daemon writes a few times a
// second, small enough not to count in its memory.
constexpr size_t kBufferBytes = size_t{64} << 10;

// A record's message lives in this block (a sample of 300 processes needs about 12 KiB); a larger
// one takes more from the heap for its time.
constexpr size_t kArenaBytes = size_t{32} << 10;

// Files in the folder, per segment of the ring: daemons that live shortly leave small segments, and
// a folder of thousands of them would be slow to list.
constexpr size_t kFilesPerSegment = 8;

// No segment is smaller: a segment begins with a snapshot, and a ring that holds little else would
// explain nothing.
constexpr uint64_t kLeastSegmentBytes = uint64_t{64} << 10;

// No segment is larger, however large the ring: it is read whole.
constexpr uint64_t kMostSegmentBytes = uint64_t{64} << 20;

constexpr std::string_view kPrefix = "headroom-";
constexpr std::string_view kSuffix = ".trace";

bool IsSegment(std::string_view name) {
  return name.size() > kPrefix.size() + kSuffix.size() &&
         name.substr(0, kPrefix.size()) == kPrefix &&
         name.substr(name.size() - kSuffix.size()) == kSuffix;
}

uint64_t RealtimeNanos() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

class Recorder::Impl {
 public:
  Impl(Storage& storage, RecorderOptions options)
      : storage_(storage), options_(std::move(options)), arena_(ArenaOptions()) {
    const uint64_t least_segments = options_.max_bytes / kMostSegmentBytes;
    options_.segments = std::max({options_.segments, 2, static_cast<int>(least_segments)});
    segment_bytes_ =
        std::max(options_.max_bytes / static_cast<uint64_t>(options_.segments), kLeastSegmentBytes);
    buffer_.reserve(kBufferBytes + (kBufferBytes / 4));
  }

  ~Impl() { Flush(); }

  void Begin(const policy::State& state, policy::Time now) {
    run_ = RealtimeNanos();
    number_ = 0;
    StartSegment(state, now, /*after_gap=*/false);
  }

  void Record(const policy::Event& event, policy::Time now, std::span<const policy::Action> actions,
              const policy::State& after) {
    now_ = now;
    if (!file_) {
      if (now < retry_at_) return;
      // The snapshot holds what this event did.
      StartSegment(after, now, /*after_gap=*/true);
      return;
    }
    auto* record = google::protobuf::Arena::CreateMessage<v1::TraceRecord>(&arena_);
    v1::TraceStep* step = record->mutable_step();
    step->set_since_ns((now - segment_at_).count());
    EncodeEvent(event, *step->mutable_event());
    for (const policy::Action& action : actions) EncodeAction(action, *step->add_actions());
    Append(*record);
    arena_.Reset();
    if (!file_) return;
    if (segment_size_ >= segment_bytes_) {
      StartSegment(after, now, /*after_gap=*/false);
    } else if (buffer_.size() >= kBufferBytes) {
      Flush();
    }
  }

  void Flush() {
    if (!file_ || buffer_.empty()) return;
    if (const absl::Status written = file_->Append(buffer_); !written.ok()) return Pause(written);
    written_ += buffer_.size();
    buffer_.clear();
  }

  const std::string& problem() const { return problem_; }

  std::vector<std::string> SegmentPaths() const {
    std::vector<std::string> paths;
    for (const auto& entry : Segments()) paths.push_back(Path(entry.name));
    return paths;
  }

  uint64_t bytes_written() const { return written_; }

 private:
  google::protobuf::ArenaOptions ArenaOptions() {
    google::protobuf::ArenaOptions options;
    options.initial_block = arena_block_.data();
    options.initial_block_size = arena_block_.size();
    return options;
  }

  std::string Path(const std::string& name) const { return absl::StrCat(options_.dir, "/", name); }

  std::vector<Storage::Entry> Segments() const {
    auto listed = storage_.List(options_.dir);
    if (!listed.ok()) return {};
    std::erase_if(*listed, [](const Storage::Entry& entry) { return !IsSegment(entry.name); });
    return *std::move(listed);
  }

  void StartSegment(const policy::State& state, policy::Time now, bool after_gap) {
    Flush();
    // The flush may have failed: then the new segment comes after a gap, in a while.
    if (!problem_.empty() && now < retry_at_) return;
    file_.reset();
    buffer_.clear();
    segment_size_ = 0;
    now_ = now;
    if (const absl::Status claimed = storage_.Claim(options_.dir); !claimed.ok())
      return Pause(claimed);

    v1::TraceRecord record;
    v1::TraceSegment* segment = record.mutable_segment();
    segment->set_magic(std::string(kTraceMagic));
    segment->set_format(kTraceFormat);
    segment->set_version(options_.version);
    segment->set_state_layout(StateLayout());
    segment->set_run(run_);
    segment->set_number(number_);
    segment->set_at_ns(now.time_since_epoch().count());
    segment->set_realtime_ns(RealtimeNanos());
    segment->set_after_gap(after_gap);
    segment->set_state(EncodeState(state));
    Append(record);
    // What the snapshot takes does not count against the segment's cap, or a State that is larger
    // than a segment would start a new one with each event; it does count against the ring's.
    segment_size_ = 0;
    if (const absl::Status room = MakeRoom(segment_bytes_ + buffer_.size()); !room.ok())
      return Pause(room);

    // Names sort by time; a clock that was set back must not bring a name up again.
    std::array<char, 64> name{};
    absl::StatusOr<std::unique_ptr<Storage::File>> file = absl::UnknownError("");
    for (int attempt = 0; attempt < 2 && !file.ok(); ++attempt) {
      last_name_ = std::max(last_name_ + 1, RealtimeNanos() + static_cast<uint64_t>(attempt));
      std::snprintf(name.data(), name.size(), "headroom-%020llu.trace",
                    static_cast<unsigned long long>(last_name_));
      file = storage_.Create(Path(name.data()));
    }
    if (!file.ok()) return Pause(file.status());
    file_ = *std::move(file);
    segment_at_ = now;
    // The snapshot is out at once: a segment without it is worth nothing.
    Flush();
    if (!file_) {
      // Or a disk that stays full would collect one empty file with every try.
      (void)storage_.Remove(Path(name.data()));
      return;
    }
    ++number_;
    problem_.clear();
  }

  // Removes the oldest segments, so that the ring with `wanted` bytes more holds no more than it
  // may.
  absl::Status MakeRoom(uint64_t wanted) {
    const auto segments = Segments();
    uint64_t total = wanted;
    for (const auto& entry : segments) total += entry.bytes;
    size_t files = segments.size() + 1;
    const size_t most_files = kFilesPerSegment * static_cast<size_t>(options_.segments);
    for (const auto& entry : segments) {
      if (total <= options_.max_bytes && files <= most_files) break;
      if (const absl::Status removed = storage_.Remove(Path(entry.name)); !removed.ok())
        return removed;
      total -= entry.bytes;
      --files;
    }
    return absl::OkStatus();
  }

  void Append(const v1::TraceRecord& record) {
    using google::protobuf::io::CodedOutputStream;
    const size_t size = record.ByteSizeLong();
    const size_t begin = buffer_.size();
    const size_t header = CodedOutputStream::VarintSize32(static_cast<uint32_t>(size));
    buffer_.resize(begin + header + size);
    auto* to = reinterpret_cast<uint8_t*>(buffer_.data()) + begin;
    to = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(size), to);
    record.SerializeWithCachedSizesToArray(to);
    segment_size_ += header + size;
  }

  void Pause(const absl::Status& why) {
    problem_ =
        absl::StrCat("the trace is not being recorded: ", std::string(why.message()),
                     "; it is tried again every ",
                     std::chrono::duration_cast<std::chrono::seconds>(options_.retry_after).count(),
                     " s (trace.enabled = false turns it off)");
    file_.reset();
    buffer_.clear();
    retry_at_ = now_ + options_.retry_after;
  }

  Storage& storage_;
  RecorderOptions options_;
  uint64_t segment_bytes_ = 0;
  std::unique_ptr<Storage::File> file_;  // none: paused
  std::string buffer_;
  std::string problem_;
  policy::Time now_{};
  policy::Time retry_at_{};
  policy::Time segment_at_{};
  uint64_t segment_size_ = 0;
  uint64_t written_ = 0;
  uint64_t run_ = 0;
  uint64_t number_ = 0;
  uint64_t last_name_ = 0;
  std::array<char, kArenaBytes> arena_block_{};
  google::protobuf::Arena arena_;
};

Recorder::Recorder(Storage& storage, RecorderOptions options)
    : impl_(std::make_unique<Impl>(storage, std::move(options))) {}

Recorder::~Recorder() = default;

void Recorder::Begin(const policy::State& state, policy::Time now) {
  impl_->Begin(state, now);
}

void Recorder::Record(const policy::Event& event, policy::Time now,
                      std::span<const policy::Action> actions, const policy::State& after) {
  impl_->Record(event, now, actions, after);
}

void Recorder::Flush() {
  impl_->Flush();
}

const std::string& Recorder::problem() const {
  return impl_->problem();
}

std::vector<std::string> Recorder::SegmentPaths() const {
  return impl_->SegmentPaths();
}

uint64_t Recorder::bytes_written() const {
  return impl_->bytes_written();
}

}  // namespace headroom::trace
