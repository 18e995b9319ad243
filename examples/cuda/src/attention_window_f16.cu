#include "attention.cuh"
#include "register_all.h"

namespace kernels {

void RegisterAttentionWindowF16(Registry& registry) {
  AddAttention<__half, WindowMask, 64>(registry, IntList<16>{});
  AddAttention<__half, WindowMask, 32>(registry, IntList<16>{});
}

}  // namespace kernels
