#include "expression.cuh"
#include "register_all.h"

namespace kernels {

void RegisterFormulaF32(Registry& registry) {
  using namespace expression;
  AddFormula<float, Exp<Minus<Times<X, Y>, X>>>(registry, "exp", IntList<1, 4, 8, 16, 32>{});
  AddFormula<float, Horner<X, 12>>(registry, "horner12", IntList<1, 4, 8, 16, 32>{});
  AddFormula<float, Plus<Sine<X>, Cosine<Y>>>(registry, "trigonometric", IntList<1, 4, 8, 16, 32>{});
  AddFormula<float, Over<Tanh<X>, Sqrt<Y>>>(registry, "tanh", IntList<1, 4, 8, 16, 32>{});
  AddFormula<float, Power<X, Erf<Y>>>(registry, "power", IntList<1, 4, 8, 16, 32>{});
  AddFormula<float, Times<Gamma<X>, Horner<Y, 8>>>(registry, "gamma", IntList<1, 4, 8, 16, 32>{});
  AddFormula<float, Hypot<Cbrt<X>, Log1p<Y>>>(registry, "hypot", IntList<1, 4, 8, 16, 32>{});
}

}  // namespace kernels
