#include "register_all.h"
#include "solve.cuh"

namespace kernels {

void RegisterSolveLu(Registry& registry) {
  AddSolve<float, Lu>(registry, IntList<4, 8, 12, 16>{});
  AddSolve<double, Lu>(registry, IntList<4, 8, 12, 16>{});
}

}  // namespace kernels
