#include "random.cuh"
#include "register_all.h"

namespace kernels {

void RegisterRandomF32(Registry& registry) {
  AddRandom<float, Uniform>(registry, IntList<7, 10>{}, IntList<1, 4, 8>{});
  AddRandom<float, Normal>(registry, IntList<7, 10>{}, IntList<1, 4, 8>{});
  AddRandom<float, Exponential>(registry, IntList<10>{}, IntList<1, 4, 8>{});
}

}  // namespace kernels
