#include "register_all.h"
#include "scan.cuh"

namespace kernels {

void RegisterSegmentedScan(Registry& registry) {
  AddScan<float, Sum, true>(registry, IntList<128, 256>{}, IntList<4, 8, 16>{});
  AddScan<float, ArgMaximum, true>(registry, IntList<128, 256>{}, IntList<4, 8, 16>{});
}

}  // namespace kernels
