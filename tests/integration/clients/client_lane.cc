#include "tests/integration/clients/client_lane.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace headroom::testing {
namespace {

// The line below the table's heading; no other table of the page has so many columns.
constexpr char kUnderHeading[] = "| --- | --- | --- | --- | --- | --- | --- |";

}  // namespace

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ClientLane::ClientLane(int tokens) : lane_(dir_ / "lane"), fewest_(tokens) {
  fs::create_directories(lane_ / "slots");
  const std::string fifo = (lane_ / "fifo").string();
  if (mkfifo(fifo.c_str(), 0600) != 0) throw std::runtime_error("mkfifo " + fifo);
  fd_ = open(fifo.c_str(), O_RDWR | O_CLOEXEC);
  if (fd_ < 0) throw std::runtime_error("open " + fifo);
  Add(tokens);
  gate_.emplace(lane_);
  watcher_ = std::thread([this] {
    while (!stop_) {
      fewest_ = std::min<int>(fewest_, Idle());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
}

ClientLane::~ClientLane() {
  stop_ = true;
  watcher_.join();
  gate_.reset();
  close(fd_);
}

int ClientLane::Idle() const {
  int count = -1;
  ioctl(fd_, FIONREAD, &count);
  return count;
}

void ClientLane::Add(int tokens) {
  const std::string text(static_cast<std::size_t>(tokens), '+');
  if (write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error("cannot write tokens");
}

int ClientLane::Asked(const std::string& tool) const {
  int count = 0;
  for (const GateEvent& event : gate_->Events())
    count += !event.closed && event.type == gate::MessageType::kRequest && event.attempt == 1 &&
             std::string(event.request.tool) == tool;
  return count;
}

ProgramOptions ClientLane::Options(Words argv) const {
  ProgramOptions options;
  options.argv = std::move(argv);
  options.cwd = dir_.path();
  options.env = {
      {"MAKEFLAGS", " -j8 --jobserver-auth=fifo:" + (lane_ / "fifo").string()},
      {"CARGO_MAKEFLAGS", "-j8 --jobserver-auth=fifo:" + (lane_ / "fifo").string()},
      {"HEADROOM_LANE", lane_.string()},
      {"HEADROOM_CORES", "8"},
      {"LD_PRELOAD", HEADROOM_PRELOAD_LIBRARY},
      {"ASAN_OPTIONS", "verify_asan_link_order=0"},
      {"CCACHE_DISABLE", "1"},
      {"MFLAGS", std::nullopt},
      {"MAKELEVEL", std::nullopt},
      {"GNUMAKEFLAGS", std::nullopt},
      {"MAX_JOBS", std::nullopt},
      {"CMAKE_BUILD_PARALLEL_LEVEL", std::nullopt},
      {"CMAKE_GENERATOR", std::nullopt},
      {"NVCC_APPEND_FLAGS", std::nullopt},
  };
  return options;
}

void Skip(const std::string& reason) {
  std::cout << "SKIPPED: " << reason << "\n";
}

std::string VersionOf(const Words& argv) {
  const ProgramResult result = Run(argv);
  std::smatch match;
  const std::string text = result.out + result.err;
  if (!std::regex_search(text, match, std::regex(R"((\d+\.\d+))"))) return "";
  return match[1];
}

void CheckDocumented(const ClientRow& row) {
  const fs::path page = fs::path(HEADROOM_SOURCE_DIR) / "docs/clients.md";
  const std::string wanted = "| " + row.name + " | " + row.tokens + " | " + row.gate + " | " +
                             row.cap + " | " + row.wakes + " | " + row.leaks + " | " + row.note +
                             " |";
  // The tool's name without its version.
  const std::string tool = std::regex_replace(row.name, std::regex(R"( \d[\d.]*)"), "");
  const std::string page_text = ReadFile(page);
  const std::string begin = "| " + row.name + " | ";
  const bool update = std::getenv("HEADROOM_UPDATE_DOCS") != nullptr;
  bool there = page_text.find("\n" + begin) != std::string::npos;
  bool other_version = false;
  std::string text;
  std::istringstream lines(page_text);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, begin.size(), begin) == 0) {
      ++rows;
      if (update) {
        line = wanted;
      } else {
        CHECK(line == wanted);
      }
    } else if (line.compare(0, 2, "| ") == 0) {
      const std::string name = line.substr(2, std::max<std::size_t>(line.find(" |", 2), 2) - 2);
      other_version |= std::regex_replace(name, std::regex(R"( \d[\d.]*)"), "") == tool;
    }
    text += line + "\n";
    if (update && !there && line == kUnderHeading) {
      text += wanted + "\n";
      there = true;
    }
  }
  CHECK(rows <= 1);
  if (update) {
    WriteFile(page, text);
    return;
  }
  INFO("docs/clients.md: no row of " << row.name << "; this is it:\n"
                                     << wanted
                                     << "\nHEADROOM_UPDATE_DOCS=1 in the environment of this test "
                                        "writes it there");
  CHECK((there || other_version));
}

}  // namespace headroom::testing
