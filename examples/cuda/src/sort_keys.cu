#include "register_all.h"
#include "sort.cuh"

namespace kernels {

void RegisterSortKeys(Registry& registry) {
  AddSort<KeyOnly<float>>(registry, IntList<8, 16, 32, 64>{});
  AddSort<KeyOnly<double>>(registry, IntList<8, 16, 32, 64>{});
  AddSort<KeyOnly<std::int32_t>>(registry, IntList<8, 16, 32, 64>{});
  AddSort<KeyOnly<std::uint32_t>>(registry, IntList<8, 16, 32, 64>{});
  AddSort<KeyOnly<std::int64_t>>(registry, IntList<8, 16, 32, 64>{});
  AddSort<KeyOnly<__half>>(registry, IntList<8, 16, 32, 64>{});
}

}  // namespace kernels
