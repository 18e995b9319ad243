#include "fft.h"
#include "register_all.h"

namespace parts {

void RegisterFftF64Long(Checks& checks) {
  AddFft<double>(checks, "f64", Sizes<128, 256>{});
}

}  // namespace parts
