#include "fft.h"
#include "register_all.h"

namespace parts {

void RegisterFftF32(Checks& checks) {
  AddFft<float>(checks, "f32", Sizes<8, 16, 32, 64, 128>{});
}

}  // namespace parts
