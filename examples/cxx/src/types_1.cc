#include "register_all.h"
#include "types.h"

namespace parts {

void RegisterTypes1(Checks& checks) {
  AddTypes<1>(checks, Sizes<64, 80>{});
}

}  // namespace parts
