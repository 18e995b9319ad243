// The functions that the other .cc files define, one each; register_all.cc calls them all.
#ifndef EXAMPLES_CXX_REGISTER_ALL_H_
#define EXAMPLES_CXX_REGISTER_ALL_H_

#include "common.h"

namespace parts {

void RegisterFftExtended(Checks& checks);
void RegisterFftF32(Checks& checks);
void RegisterFftF64(Checks& checks);
void RegisterFftF64Long(Checks& checks);
void RegisterSolveCholeskyF32(Checks& checks);
void RegisterSolveCholeskyF64(Checks& checks);
void RegisterSolveLuF32(Checks& checks);
void RegisterSolveLuF64(Checks& checks);
void RegisterSortF32(Checks& checks);
void RegisterSortF64(Checks& checks);
void RegisterSortI32(Checks& checks);
void RegisterSortI64(Checks& checks);
void RegisterSortU8(Checks& checks);
void RegisterTypes1(Checks& checks);
void RegisterTypes3(Checks& checks);
void RegisterTypes5(Checks& checks);
void RegisterTypes7(Checks& checks);
void RegisterVisitPairsF32(Checks& checks);
void RegisterVisitPairsF64(Checks& checks);
void RegisterVisitPairsI32(Checks& checks);
void RegisterVisitTriplesF32(Checks& checks);
void RegisterVisitTriplesF64(Checks& checks);
void RegisterVisitTriplesI32(Checks& checks);
void RegisterVisitTriplesI64(Checks& checks);

void RegisterAll(Checks& checks);

}  // namespace parts

#endif  // EXAMPLES_CXX_REGISTER_ALL_H_
