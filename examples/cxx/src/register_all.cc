#include "register_all.h"

namespace parts {

void RegisterAll(Checks& checks) {
  RegisterFftExtended(checks);
  RegisterFftF32(checks);
  RegisterFftF64(checks);
  RegisterFftF64Long(checks);
  RegisterSolveCholeskyF32(checks);
  RegisterSolveCholeskyF64(checks);
  RegisterSolveLuF32(checks);
  RegisterSolveLuF64(checks);
  RegisterSortF32(checks);
  RegisterSortF64(checks);
  RegisterSortI32(checks);
  RegisterSortI64(checks);
  RegisterSortU8(checks);
  RegisterTypes1(checks);
  RegisterTypes3(checks);
  RegisterTypes5(checks);
  RegisterTypes7(checks);
  RegisterVisitPairsF32(checks);
  RegisterVisitPairsF64(checks);
  RegisterVisitPairsI32(checks);
  RegisterVisitTriplesF32(checks);
  RegisterVisitTriplesF64(checks);
  RegisterVisitTriplesI32(checks);
  RegisterVisitTriplesI64(checks);
}

}  // namespace parts
