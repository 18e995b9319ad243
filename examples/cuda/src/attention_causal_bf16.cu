#include "attention.cuh"
#include "register_all.h"

namespace kernels {

void RegisterAttentionCausalBf16(Registry& registry) {
  AddAttention<__nv_bfloat16, CausalMask, 64>(registry, IntList<8>{});
}

}  // namespace kernels
