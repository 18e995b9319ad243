#include "register_all.h"
#include "visit.h"

namespace parts {

void RegisterVisitPairsF64(Checks& checks) {
  AddPairs<double>(checks, "f64", Sizes<8, 12>{});
}

}  // namespace parts
