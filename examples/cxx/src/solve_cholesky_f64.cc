#include "register_all.h"
#include "solve.h"

namespace parts {

void RegisterSolveCholeskyF64(Checks& checks) {
  AddSolve<double, Cholesky>(checks, "f64", Sizes<4, 8, 12, 16, 20>{});
}

}  // namespace parts
