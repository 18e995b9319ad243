// The functions that the .cu files define, one each; register_all.cc calls them all.
#ifndef EXAMPLES_CUDA_REGISTER_ALL_H_
#define EXAMPLES_CUDA_REGISTER_ALL_H_

#include "registry.h"

namespace kernels {

void RegisterAttentionCausalBf16(Registry& registry);
void RegisterAttentionCausalF16(Registry& registry);
void RegisterAttentionFullF32(Registry& registry);
void RegisterAttentionWindowF16(Registry& registry);
void RegisterConvolution3x3(Registry& registry);
void RegisterConvolution5x5(Registry& registry);
void RegisterConvolution7x7(Registry& registry);
void RegisterFftF32(Registry& registry);
void RegisterFftF64(Registry& registry);
void RegisterFormulaF32(Registry& registry);
void RegisterFormulaF64(Registry& registry);
void RegisterGemmBf16(Registry& registry);
void RegisterGemmF16(Registry& registry);
void RegisterGemmF32(Registry& registry);
void RegisterGemmF64(Registry& registry);
void RegisterGemmI8(Registry& registry);
void RegisterRandomF32(Registry& registry);
void RegisterRandomF64(Registry& registry);
void RegisterReduceExtremes(Registry& registry);
void RegisterReduceMoments(Registry& registry);
void RegisterReduceSum(Registry& registry);
void RegisterScanMoments(Registry& registry);
void RegisterScanSum(Registry& registry);
void RegisterSegmentedScan(Registry& registry);
void RegisterSha256Long(Registry& registry);
void RegisterSha256Short(Registry& registry);
void RegisterSolveCholesky(Registry& registry);
void RegisterSolveLu(Registry& registry);
void RegisterSortKeys(Registry& registry);
void RegisterSortPairs(Registry& registry);
void RegisterStencil2dBox(Registry& registry);
void RegisterStencil2dStar(Registry& registry);
void RegisterStencil3d(Registry& registry);

void RegisterAll(Registry& registry);

}  // namespace kernels

#endif  // EXAMPLES_CUDA_REGISTER_ALL_H_
