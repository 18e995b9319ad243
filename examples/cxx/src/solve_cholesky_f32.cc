#include "register_all.h"
#include "solve.h"

namespace parts {

void RegisterSolveCholeskyF32(Checks& checks) {
  AddSolve<float, Cholesky>(checks, "f32", Sizes<4, 8, 12, 14>{});
}

}  // namespace parts
