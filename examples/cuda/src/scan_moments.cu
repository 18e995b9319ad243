#include "register_all.h"
#include "scan.cuh"

namespace kernels {

void RegisterScanMoments(Registry& registry) {
  AddScan<double, Moments, false>(registry, IntList<128, 256>{}, IntList<4, 8>{});
  AddScan<float, Moments, false>(registry, IntList<128, 256>{}, IntList<4, 8, 16>{});
}

}  // namespace kernels
