#include "fft.h"
#include "register_all.h"

namespace parts {

void RegisterFftF64(Checks& checks) {
  AddFft<double>(checks, "f64", Sizes<8, 16, 32, 64>{});
}

}  // namespace parts
