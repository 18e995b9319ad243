#include "reduce.cuh"
#include "register_all.h"

namespace kernels {

void RegisterReduceMoments(Registry& registry) {
  AddReduce<float, Moments>(registry, IntList<128, 256>{}, IntList<4, 8, 16, 32>{});
  AddReduce<double, Moments>(registry, IntList<128, 256>{}, IntList<4, 8, 16, 32>{});
}

}  // namespace kernels
