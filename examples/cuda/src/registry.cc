#include "registry.h"

namespace kernels {

void Registry::Add(const std::string& family, const std::string& name,
                   void (*run)(const Workspace&)) {
  entries_.push_back({family, name, run});
}

std::vector<Entry> Registry::Matching(const std::string& part) const {
  std::vector<Entry> found;
  for (const Entry& entry : entries_) {
    if ((entry.family + "/" + entry.name).find(part) != std::string::npos) found.push_back(entry);
  }
  return found;
}

}  // namespace kernels
