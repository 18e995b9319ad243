#include "register_all.h"
#include "solve.h"

namespace parts {

void RegisterSolveLuF32(Checks& checks) {
  AddSolve<float, Lu>(checks, "f32", Sizes<4, 8, 12, 16>{});
}

}  // namespace parts
