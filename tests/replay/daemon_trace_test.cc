// The trace of a real headroomd with a build on it replays with the same actions: while it runs,
// and after kill -9.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/process.hpp>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "headroom/v1/control.pb.h"
#include "server/trace/reader.h"
#include "server/trace/replay.h"
#include "tests/support/control_client.h"
#include "tests/support/testing.h"

using namespace headroom;
using headroom::testing::ControlClient;
using namespace std::chrono_literals;
namespace bp = boost::process;
namespace fs = std::filesystem;

namespace {

trace::ReplayResult Replay(trace::Reader& reader) {
  trace::Replayer replayer;
  const auto result = replayer.Run(reader);
  INFO(result.status());
  REQUIRE(result.ok());
  INFO((result->difference ? result->difference->text : std::string()));
  CHECK_FALSE(result->difference);
  return *result;
}

// A build of short jobs: takes tokens as they come, holds each while a process runs.
int RunJobs(const std::string& lane_dir, std::chrono::milliseconds time) {
  const int fifo = open((lane_dir + "/fifo").c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(fifo >= 0);
  struct Job {
    bp::child child;
    std::optional<char> token;
  };
  std::vector<Job> jobs;
  int started = 0;
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until || !jobs.empty()) {
    std::erase_if(jobs, [&](Job& job) {
      if (job.child.running()) return false;
      if (job.token) CHECK(write(fifo, &*job.token, 1) == 1);
      return true;
    });
    if (std::chrono::steady_clock::now() < until) {
      char token = 0;
      const bool implicit =
          std::none_of(jobs.begin(), jobs.end(), [](const Job& job) { return !job.token; });
      const bool taken = !implicit && read(fifo, &token, 1) == 1;
      if (implicit || taken) {
        jobs.push_back(
            {bp::child("/bin/sleep", "0.2"), taken ? std::optional<char>(token) : std::nullopt});
        ++started;
        continue;
      }
    }
    std::this_thread::sleep_for(5ms);
  }
  close(fifo);
  return started;
}

}  // namespace

TEST_CASE("the trace of a real daemon replays with the same actions") {
  const headroom::testing::TempDir temp;
  const std::string runtime = temp.path().string() + "/run";
  const auto start = [&] {
    return bp::child(std::string(HEADROOM_BIN_DIR) + "/headroomd", "--config", "/dev/null",
                     "--runtime-dir", runtime, "--state-dir", temp.path().string() + "/state",
                     bp::std_out > bp::null, bp::std_err > temp.path().string() + "/log");
  };
  bp::child headroomd = start();
  std::string copied;
  {
    ControlClient connection(runtime + "/control.sock");
    v1::Request attach;
    attach.mutable_attach()->mutable_root()->set_pid(getpid());
    attach.mutable_attach()->mutable_root()->set_start(headroom::testing::OwnStart());
    attach.mutable_attach()->set_jobs(4);
    attach.mutable_attach()->set_cwd(temp.path().string());
    attach.mutable_attach()->add_argv("test");
    const v1::Response attached = connection.Ask(attach);
    INFO(attached.ShortDebugString());
    REQUIRE(attached.has_attached());
    CHECK(RunJobs(attached.attached().lane_dir(), 2500ms) > 3);

    v1::Request trace;
    trace.mutable_trace();
    v1::Response chunk = connection.Ask(trace);
    for (;; chunk = connection.Receive()) {
      INFO(chunk.ShortDebugString());
      REQUIRE(chunk.has_trace());
      copied += chunk.trace().data();
      if (chunk.trace().last()) break;
    }
  }
  auto reader = trace::Reader::FromBytes(copied, "copy");
  REQUIRE(reader.ok());
  const trace::ReplayResult live = Replay(*reader);
  CHECK_FALSE(live.torn);
  // A look each 250 ms at least, and an event of each that comes and goes.
  CHECK(live.steps > 20);
  CHECK(live.actions > 0);

  // Killed: what lies on the disk is readable, and a new daemon adds to it.
  headroomd.terminate();
  headroomd = start();
  {
    ControlClient connection(runtime + "/control.sock");
    v1::Request status;
    status.mutable_status();
    const v1::Response answer = connection.Ask(status);
    REQUIRE(answer.has_status());
    CHECK(answer.status().broken_invariants() == 0);
    CHECK(answer.status().version() == HEADROOM_VERSION);
  }
  std::this_thread::sleep_for(1500ms);
  headroomd.terminate();
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(temp.path().string() + "/state/trace")) {
    if (entry.path().extension() == ".trace") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() == 2);
  uint64_t steps = 0;
  for (const std::string& file : files) {
    INFO(file);
    auto from_disk = trace::Reader::Open(file);
    REQUIRE(from_disk.ok());
    steps += Replay(*from_disk).steps;
  }
  CHECK(steps >= live.steps);
}
