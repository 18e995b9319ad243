#include "expression.cuh"
#include "register_all.h"

namespace kernels {

void RegisterFormulaF64(Registry& registry) {
  using namespace expression;
  AddFormula<double, Exp<Minus<Times<X, Y>, X>>>(registry, "exp", IntList<1, 4, 8, 16, 32>{});
  AddFormula<double, Plus<Sine<X>, Cosine<Y>>>(registry, "trigonometric",
                                               IntList<1, 4, 8, 16, 32>{});
  AddFormula<double, Power<X, Erf<Y>>>(registry, "power", IntList<1, 4, 8, 16, 32>{});
  AddFormula<double, Hypot<Cbrt<X>, Horner<Y, 12>>>(registry, "hypot", IntList<1, 4, 8, 16, 32>{});
  AddFormula<double, Over<Tanh<X>, Sqrt<Y>>>(registry, "tanh", IntList<1, 4, 8, 16, 32>{});
  AddFormula<double, Times<Gamma<X>, Log1p<Y>>>(registry, "gamma", IntList<1, 4, 8, 16, 32>{});
}

}  // namespace kernels
