#include "register_all.h"
#include "visit.h"

namespace parts {

void RegisterVisitTriplesF64(Checks& checks) {
  AddTriples<double>(checks, "f64", Sizes<8>{});
}

}  // namespace parts
