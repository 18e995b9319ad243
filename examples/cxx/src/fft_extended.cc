#include "fft.h"
#include "register_all.h"

namespace parts {

void RegisterFftExtended(Checks& checks) {
  AddFft<long double>(checks, "f80", Sizes<8, 16, 32, 64>{});
}

}  // namespace parts
