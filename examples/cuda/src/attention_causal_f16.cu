#include "attention.cuh"
#include "register_all.h"

namespace kernels {

void RegisterAttentionCausalF16(Registry& registry) {
  AddAttention<__half, CausalMask, 64>(registry, IntList<8, 16>{});
}

}  // namespace kernels
