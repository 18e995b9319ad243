#include "convolution.cuh"
#include "register_all.h"

namespace kernels {

void RegisterConvolution5x5(Registry& registry) {
  AddConvolution<float, 5, 1>(registry, IntList<2, 4>{});
  AddConvolution<__half, 5, 1>(registry, IntList<4>{});
}

}  // namespace kernels
