#include "fft.cuh"
#include "register_all.h"

namespace kernels {

void RegisterFftF64(Registry& registry) {
  AddFft<double>(registry, IntList<8, 16, 32, 64>{});
}

}  // namespace kernels
