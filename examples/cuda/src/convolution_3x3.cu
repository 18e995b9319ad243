#include "convolution.cuh"
#include "register_all.h"

namespace kernels {

void RegisterConvolution3x3(Registry& registry) {
  AddConvolution<float, 3, 1>(registry, IntList<2, 4>{});
  AddConvolution<float, 3, 2>(registry, IntList<2>{});
  AddConvolution<__half, 3, 1>(registry, IntList<2, 4>{});
  AddConvolution<__nv_bfloat16, 3, 1>(registry, IntList<2, 4>{});
}

}  // namespace kernels
