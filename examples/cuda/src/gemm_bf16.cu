#include "gemm.cuh"
#include "register_all.h"

namespace kernels {

void RegisterGemmBf16(Registry& registry) {
  using Shapes = TypeList<GemmShape<64, 64, 8, 4, 4>, GemmShape<64, 64, 16, 8, 8>,
                          GemmShape<128, 64, 8, 8, 4>>;
  AddGemm<__nv_bfloat16>(registry, Shapes{}, TypeList<Identity, Relu>{});
}

}  // namespace kernels
