#include "convolution.cuh"
#include "register_all.h"

namespace kernels {

void RegisterConvolution7x7(Registry& registry) {
  AddConvolution<float, 7, 1>(registry, IntList<2, 4>{});
  AddConvolution<float, 7, 2>(registry, IntList<2>{});
  AddConvolution<__half, 7, 1>(registry, IntList<2, 4>{});
}

}  // namespace kernels
