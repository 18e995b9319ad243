#include "random.cuh"
#include "register_all.h"

namespace kernels {

void RegisterRandomF64(Registry& registry) {
  AddRandom<double, Normal>(registry, IntList<7, 10>{}, IntList<1, 4, 8>{});
  AddRandom<double, Cauchy>(registry, IntList<7, 10>{}, IntList<1, 4, 8>{});
  AddRandom<double, Exponential>(registry, IntList<7, 10>{}, IntList<1, 4, 8>{});
}

}  // namespace kernels
