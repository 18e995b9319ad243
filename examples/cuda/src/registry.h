// The list of kernels that this program can run. Each .cu file adds its own by a function
// Register...(), which register_all.h declares.
#ifndef EXAMPLES_CUDA_REGISTRY_H_
#define EXAMPLES_CUDA_REGISTRY_H_

#include <cstddef>
#include <string>
#include <vector>

namespace kernels {

// Device memory that a run may use as it likes: three buffers of `bytes` bytes.
struct Workspace {
  void* in = nullptr;
  void* other = nullptr;
  void* out = nullptr;
  std::size_t bytes = 0;
};

struct Entry {
  std::string family;
  std::string name;
  void (*run)(const Workspace&);  // launches the kernel on the default stream
};

class Registry {
 public:
  void Add(const std::string& family, const std::string& name, void (*run)(const Workspace&));
  const std::vector<Entry>& entries() const { return entries_; }
  // Those whose "family/name" contains `part`.
  std::vector<Entry> Matching(const std::string& part) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace kernels

#endif  // EXAMPLES_CUDA_REGISTRY_H_
