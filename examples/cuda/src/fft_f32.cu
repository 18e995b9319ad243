#include "fft.cuh"
#include "register_all.h"

namespace kernels {

void RegisterFftF32(Registry& registry) {
  AddFft<float>(registry, IntList<8, 16, 32, 64, 128>{});
}

}  // namespace kernels
