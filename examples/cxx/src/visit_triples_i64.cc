#include "register_all.h"
#include "visit.h"

namespace parts {

void RegisterVisitTriplesI64(Checks& checks) {
  AddTriples<long>(checks, "i64", Sizes<9>{});
}

}  // namespace parts
