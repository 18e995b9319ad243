#include "register_all.h"
#include "types.h"

namespace parts {

void RegisterTypes7(Checks& checks) {
  AddTypes<7>(checks, Sizes<32, 48>{});
}

}  // namespace parts
