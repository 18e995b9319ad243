#include "server/trace/recorder.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "server/trace/reader.h"
#include "tests/support/memory_storage.h"
#include "tests/support/sanitizers.h"

using namespace headroom;
using headroom::testing::MemoryStorage;
using policy::Time;
using std::chrono::seconds;

namespace {

policy::Event SmallEvent(int i) {
  return policy::ProcGone{{i, static_cast<uint64_t>(i)}};
}

policy::Event LargeEvent(int64_t procs) {
  policy::Sample sample;
  for (int32_t i = 0; i < procs; ++i)
    sample.procs.push_back({{i + 1, 5U}, policy::MiB(i), std::chrono::milliseconds(10 * i)});
  return sample;
}

Time At(int64_t s) {
  return Time(seconds(s));
}

// All records of a file's bytes.
std::vector<v1::TraceRecord> Records(const std::string& bytes) {
  auto reader = trace::Reader::FromBytes(bytes, "test");
  REQUIRE(reader.ok());
  std::vector<v1::TraceRecord> records;
  while (auto record = reader->Next()) records.push_back(*std::move(record));
  CHECK_FALSE(reader->torn());
  return records;
}

trace::RecorderOptions Options(uint64_t max_bytes = uint64_t{8} << 20) {
  return {.dir = "/trace", .max_bytes = max_bytes, .segments = 8, .version = "1.2.3"};
}

struct TempFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("headroom-trace-test-" + std::to_string(getpid()));
  TempFolder() { std::filesystem::remove_all(path); }
  ~TempFolder() { std::filesystem::remove_all(path); }
};

mode_t ModeOf(const std::filesystem::path& path) {
  struct stat file {};
  REQUIRE(stat(path.c_str(), &file) == 0);
  return file.st_mode & 07777U;
}

}  // namespace

TEST_CASE("a segment begins with what the reader needs, steps follow in order") {
  MemoryStorage storage;
  trace::Recorder recorder(storage, Options());
  policy::State state;
  state.domains[policy::DomainId{3}].name = "host";
  recorder.Begin(state, At(100));
  recorder.Record(SmallEvent(1), At(101), {}, state);
  const std::vector<policy::Action> actions = {
      policy::Mint{policy::LaneId{1}, 2, {policy::ReasonCode::kFloor, {}}}};
  recorder.Record(SmallEvent(2), At(102), actions, state);
  recorder.Flush();

  const auto records = Records(storage.All());
  REQUIRE(records.size() == 3);
  const auto& segment = records[0].segment();
  CHECK(segment.magic() == "headroom trace");
  CHECK(segment.version() == "1.2.3");
  CHECK(segment.number() == 0);
  CHECK_FALSE(segment.after_gap());
  CHECK(segment.at_ns() == 100'000'000'000);
  CHECK(records[1].step().since_ns() == 1'000'000'000);
  CHECK(records[1].step().event().proc_gone().proc().pid() == 1);
  CHECK(records[1].step().actions_size() == 0);
  REQUIRE(records[2].step().actions_size() == 1);
  CHECK(records[2].step().actions(0).mint().count() == 2);
  CHECK(recorder.bytes_written() == storage.total());
}

TEST_CASE("small events are written in few pieces") {
  MemoryStorage storage;
  trace::Recorder recorder(storage, Options(uint64_t{64} << 20));
  recorder.Begin({}, At(0));
  for (int i = 0; i < 20'000; ++i) recorder.Record(SmallEvent(i), At(1), {}, {});
  CHECK(storage.total() > 200'000);
  CHECK(storage.appends < 12);
}

TEST_CASE("the ring keeps below its cap and drops the oldest") {
  MemoryStorage storage;
  storage.files["/trace/notes.txt"] = "not ours";
  constexpr uint64_t kMax = uint64_t{1} << 20;
  trace::Recorder recorder(storage, Options(kMax));
  policy::State state;
  recorder.Begin(state, At(0));
  uint64_t largest = 0;
  for (int i = 0; i < 4000; ++i) {
    recorder.Record(LargeEvent(100), At(i), {}, state);
    largest = std::max(largest, storage.total());
  }
  recorder.Flush();
  CHECK(largest <= kMax);
  CHECK(largest > kMax / 2);
  CHECK(storage.files.contains("/trace/notes.txt"));
  const auto paths = recorder.SegmentPaths();
  CHECK(paths.size() >= 7);
  CHECK(paths.size() <= 8);
  // Oldest first, without a hole.
  uint64_t number = Records(storage.files[paths[0]])[0].segment().number();
  CHECK(number > 0);
  for (const std::string& path : paths)
    CHECK(Records(storage.files[path])[0].segment().number() == number++);
}

TEST_CASE("daemons that live shortly leave no more files than the ring may have") {
  MemoryStorage storage;
  for (int i = 0; i < 100; ++i) {
    trace::Recorder recorder(storage, Options());
    recorder.Begin({}, At(i));
    recorder.Record(SmallEvent(i), At(i), {}, {});
  }
  CHECK(storage.files.size() <= 64);
  // The newest are kept.
  const auto last = Records(storage.files.rbegin()->second);
  CHECK(last[1].step().event().proc_gone().proc().pid() == 99);
}

TEST_CASE("a state larger than a segment does not begin one with every event") {
  MemoryStorage storage;
  trace::Recorder recorder(storage, Options(uint64_t{8} << 20));
  policy::State state;
  for (uint32_t i = 0; i < 20'000; ++i) {
    policy::ProcState proc;
    proc.proc = {static_cast<int32_t>(i), i};
    proc.source = std::string(100, 'x');
    state.procs.push_back(proc);
  }
  recorder.Begin(state, At(0));
  for (int i = 0; i < 1000; ++i) recorder.Record(SmallEvent(i), At(1), {}, state);
  CHECK(storage.files.size() == 1);
}

TEST_CASE("a full disk pauses the recording, says so, and is tried again") {
  MemoryStorage storage;
  trace::Recorder recorder(storage, Options());
  recorder.Begin({}, At(0));
  recorder.Record(SmallEvent(1), At(1), {}, {});
  recorder.Flush();
  CHECK(recorder.problem().empty());

  storage.room = 5;
  recorder.Record(SmallEvent(2), At(2), {}, {});
  recorder.Flush();
  CHECK(recorder.problem().find("No space left on device") != std::string::npos);
  CHECK(recorder.problem().find("tried again every 10 s") != std::string::npos);
  const auto appends = storage.appends;
  for (int i = 0; i < 1000; ++i) recorder.Record(SmallEvent(i), At(3), {}, {});
  CHECK(storage.appends == appends);

  // Each try that fails leaves nothing behind.
  for (int i = 0; i < 50; ++i) recorder.Record(SmallEvent(i), At(20 + 20 * i), {}, {});
  CHECK(storage.files.size() == 1);
  CHECK_FALSE(recorder.problem().empty());

  storage.room.reset();
  recorder.Record(SmallEvent(7), At(5000), {}, {});
  recorder.Record(SmallEvent(8), At(5001), {}, {});
  recorder.Flush();
  CHECK(recorder.problem().empty());
  REQUIRE(storage.files.size() == 2);
  const auto records = Records(storage.files.rbegin()->second);
  CHECK(records[0].segment().after_gap());
  REQUIRE(records.size() == 2);
  CHECK(records[1].step().event().proc_gone().proc().pid() == 8);
}

TEST_CASE("read-only and foreign folders are said, never thrown") {
  MemoryStorage storage;
  trace::Recorder recorder(storage, Options());
  SECTION("read-only") {
    storage.read_only = true;
    recorder.Begin({}, At(0));
    CHECK(recorder.problem().find("Read-only") != std::string::npos);
  }
  SECTION("another daemon's") {
    storage.claimed_by_another = true;
    recorder.Begin({}, At(0));
    CHECK(recorder.problem().find("another daemon's") != std::string::npos);
  }
  recorder.Record(SmallEvent(1), At(1), {}, {});
  recorder.Flush();
  CHECK(storage.files.empty());
}

TEST_CASE("on a real disk: private files in a private folder of one daemon") {
  const TempFolder temp;
  const std::string dir = temp.path / "state" / "trace";
  auto storage = trace::MakePosixStorage();
  auto options = Options();
  options.dir = dir;
  trace::Recorder recorder(*storage, options);
  recorder.Begin({}, At(0));
  recorder.Record(SmallEvent(1), At(1), {}, {});
  recorder.Flush();
  REQUIRE(recorder.problem().empty());
  const auto paths = recorder.SegmentPaths();
  REQUIRE(paths.size() == 1);
  CHECK(ModeOf(paths[0]) == 0600);
  CHECK(ModeOf(dir) == 0700);
  auto reader = trace::Reader::Open(paths[0]);
  REQUIRE(reader.ok());
  CHECK(reader->Next()->has_segment());
  CHECK(reader->Next()->has_step());
  CHECK_FALSE(reader->Next());
  CHECK_FALSE(reader->torn());

  auto second_storage = trace::MakePosixStorage();
  trace::Recorder second(*second_storage, options);
  second.Begin({}, At(0));
  CHECK(second.problem().find("another daemon's") != std::string::npos);
  CHECK(recorder.SegmentPaths().size() == 1);

  // The folder vanishes under it: what is open goes on, the next segment makes it anew.
  std::filesystem::remove_all(dir);
  for (int i = 0; i < 3000; ++i) recorder.Record(LargeEvent(100), At(2 + i), {}, {});
  CHECK(recorder.problem().empty());
  CHECK_FALSE(recorder.SegmentPaths().empty());

  // A link in the folder's place of a lock is not followed.
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  std::filesystem::create_symlink("/dev/null", std::filesystem::path(dir) / "lock");
  auto third_storage = trace::MakePosixStorage();
  CHECK_FALSE(third_storage->Claim(dir).ok());
  CHECK_FALSE(third_storage->Claim("/proc/none/trace").ok());
  CHECK_FALSE(third_storage->Claim("/dev/null/trace").ok());
}

TEST_CASE("a write that the kernel cuts short pauses the recording, what is whole stays") {
  const TempFolder temp;
  auto storage = trace::MakePosixStorage();
  auto options = Options();
  options.dir = temp.path / "trace";
  trace::Recorder recorder(*storage, options);
  recorder.Begin({}, At(0));
  // Files may not grow beyond 20,000 bytes: the kernel writes up to there, then fails with EFBIG.
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{20'000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  for (int i = 0; i < 100; ++i) recorder.Record(LargeEvent(100), At(1), {}, {});
  recorder.Flush();
  const std::string problem = recorder.problem();
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  signal(SIGXFSZ, old_handler);
  CHECK(problem.find("File too large") != std::string::npos);
  recorder.Record(SmallEvent(1), At(100), {}, {});
  CHECK(recorder.problem().empty());
  const auto paths = recorder.SegmentPaths();
  REQUIRE(paths.size() == 2);
  auto reader = trace::Reader::Open(paths[0]);
  REQUIRE(reader.ok());
  int records = 0;
  while (reader->Next()) ++records;
  CHECK(records > 5);
  CHECK(reader->torn());
}

TEST_CASE("recording a busy second costs little") {
  // 100 fast samples of 30 growing processes and one of 300, with five jobs that come and go.
  MemoryStorage storage;
  trace::Recorder recorder(storage, Options(uint64_t{64} << 20));
  recorder.Begin({}, At(0));
  const policy::Event fast = LargeEvent(30);
  const policy::Event slow = LargeEvent(300);
  const auto cpu = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const double begin = cpu();
  constexpr int kSeconds = 100;
  for (int s = 0; s < kSeconds; ++s) {
    for (int i = 0; i < 100; ++i) recorder.Record(fast, At(s), {}, {});
    recorder.Record(slow, At(s), {}, {});
    for (int i = 0; i < 10; ++i) recorder.Record(SmallEvent(i), At(s), {}, {});
    recorder.Flush();
  }
  const double share = (cpu() - begin) / kSeconds;
  const double bytes = static_cast<double>(storage.total()) / kSeconds;
  INFO("share of a core: " << share * 100 << " %, bytes a second: " << bytes);
  // The whole daemon may take 1 %; sanitizers cost some 10 times as much.
  CHECK(share < (testing::kSanitized ? 0.04 : 0.004));
  CHECK(bytes < 100'000);
  UNSCOPED_INFO("recording: " << share * 100 << " % of a core");
}
