// The GPU, for code that nvcc doesn't compile.
#ifndef EXAMPLES_CUDA_DEVICE_H_
#define EXAMPLES_CUDA_DEVICE_H_

#include <string>

#include "registry.h"

namespace kernels {

// Why no kernel can run here; empty if it can.
std::string WhyNoDevice();

// Three buffers on the device, filled with small numbers that make sense in every type. Throws
// std::runtime_error if the device hasn't that much memory.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  const Workspace& workspace() const { return workspace_; }

 private:
  Workspace workspace_;
};

// Milliseconds that one run takes, as the mean of `repeats` after a first one that isn't counted.
// Throws std::runtime_error with CUDA's own words if the kernel fails.
double TimeKernel(const Entry& entry, const Workspace& workspace, int repeats);

}  // namespace kernels

#endif  // EXAMPLES_CUDA_DEVICE_H_
