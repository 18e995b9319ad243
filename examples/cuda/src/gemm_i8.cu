#include "gemm.cuh"
#include "register_all.h"

namespace kernels {

void RegisterGemmI8(Registry& registry) {
  using Shapes = TypeList<GemmShape<64, 64, 16, 4, 4>, GemmShape<64, 128, 16, 4, 8>,
                          GemmShape<128, 64, 16, 8, 4>, GemmShape<128, 128, 16, 8, 8>>;
  AddGemm<std::int8_t>(registry, Shapes{}, TypeList<Identity, Relu>{});
}

}  // namespace kernels
