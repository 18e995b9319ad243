#include "attention.cuh"
#include "register_all.h"

namespace kernels {

void RegisterAttentionFullF32(Registry& registry) {
  AddAttention<float, FullMask, 32>(registry, IntList<8, 16>{});
}

}  // namespace kernels
