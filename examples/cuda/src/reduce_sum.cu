#include "reduce.cuh"
#include "register_all.h"

namespace kernels {

void RegisterReduceSum(Registry& registry) {
  AddReduce<float, Sum>(registry, IntList<128, 256, 512>{}, IntList<4, 8, 16>{});
  AddReduce<double, Sum>(registry, IntList<128, 256, 512>{}, IntList<4, 8, 16>{});
  AddReduce<std::int64_t, Sum>(registry, IntList<128, 256, 512>{}, IntList<4, 8, 16>{});
  AddReduce<__half, Sum>(registry, IntList<128, 256, 512>{}, IntList<4, 8, 16>{});
}

}  // namespace kernels
