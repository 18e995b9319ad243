// A lane without a daemon: a fifo with a few tokens that never change. For builds on machines where
// no headroomd can be had; slower than it could be, and never a stampede.
#ifndef HEADROOM_CLIENT_CLI_CAREFUL_LANE_H_
#define HEADROOM_CLIENT_CLI_CAREFUL_LANE_H_

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/sys/fifo.h"

namespace headroom::cli {

// Jobs at once where nobody looks after memory: one for each 4 GiB that is available, at most the
// cores, at least one. cicc takes 3.5 to 7 GB on flash-attn, most C++ a few hundred MB: many CUDA
// builds pass with it, and no machine is brought down at once by one that doesn't.
inline constexpr int64_t kCarefulBytesPerJob = int64_t{4} << 30;
unsigned CarefulJobs(unsigned cores, std::optional<int64_t> available_bytes);

// What is available to this process: the least of the host's MemAvailable and what its cgroups
// leave. Unset: it can't be told.
std::optional<int64_t> AvailableBytes();

class CarefulLane {
 public:
  // Makes the lane's folder in the first of `places` that takes it (a new name, 0700), and fills
  // the fifo for `jobs` at once (one less than that: each client has one without a token).
  static absl::StatusOr<CarefulLane> Create(const std::vector<std::string>& places, unsigned jobs);
  CarefulLane(CarefulLane&&) noexcept;
  CarefulLane& operator=(CarefulLane&&) noexcept;
  // Removes the folder: the build is over.
  ~CarefulLane();

  const std::string& dir() const { return dir_; }

 private:
  CarefulLane(std::string dir, sys::Fifo fifo) : dir_(std::move(dir)), fifo_(std::move(fifo)) {}
  std::string dir_;
  sys::Fifo fifo_;
};

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_CAREFUL_LANE_H_
