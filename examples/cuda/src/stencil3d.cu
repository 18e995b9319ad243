#include "register_all.h"
#include "stencil.cuh"

namespace kernels {

void RegisterStencil3d(Registry& registry) {
  AddStencil3d<float>(registry, IntList<1, 2, 3, 4>{}, IntList<2, 4>{});
  AddStencil3d<double>(registry, IntList<1, 2, 3, 4>{}, IntList<2, 4>{});
}

}  // namespace kernels
