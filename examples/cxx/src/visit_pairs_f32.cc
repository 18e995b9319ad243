#include "register_all.h"
#include "visit.h"

namespace parts {

void RegisterVisitPairsF32(Checks& checks) {
  AddPairs<float>(checks, "f32", Sizes<8, 16>{});
}

}  // namespace parts
