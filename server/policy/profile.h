// What the policy has learned of sizes: a plain value, which server/history stores between builds.
//
// Serialisation, threading, errors: as server/policy/state.h, which has it as a member.
#ifndef HEADROOM_SERVER_POLICY_PROFILE_H_
#define HEADROOM_SERVER_POLICY_PROFILE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "server/policy/types.h"

namespace headroom::policy {

// Points of a curve's shape: memory as a share of the peak, at 0/16, 1/16, ... 16/16 of the CPU
// time from start to end. 16 tell a cicc's ramp (a third of its life) from its plateau.
inline constexpr int kShapePoints = 17;

// What processes (or jobs) of one class took: sums over those that have ended. Classes form trees:
// a tool ("cicc") has families of sources ("cicc flash_bwd_hdim128"); a driver's jobs ("job
// nvcc*4") hang below the tool that takes most of their memory, scaled by how many of it run at
// once.
struct Stats {
  std::string name;
  std::string key;          // tool or driver: selects the shipped prior
  bool job = false;         // sums of a job's processes, not single ones
  bool one_source = false;  // of one source only, not of a family or a whole tool
  int fan_out = 1;
  int32_t parent = -1;   // position of the class above, always a smaller one; -1: none
  double log_scale = 0;  // ln(typical peak here / typical peak of the parent)
  double count = 0;      // a weight: what an older build showed may count less than one each
  double log_peak = 0;   // sum of ln(peak bytes)
  double log_peak2 = 0;  // sum of squares
  double cpu_count = 0;
  double log_cpu = 0;  // sum of ln(CPU seconds from start to end)
  double log_cpu2 = 0;
  double shape_count = 0;
  std::array<double, kShapePoints> level{};  // sums of memory as shares of the peak
  std::array<double, kShapePoints> rise{};   // the same of the largest so far
  Bytes largest;
  static constexpr auto Fields() {
    return std::tuple(&Stats::name, &Stats::key, &Stats::job, &Stats::one_source, &Stats::fan_out,
                      &Stats::parent, &Stats::log_scale, &Stats::count, &Stats::log_peak,
                      &Stats::log_peak2, &Stats::cpu_count, &Stats::log_cpu, &Stats::log_cpu2,
                      &Stats::shape_count, &Stats::level, &Stats::rise, &Stats::largest);
  }
  friend bool operator==(const Stats&, const Stats&) = default;
};

// Learned sizes by class. A value: server/history stores it and hands it in again.
struct Profile {
  std::map<std::string, uint32_t> index;  // name -> position in classes
  std::vector<Stats> classes;             // never shrinks or reorders: processes hold positions
  static constexpr auto Fields() { return std::tuple(&Profile::index, &Profile::classes); }
  friend bool operator==(const Profile&, const Profile&) = default;
};

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_PROFILE_H_
