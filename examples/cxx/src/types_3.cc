#include "register_all.h"
#include "types.h"

namespace parts {

void RegisterTypes3(Checks& checks) {
  AddTypes<3>(checks, Sizes<64, 96>{});
}

}  // namespace parts
