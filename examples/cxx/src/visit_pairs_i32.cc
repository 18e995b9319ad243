#include "register_all.h"
#include "visit.h"

namespace parts {

void RegisterVisitPairsI32(Checks& checks) {
  AddPairs<int>(checks, "i32", Sizes<24>{});
}

}  // namespace parts
