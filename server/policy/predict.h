// Prediction: what each running process (or job) is expected to take over the coming two minutes,
// how sure that is, and what one more of a kind would take.
//
// The model. The peaks of one class (a tool; a tool on one family of sources; a driver's jobs) are
// taken as log-normal: ln(peak) = mean of the class + own deviation. The mean is not known exactly
// either; its error is common to all members, and that error is what kills machines: all backward
// kernels of a first wave are heavier than the prior at once. So the sum of a domain has a variance
// of two parts: one independent for each process, one common to each class. What has ended, and
// what runs (the further it is along the class's curve, the more it tells), narrows both.
//
// Where the size of the input tells the peak (ptxas), a class's peaks are kept as those of one
// input of a common size, and scaled to each process's own.
//
// Classes form a tree: a source inherits from its family, a family from its tool, until it has
// shown enough by itself. Shipped priors are worth a few observations; a build dominates them with
// its first processes.
//
// Time is CPU time (a process that shares a core grows slower); horizons are wall time.
//
// All arithmetic runs in a fixed order: the same state gives the same bits in one build.
#ifndef HEADROOM_SERVER_POLICY_PREDICT_H_
#define HEADROOM_SERVER_POLICY_PREDICT_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/policy/state.h"
#include "server/policy/types.h"

namespace headroom::policy {

// Where a prediction comes from, in Input::kPredictionSource.
enum class PredictionSource : uint8_t {
  kPrior,    // shipped with the program
  kTool,     // what this tool took in this build
  kFamily,   // what this tool took on sources of the same family
  kHistory,  // the same source, an earlier time or for another arch
  kSpoiled,  // a test's fixed value
  kOff,      // prediction is switched off
};

// The moments at which sums are compared with a domain, wall seconds from now. A compiler's ramp
// takes 5 to 20 s, a job a minute or two; closest together where waves of them peak. What happens
// within the first second is the brake's part.
inline constexpr std::array<double, 12> kHorizonSeconds = {1,  2,  4,  8,  12, 16,
                                                           20, 26, 34, 48, 72, 110};
inline constexpr size_t kHorizons = kHorizonSeconds.size();
using OverTime = std::array<double, kHorizons>;  // one value for each horizon
// The same of one unit: seven digits are more than is known, and thousands of units pass by.
using UnitOverTime = std::array<float, kHorizons>;

// CPU ages at which Usage::marks are taken: 1/32 s and each further factor of 2^(1/4), 60 of them
// up to 860 s. A curve of more points would not change what is learned.
inline constexpr size_t kMarks = 60;

// Classes are bounded: a build of 20,000 C++ files must not fill the daemon with them. Half are for
// single sources.
inline constexpr size_t kMaxClasses = 4096;

// The class of a process or job; made when first asked for.
uint32_t ToolClass(Profile& profile, const std::string& tool, const std::string& source);
uint32_t JobClass(Profile& profile, const std::string& driver, int fan_out,
                  const std::string& source);

// The family of a source: the first words of its name, which tell the kernel and its size from its
// type and variant ("flash_bwd_hdim128_bf16_causal_sm80.cu": "flash_bwd_hdim128"). Empty: none.
std::string Family(std::string_view source);

// Books a new measurement. `anon` and `cpu` are totals.
void Update(Usage& use, Bytes anon, Duration cpu, Time now);

// A process or job has ended by itself: its class learns.
// `input_bytes` here and below: of the process's input file; 0: unknown.
void Learn(Profile& profile, uint32_t klass, const Usage& use, int64_t input_bytes = 0);

// Whether it may be a class of a profile: names of sane length, finite sums that some set of
// processes can have. For what comes from files.
bool IsSane(const Stats& stats);

// Sets the sums of these classes (Stats::parent: a position in `classes`); adds unknown ones, as
// long as there is room for a build's own. See event.h, Recalled.
void Recall(Profile& profile, const std::vector<Stats>& classes);

// What one unit (a process, or a job that is planned with as a whole) is expected to take.
struct Forecast {
  UnitOverTime level{};    // expected bytes at each horizon
  UnitOverTime slope{};    // change of the level, in bytes, for an error of 1 in ln(peak)
  double peak = 0;         // expected
  double own_var = 0;      // variance of ln(peak) that is this unit's own
  double common_gain = 1;  // how much of the class's error it shares
};

// The forecast with its times taken as uncertain: at each horizon the most that is expected around
// it. What cannot be taken back must not count on one peak being over before the next begins,
// unless `learned` says that this kind's course is known: that so many have run to their end.
inline constexpr double kKnownCourse = 8;
void Blur(Forecast& forecast, double learned);

// A class as it stands now.
struct Model {
  uint32_t klass = 0;
  bool job = false;
  int parent = -1;       // position among Predictor::models(), -1: none
  double mean = 0;       // of ln(peak)
  double mean_peak = 0;  // exp of it
  double own_var = 0;    // variance of the mean that is this class's own
  double share = 0;      // how much of the parent's error it inherits
  double total_var = 0;  // variance of the mean, all causes
  double within = 0;     // variance of ln(peak) around the mean
  double cpu_s = 1;      // median CPU seconds from start to end
  float per_cpu_s = 1;   // 1 / cpu_s
  double rate = 1;       // CPU seconds a second
  PredictionSource source = PredictionSource::kPrior;
  const ClassCurves* curves = nullptr;
};

// Predictions for all that runs at one moment. Holds references into the state: valid until the
// state's profile changes.
class Predictor {
 public:
  // `extra`: classes beyond those of what runs that will be asked for.
  Predictor(State& state, const std::vector<uint32_t>& extra);

  // Classes in use, parents before children.
  const std::vector<Model>& models() const { return models_; }
  int Slot(uint32_t klass) const { return slots_[klass]; }  // -1: not in use

  // Of State::procs and State::jobs, by position, into an empty `forecast`.
  void OfProc(size_t index, Bytes floor, bool frozen, Forecast& forecast) const;
  void OfJob(size_t index, bool frozen, Forecast& forecast) const;
  // Of anything else that runs.
  Forecast Of(const Usage& use, uint32_t klass, Bytes floor, bool frozen,
              int64_t input_bytes = 0) const;
  // One that starts now.
  Forecast Fresh(uint32_t klass, Bytes floor, int64_t input_bytes = 0) const;

  // The value that 95 of 100 such peaks stay below.
  Bytes P95(uint32_t klass, Bytes floor, int64_t input_bytes = 0) const;

 private:
  // What a unit's own curve says of its peak: an observation of ln(peak) with its variance.
  struct Sighting {
    bool valid = false;
    float ln_peak = 0;
    float var = 0;
  };

  void Need(uint32_t klass);
  // `gain`: ln of this unit's peak against its class's, as the size of its input tells.
  Sighting See(const Usage& use, const Model& model) const;
  void Observe(const Usage& use, uint32_t klass, float gain, const Sighting& seen);
  void Foresee(const Usage& use, uint32_t klass, float gain, Bytes floor, bool frozen, bool tells,
               const Sighting& seen, Forecast& forecast) const;
  float Gain(uint32_t klass, int64_t input_bytes) const;

  struct Sums {
    double weight = 0, weighted = 0, tau2 = 0;  // of running ones
    double overdue = 0, ln_overdue = 0;
    double rate = 0, rates = 0;
  };

  const State& state_;
  std::vector<int> slots_;
  std::vector<Model> models_;
  std::vector<Sums> sums_;
  std::vector<Sighting> proc_seen_;
  std::vector<Sighting> job_seen_;
};

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_PREDICT_H_
