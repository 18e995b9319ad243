// The simulator's own random numbers: the same on every machine and standard library, so that a
// seed names a run. Not for anything that needs to be unpredictable.
#ifndef HEADROOM_SERVER_SIM_RNG_H_
#define HEADROOM_SERVER_SIM_RNG_H_

#include <cmath>
#include <cstdint>

namespace headroom::sim {

// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit word of state, every seed is a good one.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15U;
    uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }
  // In [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11U) * 0x1.0p-53; }
  double Uniform(double low, double high) { return low + (high - low) * Unit(); }
  // In [low, high], both included. The bias of the modulus is below 2^-50 for the small ranges
  // here.
  int Int(int low, int high) {
    return low + static_cast<int>(Next() % (static_cast<uint64_t>(high - low) + 1));
  }
  bool Chance(double p) { return Unit() < p; }
  // Log-uniform: as likely to lie in [a, 2a] as in [2a, 4a].
  double LogUniform(double low, double high) {
    return low * std::exp(Unit() * std::log(high / low));
  }

 private:
  uint64_t state_;
};

// A seed for a part of a run, from the run's seed and what names the part. The part's numbers then
// do not depend on the order in which a policy happens to ask for them.
constexpr uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9E3779B97F4A7C15U * (b + 1);
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

}  // namespace headroom::sim

#endif  // HEADROOM_SERVER_SIM_RNG_H_
