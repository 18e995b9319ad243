#include "hash.cuh"
#include "register_all.h"

namespace kernels {

void RegisterSha256Long(Registry& registry) {
  AddSha256<1>(registry, IntList<16, 32, 40>{});
}

}  // namespace kernels
