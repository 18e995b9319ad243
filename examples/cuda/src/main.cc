// kernels [--list] [PART]: times every kernel whose "family/name" contains PART, or lists them.
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "device.h"
#include "register_all.h"

int main(int argc, char** argv) {
  bool list = false;
  std::string part;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--list") == 0) {
      list = true;
    } else if (argv[i][0] == '-') {
      std::fprintf(stderr, "unknown option %s\nusage: %s [--list] [PART]\n", argv[i], argv[0]);
      return 2;
    } else {
      part = argv[i];
    }
  }
  kernels::Registry registry;
  kernels::RegisterAll(registry);
  const auto entries = registry.Matching(part);
  if (entries.empty()) {
    std::fprintf(stderr, "no kernel's name contains '%s'; --list shows them\n", part.c_str());
    return 1;
  }
  if (list) {
    for (const auto& entry : entries)
      std::printf("%s/%s\n", entry.family.c_str(), entry.name.c_str());
    return 0;
  }
  const std::string why = kernels::WhyNoDevice();
  if (!why.empty()) {
    std::fprintf(stderr, "cannot run kernels here: %s\n", why.c_str());
    return 1;
  }
  try {
    const kernels::DeviceMemory memory(std::size_t{64} << 20);
    for (const auto& entry : entries) {
      std::printf("%10.4f ms  %s/%s\n", kernels::TimeKernel(entry, memory.workspace(), 5),
                  entry.family.c_str(), entry.name.c_str());
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
