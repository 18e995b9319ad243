#include "gemm.cuh"
#include "register_all.h"

namespace kernels {

void RegisterGemmF32(Registry& registry) {
  using Shapes =
      TypeList<GemmShape<64, 64, 8, 4, 4>, GemmShape<64, 64, 16, 8, 8>, GemmShape<128, 64, 8, 8, 4>,
               GemmShape<128, 128, 8, 8, 8>, GemmShape<128, 128, 16, 8, 8>>;
  AddGemm<float>(registry, Shapes{}, TypeList<Identity, Relu, Gelu>{});
}

}  // namespace kernels
