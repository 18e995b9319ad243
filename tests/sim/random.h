// Random scenarios: machines, builds and compilers of all kinds, each named by its number.
#ifndef HEADROOM_TESTS_SIM_RANDOM_H_
#define HEADROOM_TESTS_SIM_RANDOM_H_

#include <cstdint>
#include <vector>

#include "server/sim/curves.h"
#include "server/sim/scenario.h"

namespace headroom::sim {

// Scenario `number` over recorded commands:
// - 4 to 256 cores, 1 to 8 GB a core, 1 to 6 archs, --threads 1 to 6, 1 to 3 builds of 12 commands
//   up to all of them;
// - every tool's memory times a third to three, its CPU time times a half to two (so that what
// ships
//   with Headroom or was learned elsewhere is wrong by that much); in one of four, ptxas as heavy
//   as that of CUDA 12;
// - in one of two, other load that comes and goes: up to 30 % of memory and a quarter of the cores;
// - noise of 5 % in every process;
// - any of the build tools that know the jobserver.
// Redrawn where the largest single process exceeds memory less the reserve (512 MiB or 3 %) and
// less what the other load takes at most.
Scenario RandomScenario(const std::vector<Command>& recorded, uint64_t number);

// Leaves knots out where a straight line is within `tolerance` of the peak: a recorded curve has
// some 130, of which 20 tell the same within 2 %.
void Simplify(Shape& shape, double tolerance);

}  // namespace headroom::sim

#endif  // HEADROOM_TESTS_SIM_RANDOM_H_
