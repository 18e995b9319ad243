#include "register_all.h"
#include "sort.h"

namespace parts {

void RegisterSortI64(Checks& checks) {
  AddSort<long, std::less<long>>(checks, "i64_up", Sizes<8, 16, 32, 64>{});
}

}  // namespace parts
