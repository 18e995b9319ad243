#include "client/cli/careful_lane.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "server/sys/cgroup.h"
#include "server/sys/meminfo.h"
#include "server/sys/roots.h"

namespace headroom::cli {

unsigned CarefulJobs(unsigned cores, std::optional<int64_t> available_bytes) {
  const int64_t fit = available_bytes ? *available_bytes / kCarefulBytesPerJob : 1;
  return static_cast<unsigned>(std::clamp<int64_t>(fit, 1, std::max(1u, cores)));
}

std::optional<int64_t> AvailableBytes() {
  const sys::Roots roots;
  std::optional<int64_t> available;
  if (const auto host = sys::ReadMemInfo(roots); host.ok()) available = host->available_bytes;
  if (const auto chain = sys::CgroupChain::OpenFor(roots, 0); chain.ok()) {
    if (const auto reading = chain->Read(); reading && reading->tightest) {
      const int64_t left = reading->tightest->available_bytes;
      available = std::min(available.value_or(left), left);
    }
  }
  return available;
}

absl::StatusOr<CarefulLane> CarefulLane::Create(const std::vector<std::string>& places,
                                                unsigned jobs) {
  absl::Status wrong = absl::FailedPreconditionError("there is no folder for a lane");
  for (const std::string& place : places) {
    std::string dir = place + "/headroom-lane-XXXXXX";
    if (mkdtemp(dir.data()) == nullptr) {
      wrong = absl::FailedPreconditionError(
          absl::StrCat(place, ": can't make a folder: ", std::strerror(errno)));
      continue;
    }
    auto fifo = sys::Fifo::Create(dir + "/fifo", geteuid());
    if (fifo.ok()) {
      CarefulLane lane(dir, *std::move(fifo));
      // Where gated tools go by their own rule when there is no daemon.
      mkdir((dir + "/slots").c_str(), 0700);
      const auto put = lane.fifo_.Put(static_cast<int64_t>(jobs) - 1);
      if (put.ok()) return lane;
      wrong = put.status();
      continue;
    }
    wrong = fifo.status();
    rmdir(dir.c_str());
  }
  return wrong;
}

CarefulLane::CarefulLane(CarefulLane&& other) noexcept
    : dir_(std::exchange(other.dir_, "")), fifo_(std::move(other.fifo_)) {}

CarefulLane& CarefulLane::operator=(CarefulLane&& other) noexcept {
  std::swap(dir_, other.dir_);
  std::swap(fifo_, other.fifo_);
  return *this;
}

CarefulLane::~CarefulLane() {
  std::error_code ignored;
  if (!dir_.empty()) std::filesystem::remove_all(dir_, ignored);
}

}  // namespace headroom::cli
