#include "register_all.h"
#include "visit.h"

namespace parts {

void RegisterVisitTriplesI32(Checks& checks) {
  AddTriples<int>(checks, "i32", Sizes<7>{});
}

}  // namespace parts
