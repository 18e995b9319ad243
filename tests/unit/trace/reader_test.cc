#include "server/trace/reader.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "server/trace/recorder.h"
#include "tests/support/memory_storage.h"

using namespace headroom;
using headroom::testing::MemoryStorage;
using policy::Time;

namespace {

// A segment with `steps` steps.
std::string Segment(int steps) {
  MemoryStorage storage;
  trace::Recorder recorder(storage, {.dir = "/trace", .version = "test"});
  policy::State state;
  state.domains[policy::DomainId{1}].name = std::string(200, 'd');
  recorder.Begin(state, Time{});
  for (int i = 0; i < steps; ++i)
    recorder.Record(policy::ProcGone{{i + 1, 7}}, Time(std::chrono::seconds(i)), {}, state);
  recorder.Flush();
  return storage.All();
}

struct Read {
  int segments = 0;
  int steps = 0;
  bool torn = false;
};
std::optional<Read> ReadAll(const std::string& bytes) {
  auto reader = trace::Reader::FromBytes(bytes, "test");
  if (!reader.ok()) return std::nullopt;
  Read read;
  while (const auto record = reader->Next()) {
    (record->has_segment() ? read.segments : read.steps) += 1;
  }
  read.torn = reader->torn();
  return read;
}

struct ReaderFolder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("headroom-reader-test-" + std::to_string(getpid()));
  ReaderFolder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~ReaderFolder() { std::filesystem::remove_all(path); }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return path / name;
  }
};

std::string ExportAll(trace::Export& from, size_t max_bytes) {
  std::string all;
  for (;;) {
    const auto piece = from.Next(max_bytes);
    REQUIRE(piece.ok());
    if (piece->empty()) return all;
    CHECK(piece->size() <= max_bytes);
    all += *piece;
  }
}

}  // namespace

TEST_CASE("a tail torn at any byte ends the reading, and no sooner") {
  const std::string whole = Segment(20);
  const std::string head = Segment(0);
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    const auto read = ReadAll(whole.substr(0, cut));
    INFO("cut at " << cut);
    if (cut < head.size()) {
      CHECK_FALSE(read);
      continue;
    }
    REQUIRE(read);
    CHECK(read->segments == 1);
    if (cut == whole.size()) {
      CHECK(read->steps == 20);
      CHECK_FALSE(read->torn);
    }
  }
  // A power loss leaves zeros.
  const auto zeros = ReadAll(whole + std::string(4096, '\0'));
  REQUIRE(zeros);
  CHECK(zeros->steps == 20);
  CHECK(zeros->torn);
}

TEST_CASE("several segments in one file are read one after the other") {
  const auto read = ReadAll(Segment(3) + Segment(4));
  REQUIRE(read);
  CHECK(read->segments == 2);
  CHECK(read->steps == 7);
  CHECK_FALSE(read->torn);
}

TEST_CASE("what is no trace is refused") {
  CHECK_FALSE(ReadAll(""));
  CHECK_FALSE(ReadAll("hello"));
  CHECK_FALSE(ReadAll(std::string(100, '\xff')));
  CHECK_FALSE(trace::Reader::Open("/nonexistent/trace").ok());
  CHECK(absl::IsNotFound(trace::Reader::Open("/nonexistent/trace").status()));
  CHECK_FALSE(trace::Reader::Open("/dev/null").ok());
  CHECK_FALSE(trace::Reader::Open("/tmp").ok());
  // A step first.
  const std::string whole = Segment(1);
  CHECK_FALSE(ReadAll(whole.substr(Segment(0).size())));
}

TEST_CASE("a file of absurd size is refused before it is read") {
  const ReaderFolder temp;
  const std::string path = temp.Write("sparse", "x");
  std::error_code error;
  std::filesystem::resize_file(path, uintmax_t{1} << 40, error);
  if (error) {
    std::puts("SKIPPED: this file system has no sparse files of 1 TiB");
    return;
  }
  const auto reader = trace::Reader::Open(path);
  CHECK(absl::IsInvalidArgument(reader.status()));
  CHECK(std::string(reader.status().message()).find(path) != std::string::npos);
}

TEST_CASE("random damage never does more than end the reading") {
  const std::string whole = Segment(50);
  std::mt19937_64 rng(1);
  for (int i = 0; i < 3000; ++i) {
    std::string bad = whole;
    for (uint64_t n = 1 + rng() % 3; n > 0; --n) bad[rng() % bad.size()] = static_cast<char>(rng());
    const auto read = ReadAll(bad);
    // Damage may turn a step's bytes into other steps, but never into more than the bytes hold.
    if (read) CHECK(static_cast<size_t>(read->steps) < bad.size());
  }
}

TEST_CASE("an export leaves torn ends out and keeps the rest whole") {
  const ReaderFolder temp;
  const std::string first = Segment(30);
  const std::string second = Segment(40);
  const std::string torn = second.substr(0, second.size() - 3);
  const std::vector<std::string> paths = {temp.Write("1", first), temp.Write("2", torn),
                                          temp.path / "gone", temp.Write("3", ""),
                                          temp.Write("4", first)};
  for (const size_t chunk : {size_t{7}, size_t{64}, size_t{500}, size_t{1} << 20}) {
    INFO("chunks of " << chunk);
    auto from = trace::Export::Open(paths);
    REQUIRE(from.ok());
    // The ring may drop a file while it is read.
    const auto read = ReadAll(ExportAll(*from, chunk));
    REQUIRE(read);
    CHECK(read->segments == 3);
    CHECK(read->steps == 30 + 39 + 30);
    CHECK_FALSE(read->torn);
  }
  auto from = trace::Export::Open(paths);
  REQUIRE(from.ok());
  std::filesystem::remove(paths[0]);
  CHECK(ReadAll(ExportAll(*from, 100))->segments == 3);
  CHECK_FALSE(trace::Export::Open({"/dev/null"}).ok());
}
