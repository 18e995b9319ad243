#include "client/cli/heartbeat.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdint>
#include <utility>

#include "client/cli/paths.h"
#include "client/cli/units.h"

namespace headroom::cli {
namespace {

namespace asio = boost::asio;
using std::chrono::seconds;

// Compilers that run for a minute while others wait for their memory are an everyday thing.
constexpr seconds kFirstAfter{10};
constexpr seconds kFirstPause{20};
constexpr seconds kLastPause{600};
constexpr seconds kLookEvery{2};

}  // namespace

std::optional<std::string> Heartbeat::Look(const v1::Status& status, const std::string& lane_dir,
                                           Time now) {
  const v1::Lane* lane = nullptr;
  uint32_t running = 0;
  for (const v1::Lane& other : status.lanes()) {
    running += other.tools_running();
    if (other.dir() == lane_dir) lane = &other;
  }
  if (lane == nullptr || lane->tools_waiting() == 0) return std::nullopt;
  // All cores busy: nothing to worry about, however long it takes.
  if (running >= lane->cores()) return std::nullopt;
  const std::chrono::nanoseconds stuck(
      static_cast<int64_t>(std::min<uint64_t>(lane->stuck_ns(), INT64_MAX)));
  if (stuck < kFirstAfter) return std::nullopt;
  if (said_ && now - *said_ < pause_) return std::nullopt;
  pause_ = said_ ? std::min(pause_ * 2, kLastPause) : kFirstPause;
  said_ = now;

  const int64_t taken = static_cast<int64_t>(lane->tools_bytes());
  const v1::Memory& memory = lane->waits_in();
  const int64_t total = static_cast<int64_t>(memory.total());
  std::string text = absl::StrCat(Count(lane->tools_waiting(), "tool waits", "tools wait"),
                                  " for memory: ", lane->tools_running(), " running ",
                                  lane->tools_running() == 1 ? "takes " : "take ",
                                  HumanBytes(taken), " of ", HumanBytes(total));
  // What is neither free nor this build's, where it is much.
  const int64_t others = total - memory.available() - taken;
  if (others > total / 4) absl::StrAppend(&text, ", other processes ", HumanBytes(others));
  return text;
}

HeartbeatLoop::HeartbeatLoop(asio::io_context& io, Options options)
    : io_(io), options_(std::move(options)), timer_(io) {}

asio::awaitable<void> HeartbeatLoop::Run() {
  Heartbeat heartbeat;
  v1::Request request;
  request.mutable_status();
  while (!stopped_) {
    timer_.expires_after(kLookEvery);
    co_await timer_.async_wait(asio::as_tuple(asio::use_awaitable));
    if (stopped_) co_return;
    if (connection_ == nullptr) {
      auto connection = Connection::Open(io_, SocketPath(options_.runtime_dir()), options_.uid);
      if (!connection.ok()) continue;
      connection_ = *std::move(connection);
    }
    const auto response = co_await connection_->Call(request);
    if (stopped_) co_return;
    if (!response.ok() || !response->has_status()) {
      connection_.reset();
      continue;
    }
    const auto line =
        heartbeat.Look(response->status(), options_.lane_dir, std::chrono::steady_clock::now());
    if (line) options_.say(*line);
  }
}

void HeartbeatLoop::Stop() {
  stopped_ = true;
  timer_.cancel();
  if (connection_ != nullptr) connection_->Cancel();
}

}  // namespace headroom::cli
