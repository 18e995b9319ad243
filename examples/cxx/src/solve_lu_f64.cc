#include "register_all.h"
#include "solve.h"

namespace parts {

void RegisterSolveLuF64(Checks& checks) {
  AddSolve<double, Lu>(checks, "f64", Sizes<4, 8, 12, 16, 20, 24>{});
}

}  // namespace parts
