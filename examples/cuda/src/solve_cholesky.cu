#include "register_all.h"
#include "solve.cuh"

namespace kernels {

void RegisterSolveCholesky(Registry& registry) {
  AddSolve<float, Cholesky>(registry, IntList<4, 6, 8, 12, 16>{});
  AddSolve<double, Cholesky>(registry, IntList<4, 6, 8, 12, 16>{});
}

}  // namespace kernels
