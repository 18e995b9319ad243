#include "register_all.h"
#include "sort.h"

namespace parts {

void RegisterSortI32(Checks& checks) {
  AddSort<int, std::less<int>>(checks, "i32_up", Sizes<8, 16, 32, 64, 128>{});
  AddSort<int, std::greater<int>>(checks, "i32_down", Sizes<8, 16, 32, 64, 128>{});
}

}  // namespace parts
