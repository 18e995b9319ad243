#include "register_all.h"
#include "sort.h"

namespace parts {

void RegisterSortF32(Checks& checks) {
  AddSort<float, std::less<float>>(checks, "f32_up", Sizes<8, 16, 32, 64>{});
}

}  // namespace parts
