#include "server/trace/replay.h"

#include <boost/process.hpp>
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/policy/step.h"
#include "server/trace/codec.h"
#include "server/trace/reader.h"
#include "server/trace/recorder.h"
#include "tests/replay/random_build.h"
#include "tests/support/memory_storage.h"
#include "tests/support/sanitizers.h"

using namespace headroom;
using headroom::testing::MemoryStorage;
using headroom::testing::RandomBuild;

namespace {

constexpr uint64_t kRingBytes = uint64_t{64} << 20;
// Of the ring: few large ones, or as many as the recorder makes (64 KiB each at least).
constexpr int kLargeSegments = 2;
constexpr int kSmallSegments = 1024;

// Records a random build of `steps` events; returns how many actions there were.
uint64_t RecordBuild(uint64_t seed, int steps, trace::Storage& storage, int segments,
                     const std::string& dir = "/trace") {
  trace::Recorder recorder(
      storage, {.dir = dir, .max_bytes = kRingBytes, .segments = segments, .version = "test"});
  RandomBuild build(seed);
  policy::State state;
  recorder.Begin(state, build.now());
  uint64_t count = 0;
  for (int i = 0; i < steps; ++i) {
    const policy::Event event = build.Next();
    const std::vector<policy::Action> actions = policy::Step(state, event, build.now());
    count += actions.size();
    recorder.Record(event, build.now(), actions, state);
    build.Answer(actions);
  }
  recorder.Flush();
  CHECK(recorder.problem().empty());
  return count;
}

trace::ReplayResult Replay(const std::string& bytes) {
  auto reader = trace::Reader::FromBytes(bytes, "test");
  REQUIRE(reader.ok());
  trace::Replayer replayer;
  const auto result = replayer.Run(*reader);
  INFO(result.status());
  REQUIRE(result.ok());
  return *result;
}

std::vector<v1::TraceRecord> Records(const std::string& bytes) {
  auto reader = trace::Reader::FromBytes(bytes, "test");
  REQUIRE(reader.ok());
  std::vector<v1::TraceRecord> records;
  while (auto record = reader->Next()) records.push_back(*std::move(record));
  return records;
}

std::string Delimited(const std::vector<v1::TraceRecord>& records) {
  std::string bytes;
  for (const v1::TraceRecord& record : records) {
    const std::string body = record.SerializeAsString();
    for (uint64_t n = body.size();; n >>= 7) {
      bytes.push_back(static_cast<char>(n >= 0x80 ? n | 0x80 : n));
      if (n < 0x80) break;
    }
    bytes += body;
  }
  return bytes;
}

}  // namespace

TEST_CASE("a recorded build replays with the same actions, from any of its segments") {
  // Sanitizers make a step some twenty times as slow.
  const uint64_t seeds = testing::FewerUnderSanitizers(3, 1);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    MemoryStorage storage;
    const uint64_t actions = RecordBuild(seed, 3000, storage, kLargeSegments);
    CHECK(actions > 0);
    const trace::ReplayResult whole = Replay(storage.All());
    CHECK(whole.steps == 3000);
    CHECK(whole.actions == actions);
    CHECK_FALSE(whole.torn);
    INFO((whole.difference ? whole.difference->text : std::string()));
    CHECK_FALSE(whole.difference);

    // Small segments: each alone, from its own snapshot.
    MemoryStorage ring;
    RecordBuild(seed, 3000, ring, kSmallSegments);
    REQUIRE(ring.files.size() > 1);
    uint64_t steps = 0;
    for (const auto& [path, content] : ring.files) {
      const trace::ReplayResult part = Replay(content);
      INFO(path << " " << (part.difference ? part.difference->text : std::string()));
      CHECK(part.segments == 1);
      CHECK_FALSE(part.difference);
      steps += part.steps;
    }
    // And in a row: each snapshot is where the segment before ended.
    const trace::ReplayResult joined = Replay(ring.All());
    CHECK(joined.segments == ring.files.size());
    CHECK(joined.steps == steps);
    CHECK_FALSE(joined.difference);
  }
}

TEST_CASE("what was tampered with is found") {
  MemoryStorage storage;
  RecordBuild(5, 4000, storage, kLargeSegments);
  const std::vector<v1::TraceRecord> good = Records(storage.All());
  CHECK_FALSE(Replay(Delimited(good)).difference);

  SECTION("an action less") {
    auto records = good;
    for (size_t i = records.size() / 2; i < records.size(); ++i) {
      if (records[i].step().actions_size() == 0) continue;
      records[i].mutable_step()->mutable_actions()->RemoveLast();
      const auto result = Replay(Delimited(records));
      REQUIRE(result.difference);
      // The segment's beginning is record 0.
      CHECK(result.difference->step == i - 1);
      CHECK(result.difference->text.find("is answered now by") != std::string::npos);
      return;
    }
    FAIL("no action in half of a build");
  }
  SECTION("another input of a reason") {
    auto records = good;
    for (size_t i = records.size() / 2; i < records.size(); ++i) {
      for (auto& action : *records[i].mutable_step()->mutable_actions()) {
        if (action.reason().value_size() == 0) continue;
        action.mutable_reason()->set_value(0, action.reason().value(0) + 1);
        CHECK(Replay(Delimited(records)).difference);
        return;
      }
    }
    FAIL("no reason in half of a build");
  }
  SECTION("another state in the next snapshot") {
    MemoryStorage ring;
    RecordBuild(5, 6000, ring, kSmallSegments);
    auto records = Records(ring.All());
    size_t segments = 0;
    for (auto& record : records) {
      if (!record.has_segment() || ++segments < 2) continue;
      auto state = trace::DecodeState(record.segment().state());
      REQUIRE(state.ok());
      state->prediction = !state->prediction;
      record.mutable_segment()->set_state(trace::EncodeState(*state));
      break;
    }
    const auto result = Replay(Delimited(records));
    REQUIRE(result.difference);
    CHECK(result.difference->segment == 1);
  }
  SECTION("another layout of the state") {
    auto records = good;
    records[0].mutable_segment()->set_state_layout("0123456789abcdef");
    auto reader = trace::Reader::FromBytes(Delimited(records), "test");
    REQUIRE(reader.ok());
    trace::Replayer replayer;
    const auto result = replayer.Run(*reader);
    REQUIRE_FALSE(result.ok());
    CHECK(std::string(result.status().message()).find("version test") != std::string::npos);
  }
  SECTION("an event of a newer version") {
    auto records = good;
    records[10].mutable_step()->mutable_event()->Clear();
    auto reader = trace::Reader::FromBytes(Delimited(records), "test");
    REQUIRE(reader.ok());
    trace::Replayer replayer;
    CHECK_FALSE(replayer.Run(*reader).ok());
  }
}

TEST_CASE("a disk that was full leaves a gap, and what follows replays") {
  MemoryStorage storage;
  trace::Recorder recorder(
      storage, {.dir = "/trace", .max_bytes = kRingBytes, .segments = 8, .version = "test"});
  RandomBuild build(9);
  policy::State state;
  recorder.Begin(state, build.now());
  bool was_paused = false;
  for (int i = 0; i < 3000; ++i) {
    if (i == 1000) storage.room = 100;
    if (i == 2000) storage.room.reset();
    const policy::Event event = build.Next();
    const auto actions = policy::Step(state, event, build.now());
    recorder.Record(event, build.now(), actions, state);
    recorder.Flush();
    build.Answer(actions);
    was_paused = was_paused || !recorder.problem().empty();
  }
  CHECK(was_paused);
  CHECK(recorder.problem().empty());
  CHECK(storage.files.size() == 2);
  for (const auto& [path, content] : storage.files) {
    const auto result = Replay(content);
    CHECK_FALSE(result.difference);
    CHECK(result.steps > 300);
  }
}

TEST_CASE("headroom-replay replays files and says where they differ") {
  namespace fs = std::filesystem;
  namespace bp = boost::process;
  const fs::path dir = fs::temp_directory_path() / ("headroom-replay-" + std::to_string(getpid()));
  struct Clean {
    fs::path dir;
    ~Clean() { fs::remove_all(dir); }
  } clean{dir};
  auto storage = trace::MakePosixStorage();
  RecordBuild(21, 1500, *storage, kLargeSegments, dir.string());
  std::string file;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() == ".trace") file = entry.path();
  }
  REQUIRE_FALSE(file.empty());
  const std::string tool = std::string(HEADROOM_BIN_DIR) + "/headroom-replay";
  const auto run = [&](const std::string& argument, std::string& output) {
    bp::ipstream out;
    bp::child child(tool, argument, bp::std_out > out, bp::std_err > bp::null);
    for (std::string line; std::getline(out, line);) output += line + "\n";
    child.wait();
    return child.exit_code();
  };
  std::string output;
  CHECK(run(file, output) == 0);
  CHECK(output.find("1500 steps") != std::string::npos);
  CHECK(run(dir / "none", output) == 2);

  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  auto records = Records(bytes);
  for (auto& record : records) {
    if (!record.has_step() || record.step().actions_size() == 0) continue;
    record.mutable_step()->clear_actions();
    break;
  }
  std::ofstream(dir / "bad", std::ios::binary) << Delimited(records);
  output.clear();
  CHECK(run(dir / "bad", output) == 1);
  CHECK(output.find("segment 0, step") != std::string::npos);
}
