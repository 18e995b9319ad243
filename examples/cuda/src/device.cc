#include "device.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <stdexcept>
#include <vector>

namespace kernels {
namespace {

void Check(cudaError_t error, const std::string& what) {
  if (error != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(error));
}

void* Allocate(std::size_t bytes, const std::vector<char>& content) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, bytes),
        "cannot allocate " + std::to_string(bytes) + " bytes on the device");
  Check(cudaMemcpy(memory, content.data(), bytes, cudaMemcpyHostToDevice),
        "cannot fill device memory");
  return memory;
}

}  // namespace

std::string WhyNoDevice() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return count > 0 ? "" : "no CUDA device";
}

DeviceMemory::DeviceMemory(std::size_t bytes) {
  // 0x3c, twice, is 1.06 as f16, 0.011 as bf16 and f32, 1.5e-17 as f64 and 60 as i8: no infinities,
  // no zeros.
  std::vector<char> content(bytes, 0x3c);
  for (std::size_t i = 0; i < bytes; i += 64) content[i] = static_cast<char>(i / 64 % 61);
  workspace_.bytes = bytes;
  workspace_.in = Allocate(bytes, content);
  workspace_.other = Allocate(bytes, content);
  workspace_.out = Allocate(bytes, content);
}

DeviceMemory::~DeviceMemory() {
  cudaFree(workspace_.in);
  cudaFree(workspace_.other);
  cudaFree(workspace_.out);
}

double TimeKernel(const Entry& entry, const Workspace& workspace, int repeats) {
  const std::string name = entry.family + "/" + entry.name;
  cudaEvent_t begin;
  cudaEvent_t end;
  Check(cudaEventCreate(&begin), name);
  Check(cudaEventCreate(&end), name);
  entry.run(workspace);
  Check(cudaGetLastError(), "cannot launch " + name);
  Check(cudaEventRecord(begin), name);
  for (int i = 0; i < repeats; ++i) entry.run(workspace);
  Check(cudaEventRecord(end), name);
  Check(cudaEventSynchronize(end), name + " failed");
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end), name);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(milliseconds) / repeats;
}

}  // namespace kernels
