#include "register_all.h"
#include "visit.h"

namespace parts {

void RegisterVisitTriplesF32(Checks& checks) {
  AddTriples<float>(checks, "f32", Sizes<6>{});
}

}  // namespace parts
