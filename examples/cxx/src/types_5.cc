#include "register_all.h"
#include "types.h"

namespace parts {

void RegisterTypes5(Checks& checks) {
  AddTypes<5>(checks, Sizes<48, 64>{});
}

}  // namespace parts
