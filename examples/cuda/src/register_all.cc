#include "register_all.h"

namespace kernels {

void RegisterAll(Registry& registry) {
  RegisterAttentionCausalBf16(registry);
  RegisterAttentionCausalF16(registry);
  RegisterAttentionFullF32(registry);
  RegisterAttentionWindowF16(registry);
  RegisterConvolution3x3(registry);
  RegisterConvolution5x5(registry);
  RegisterConvolution7x7(registry);
  RegisterFftF32(registry);
  RegisterFftF64(registry);
  RegisterFormulaF32(registry);
  RegisterFormulaF64(registry);
  RegisterGemmBf16(registry);
  RegisterGemmF16(registry);
  RegisterGemmF32(registry);
  RegisterGemmF64(registry);
  RegisterGemmI8(registry);
  RegisterRandomF32(registry);
  RegisterRandomF64(registry);
  RegisterReduceExtremes(registry);
  RegisterReduceMoments(registry);
  RegisterReduceSum(registry);
  RegisterScanMoments(registry);
  RegisterScanSum(registry);
  RegisterSegmentedScan(registry);
  RegisterSha256Long(registry);
  RegisterSha256Short(registry);
  RegisterSolveCholesky(registry);
  RegisterSolveLu(registry);
  RegisterSortKeys(registry);
  RegisterSortPairs(registry);
  RegisterStencil2dBox(registry);
  RegisterStencil2dStar(registry);
  RegisterStencil3d(registry);
}

}  // namespace kernels
