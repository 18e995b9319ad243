#include "register_all.h"
#include "scan.cuh"

namespace kernels {

void RegisterScanSum(Registry& registry) {
  AddScan<float, Sum, false>(registry, IntList<128, 256, 512>{}, IntList<4, 8, 16>{});
  AddScan<std::int64_t, Sum, false>(registry, IntList<128, 256, 512>{}, IntList<4, 8, 16>{});
}

}  // namespace kernels
