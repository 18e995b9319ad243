#include "register_all.h"
#include "sort.cuh"

namespace kernels {

void RegisterSortPairs(Registry& registry) {
  AddSort<KeyValue<float, std::uint32_t>>(registry, IntList<8, 16, 32, 64>{});
}

}  // namespace kernels
