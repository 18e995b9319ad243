#include "register_all.h"
#include "sort.h"

namespace parts {

void RegisterSortU8(Checks& checks) {
  AddSort<unsigned char, std::less<unsigned char>>(checks, "u8_up", Sizes<8, 16, 32, 64>{});
}

}  // namespace parts
