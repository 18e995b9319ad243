#include "register_all.h"
#include "stencil.cuh"

namespace kernels {

void RegisterStencil2dBox(Registry& registry) {
  AddStencil2d<float, Box>(registry, IntList<1, 2, 3>{}, IntList<4, 8>{});
  AddStencil2d<double, Box>(registry, IntList<1, 2, 3>{}, IntList<4, 8>{});
}

}  // namespace kernels
