#include "reduce.cuh"
#include "register_all.h"

namespace kernels {

void RegisterReduceExtremes(Registry& registry) {
  AddReduce<float, Maximum>(registry, IntList<128, 256, 512>{}, IntList<4, 8, 16>{});
  AddReduce<float, ArgMaximum>(registry, IntList<128, 256, 512>{}, IntList<4, 8, 16>{});
  AddReduce<std::int32_t, Maximum>(registry, IntList<128, 256, 512>{}, IntList<4, 8, 16>{});
}

}  // namespace kernels
