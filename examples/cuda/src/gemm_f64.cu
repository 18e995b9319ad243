#include "gemm.cuh"
#include "register_all.h"

namespace kernels {

void RegisterGemmF64(Registry& registry) {
  using Shapes =
      TypeList<GemmShape<32, 32, 8, 2, 2>, GemmShape<64, 64, 8, 4, 4>, GemmShape<64, 64, 16, 8, 4>>;
  AddGemm<double>(registry, Shapes{}, TypeList<Identity, Relu>{});
}

}  // namespace kernels
