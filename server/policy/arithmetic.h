// Quantities as plain numbers, for arithmetic with rates and probabilities. Private to
// server/policy.
#ifndef HEADROOM_SERVER_POLICY_ARITHMETIC_H_
#define HEADROOM_SERVER_POLICY_ARITHMETIC_H_

#include <chrono>

#include "server/policy/types.h"

namespace headroom::policy {

constexpr double Seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

constexpr double AsDouble(Bytes b) {
  return static_cast<double>(b.count);
}

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_ARITHMETIC_H_
