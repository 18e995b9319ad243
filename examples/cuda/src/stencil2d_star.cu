#include "register_all.h"
#include "stencil.cuh"

namespace kernels {

void RegisterStencil2dStar(Registry& registry) {
  AddStencil2d<float, Star>(registry, IntList<1, 2, 3, 4>{}, IntList<4, 8>{});
}

}  // namespace kernels
