#include "hash.cuh"
#include "register_all.h"

namespace kernels {

void RegisterSha256Short(Registry& registry) {
  AddSha256<1>(registry, IntList<4, 8>{});
  AddSha256<2>(registry, IntList<4, 8>{});
}

}  // namespace kernels
