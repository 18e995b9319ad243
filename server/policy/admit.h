// The plan: what all that runs is expected to take in each domain over the horizons, and whether
// one more fits. Both ways of admission (tokens, the gate) ask it the same question.
#ifndef HEADROOM_SERVER_POLICY_ADMIT_H_
#define HEADROOM_SERVER_POLICY_ADMIT_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "server/policy/action.h"
#include "server/policy/predict.h"
#include "server/policy/state.h"

namespace headroom::policy {

// Safety of the sum, in standard deviations. A token can't be taken back once its job runs, so the
// sum stays below the domain with 95 %; an admission at the gate can be undone cheaply, and the
// measured optimum there is the mean alone (design.md, 'The gate works').
inline constexpr double kTokenSafety = 1.65;
inline constexpr double kGateSafety = 0;

// What is planned with as one: a job of an ungated lane, else a tool process.
struct Unit {
  bool job = false;
  size_t index = 0;  // in State::jobs or State::procs
  LaneId lane = LaneId::kNone;
  int domain = -1;  // position in Plan::domains()
  int slot = -1;    // of its class
  bool frozen = false;
  Time since{};
  Bytes now;
  Forecast forecast;
};

// One more of something that does not run yet; a mixture where it is not known what.
struct Addition {
  struct Part {
    int slot = -1;
    double share = 1;
    Forecast forecast;
  };
  std::vector<Part> parts;
  OverTime growth{};
  OverTime own_var{};
  double need = 0;  // expected peak
};

class Plan {
 public:
  struct Domain {
    DomainId id = DomainId::kNone;
    int parent = -1;
    double available = 0;
    double reserve = 0;  // the domain's own, without wishes of lanes
    double limit = 0;
    double fill_rate = 0;
    double foreign_rate = 0;
    OverTime growth{};
    double rising = 0;  // until the first horizon, of those that grow: what others give back by
                        // then they have still now, and what starts takes its first bytes at once
    OverTime own_var{};
    OverTime common_var{};
    int units = 0;  // that run and are not frozen
  };

  // `extra`: classes that additions will be made of.
  Plan(State& state, const std::vector<uint32_t>& extra);

  const Predictor& predictor() const { return predictor_; }
  const std::vector<Unit>& units() const { return units_; }
  bool any_frozen() const { return any_frozen_; }  // when the plan was made, or since
  const std::vector<Domain>& domains() const { return domains_; }
  int DomainOf(DomainId id) const;  // position; -1: nothing is known

  Addition Of(const std::vector<std::pair<uint32_t, double>>& classes, Bytes floor,
              int64_t input_bytes = 0) const;

  // Bytes that would be left in the tightest of the domain and those above it after `count` more
  // (0: as it is); below zero: they do not fit. `lane`: whose reserve counts.
  struct Room {
    double bytes = 0;
    int domain = -1;     // that binds
    size_t horizon = 0;  // at which
    double growth = 0;   // expected there
    double safety = 0;
    double reserve = 0;
    double available = 0;
  };
  Room After(int domain, const Addition* addition, double count, double safety,
             const LaneState* lane) const;
  // The same for the domain alone, as it is.
  Room Own(int domain, double safety) const;
  // Takes them into the plan.
  void Add(int domain, const Addition& addition, double count);
  // Takes a unit's growth out of the plan (it is frozen or evicted) or in again (thawed).
  void Freeze(size_t unit);
  void Thaw(size_t unit);

 private:
  void FindDomains();
  void AddUnit(const Unit& unit);
  void Spread();
  void Account(size_t domain, const Unit& unit, double sign);
  // Bytes in a domain for an error of 1 in a class's mean; made when first asked for.
  OverTime& Common(size_t domain, int slot);
  Room Within(int domain, const OverTime& growth, const OverTime& var, double safety,
              double reserve) const;
  double Learned(int slot) const;  // how well a class's course is known

  const State& state_;
  Predictor predictor_;
  std::vector<Domain> domains_;
  std::vector<std::pair<DomainId, int>> positions_;  // of all domains of the state, by id
  int host_ = -1;
  // Few classes run in each domain: their positions in `common_`, by domain and slot; -1: none.
  std::vector<int32_t> rows_;
  std::vector<OverTime> common_;
  std::vector<Unit> units_;
  bool any_frozen_ = false;
};

// The inputs of a decision, for its reason.
Reason Because(ReasonCode code, const Plan& plan, const Plan::Room& room);

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_ADMIT_H_
