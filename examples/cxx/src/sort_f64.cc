#include "register_all.h"
#include "sort.h"

namespace parts {

void RegisterSortF64(Checks& checks) {
  AddSort<double, std::less<double>>(checks, "f64_up", Sizes<8, 16, 32, 64>{});
  AddSort<double, std::greater<double>>(checks, "f64_down", Sizes<8, 16, 32, 64>{});
}

}  // namespace parts
