#include "server/policy/predict.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "server/policy/arithmetic.h"

namespace headroom::policy {
namespace {

using Shape = std::array<double, kShapePoints>;

// --- Shipped priors -----------------------------------------------------------------------------

// Shapes measured on flash-attn 2.8.3 under nvcc 13.0 (73 sources): means over all processes of
// memory as a share of the peak, at sixteenths of the CPU time; `rise` of the largest so far.
constexpr Shape kCiccLevel = {.00, .27, .48, .66, .73, .73, .69, .57, .42,
                              .26, .22, .20, .19, .16, .14, .13, .11};
constexpr Shape kCiccRise = {.00, .27, .48, .66, .80, .88, .94, .98, .99, 1, 1, 1, 1, 1, 1, 1, 1};
constexpr Shape kPtxasLevel = {.01, .69, .77, .81, .82, .83, .86, .85, .86,
                               .87, .90, .91, .93, .94, .95, .96, .90};
constexpr Shape kPtxasRise = {.01, .69, .79, .84, .87, .88, .89, .90, .91,
                              .92, .93, .94, .95, .96, .97, .99, 1};
constexpr Shape kCudafeLevel = {.00, .25, .35, .42, .50, .58, .66, .76, .84,
                                .90, .95, .98, .99, 1,   .97, .90, .75};
constexpr Shape kCudafeRise = {.00, .25, .35, .42, .50, .58, .66, .76, .84,
                               .90, .95, .98, .99, 1,   1,   1,   1};
constexpr Shape kCc1Level = {.01, .26, .36, .45, .54, .60, .63, .67, .73,
                             .80, .88, .94, .96, .97, .98, .95, .84};
constexpr Shape kCc1Rise = {.01, .26, .36, .45, .54, .60, .63, .67, .73,
                            .80, .88, .94, .96, .97, .98, .99, 1};
// A straight ramp over the first half, then level: linkers map their input, then work on it.
constexpr Shape kRampRise = {.00, .15, .28, .40, .52, .63, .74, .85, .95, 1, 1, 1, 1, 1, 1, 1, 1};

struct Prior {
  const char* key;
  double peak;     // median, bytes
  double sd_mean;  // of ln(median): how wrong this line may be for a whole build
  double sd;       // of ln(peak) within a build
  double cpu_s;    // median CPU seconds
  double sd_cpu;   // of its ln
  const Shape& level;
  const Shape& rise;
};

// Peaks: from the traces and from public reports (field.md, section 3): cicc 3 to 5 GB a thread for
// flash-attn, 2.7 for LMCache, 5.7 to 8 for FP4 kernels, but a few hundred MB for plain ones; ptxas
// 0.14 to 0.86 GB on CUDA 13, several GB on 12; cc1plus 0.5 to 2 GB, in the extreme 15; ld 1 to 6
// GB.
constexpr Prior kPriors[] = {
    {"cicc", 2.6e9, 0.6, 0.4, 40, 0.6, kCiccLevel, kCiccRise},
    {"ptxas", 0.5e9, 0.9, 0.6, 10, 0.8, kPtxasLevel, kPtxasRise},
    {"cudafe++", 0.6e9, 0.5, 0.3, 3, 0.5, kCudafeLevel, kCudafeRise},
    {"cc1plus", 0.6e9, 0.7, 0.6, 8, 0.9, kCc1Level, kCc1Rise},
    {"clang", 0.5e9, 0.7, 0.6, 8, 0.9, kCc1Level, kCc1Rise},
    {"cc1", 0.12e9, 0.7, 0.7, 2, 0.9, kCc1Level, kCc1Rise},
    {"cpp", 0.12e9, 0.5, 0.4, 0.7, 0.6, kCc1Level, kCc1Rise},
    {"lto1", 0.8e9, 0.8, 0.6, 15, 0.9, kCc1Level, kCc1Rise},
    {"f951", 0.3e9, 0.8, 0.7, 5, 0.9, kCc1Level, kCc1Rise},
    {"rustc", 0.7e9, 0.7, 0.7, 10, 0.9, kCc1Level, kCc1Rise},
    {"ld", 1.0e9, 0.9, 0.8, 6, 0.9, kRampRise, kRampRise},
    {"nvlink", 0.5e9, 0.9, 0.7, 5, 0.9, kRampRise, kRampRise},
    {"as", 0.1e9, 0.7, 0.6, 1, 0.8, kCc1Level, kCc1Rise},
    // Jobs of which only the driver's name is known.
    {"other", 0.05e9, 1.0, 1.0, 1, 1.0, kRampRise, kRampRise},
    // A tool that has no line here.
    {"", 0.5e9, 0.9, 0.8, 8, 0.9, kCc1Level, kCc1Rise},
};

// Peaks that the size of the input tells, for a class's median input. In the traces ptxas has
// 0.08 GB and 30 bytes a byte of PTX, within -13 to +31 %; older ones take a multiple of that,
// which is what its classes then learn. cicc's and cc1plus's are not told by the size of their
// input.
constexpr double kPtxasLeast = 0.08e9;
constexpr double kPtxasPerByte = 30;
// Input of the prior's median peak.
constexpr double kPtxasMedianInput = (0.5e9 - kPtxasLeast) / kPtxasPerByte;

// ln of the peak with this input against that with the median one.
float InputGain(const std::string& key, bool job, int64_t input_bytes) {
  if (job || input_bytes <= 0 || key != "ptxas") return 0;
  return static_cast<float>(
      std::log((kPtxasLeast + kPtxasPerByte * static_cast<double>(input_bytes)) /
               (kPtxasLeast + kPtxasPerByte * kPtxasMedianInput)));
}

const Prior& PriorOf(std::string_view key) {
  for (const Prior& prior : kPriors) {
    if (key == prior.key) return prior;
  }
  return kPriors[std::size(kPriors) - 1];
}

// The tool that takes most of the memory of a driver's jobs.
std::string_view MainTool(std::string_view driver) {
  if (driver == "nvcc") return "cicc";
  if (driver == "c++") return "cc1plus";
  if (driver == "ld") return "ld";
  return "other";
}

// Weights of the priors, in observations. Small: what a build shows dominates from its second or
// third process on.
constexpr double kPriorWithinWeight = 4;
constexpr double kPriorCpuWeight = 1;
constexpr double kPriorShapeWeight = 1.5;

// Of a tool's variance of ln(peak), how much is between families, and how much stays within one. In
// the traces a family's peaks agree within a few percent; between families the factor is two.
constexpr double kBetweenShare = 0.8;
constexpr double kWithinShare = 0.3;
// However alike all of a class were, the next one is of a newer source, or another arch.
constexpr double kLeastWithin = 0.03 * 0.03;
// A job's peak against F times its main tool's: the chains do not peak at once, other stages add.
constexpr double kJobScaleVar = 0.2 * 0.2;

// Noise of "memory now / share of the peak that the shape expects now" as an observation of the
// peak, as a standard deviation of the logarithm: near nothing at the peak, large early on.
constexpr float kEarlyNoise = 0.9F;
constexpr float kLateNoise = 0.05F;
// The part of that noise that all running members share: they are of one kind, so the shape is
// wrong for all of them alike. However many there are, they tell no more than this.
constexpr double kSharedNoise = 0.35;
// Of processes that are planned with as parts of their jobs no more are asked: for the reason above
// a thousand tell what five hundred do.
constexpr size_t kEnoughWitnesses = 512;
// Nothing is concluded from less: start-up looks the same for all. Of those that are short, from
// the start-up's share of their life.
constexpr float kLeastAgeSeconds = 0.4F;
constexpr float kLeastAgeShare = 0.15F;

// The speed of one that used this much CPU, or this part of its class's, tells that of its class.
constexpr double kSpeedSeconds = 1;
constexpr double kSpeedShare = 0.25;

// A process that was watched for this long tells how much of a core each gets. The least share that
// is counted with: what stands still (it waits for a disk, or for its children) tells nothing.
constexpr double kRateAgeSeconds = 0.3;
constexpr double kLeastRate = 0.02;
constexpr double kLeastJobRate = 0.1;

// Less CPU than this for so long is no slow compiler: beside ten for each core it would get 0.1.
constexpr double kStillRate = 0.01;
constexpr double kStillSeconds = 10;

// A process that used this much CPU without growing by more than 2 % is taken to be at its peak,
// whatever the class's curve says; less surely than at the curve's end.
constexpr float kFlatSeconds = 4;
constexpr float kFlatNoise = 0.3F;

// --- Shapes -------------------------------------------------------------------------------------

double At(const Shape& shape, double u) {
  if (u <= 0) return shape.front();
  if (u >= 1) return shape.back();
  const double x = u * (kShapePoints - 1);
  const size_t i = std::min(static_cast<size_t>(x), kShapePoints - size_t{2});
  const double f = x - static_cast<double>(i);
  return shape[i] + (shape[i + 1] - shape[i]) * f;
}

// Four numbers that are worked on at once: one class's curves at one moment, or one curve at four.
// The compiler makes the processor's own vectors of them; each number is the same as when worked on
// alone, so a replay on another processor gives the same bits.
using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));

Float4 All(float value) {
  return Float4{value, value, value, value};
}
Float4 Max(Float4 a, Float4 b) {
  return a > b ? a : b;
}
Float4 Min(Float4 a, Float4 b) {
  return a < b ? a : b;
}

// A class's curves have a point for each sixteenth; beyond their end the last one holds.
struct Course {
  Float4 rise{}, level{}, alive{}, keep{};
};

constexpr float kPointsEnd =
    static_cast<float>(std::tuple_size_v<decltype(ClassCurves::points)> - 1) - 0.001F;

Float4 PointAt(const ClassCurves& curves, int32_t i, float f) {
  Float4 before;
  Float4 after;
  static_assert(sizeof(before) == sizeof(ClassCurves::Point));
  const ClassCurves::Point* point = curves.points.data() + i;
  std::memcpy(&before, point, sizeof(before));
  std::memcpy(&after, point + 1, sizeof(after));
  return before + (after - before) * f;
}

ClassCurves::Point At(const ClassCurves& curves, float u) {
  const float x = std::min(u * 16, kPointsEnd);
  const int32_t i = static_cast<int32_t>(x);
  const Float4 at = PointAt(curves, i, x - static_cast<float>(i));
  return {at[0], at[1], at[2], at[3]};
}

inline Course At(const ClassCurves& curves, Float4 u) {
  const Float4 x = Min(u * 16, All(kPointsEnd));
  const Int4 i = __builtin_convertvector(x, Int4);
  const Float4 f = x - __builtin_convertvector(i, Float4);
  const Float4 a = PointAt(curves, i[0], f[0]);
  const Float4 b = PointAt(curves, i[1], f[1]);
  const Float4 c = PointAt(curves, i[2], f[2]);
  const Float4 d = PointAt(curves, i[3], f[3]);
  // From four moments of all curves to all moments of each.
  const Float4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Float4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Float4 ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Float4 cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  return {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
          __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
          __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
          __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
}

// The horizons, four at a time.
constexpr size_t kBlocks = kHorizons / 4;
static_assert(kHorizons % 4 == 0);
constexpr std::array<float, kHorizons> kHorizonFloats = [] {
  std::array<float, kHorizons> all{};
  for (size_t h = 0; h < kHorizons; ++h) all[h] = static_cast<float>(kHorizonSeconds[h]);
  return all;
}();

// Seconds to the horizon before (now, before the first) and after (0 after the last).
constexpr std::array<float, kHorizons> kBeforeFloats = [] {
  std::array<float, kHorizons> all{};
  for (size_t h = 0; h < kHorizons; ++h) {
    all[h] = kHorizonFloats[h] - (h > 0 ? kHorizonFloats[h - 1] : 0);
  }
  return all;
}();
constexpr std::array<float, kHorizons> kAfterFloats = [] {
  std::array<float, kHorizons> all{};
  for (size_t h = 0; h + 1 < kHorizons; ++h) all[h] = kHorizonFloats[h + 1] - kHorizonFloats[h];
  return all;
}();

Float4 Load(const UnitOverTime& from, size_t block) {
  Float4 four;
  std::memcpy(&four, from.data() + 4 * block, sizeof(four));
  return four;
}
void Store(UnitOverTime& to, size_t block, Float4 four) {
  std::memcpy(to.data() + 4 * block, &four, sizeof(four));
}

// How long growth is expected to go on, as a share of how long it has: a process that grows as fast
// as it did on average is, for all that can be seen, as likely in the first as in the last part of
// its ramp. Large compilations ramp longer, not faster (in the traces all cicc grow by 0.33 GB a
// CPU second, whatever their peak), so the class's shape alone sees them too small.
constexpr float kGrowsOn = 0.5F;

// From this part of a process's life between the horizons on either side, its curve is looked at
// that many times around a horizon: a point of its shape is a sixteenth.
constexpr float kCoarse = 4.0F / 16;
constexpr int kLooksAround = 5;
// A part of its life each second: whoever lives for less than 30 s is short. Of longer ones
// horizons that are 4 s apart tell enough.
constexpr float kShort = 1.0F / 30;

// How the time of a process goes with its peak, within a class: duration ~ peak^0.7. In the traces
// cicc of 3.5 GB run 24 to 34 s of CPU, of 6.4 GB 46 to 68 s.
constexpr float kStretch = 0.7F;
constexpr float kMostStretch = 20;

struct Stage {
  const char* key;
  double width;  // how many run at once
  double cpu;    // CPU seconds of all of them
  double peak;
};

// What an nvcc job does, one stage after another, with fan_out chains of cicc and ptxas at once.
struct JobShape {
  double cpu_s = 0;
  double scale = 1;  // the job's peak against its main tool's
  Shape level{};
  Shape rise{};
};

JobShape ShapeOfJob(std::string_view driver, int fan_out) {
  std::vector<Stage> stages;
  const auto add = [&](const char* key, double width) {
    const Prior& prior = PriorOf(key);
    stages.push_back({key, width, prior.cpu_s * width, prior.peak * width});
  };
  const double width = std::max(1, fan_out);
  if (driver == "nvcc") {
    add("cpp", 2);
    add("cudafe++", 1);
    add("cicc", width);
    add("ptxas", width);
    add("cc1plus", 1);
  } else if (driver == "c++") {
    add("cc1plus", 1);
    add("as", 1);
  } else {
    add(MainTool(driver).data(), 1);
  }
  JobShape shape;
  double peak = 0;
  for (const Stage& stage : stages) {
    shape.cpu_s += stage.cpu;
    peak = std::max(peak, stage.peak);
  }
  shape.scale = peak / PriorOf(MainTool(driver)).peak;
  double largest = 0;
  for (int i = 0; i < kShapePoints; ++i) {
    double at = shape.cpu_s * i / (kShapePoints - 1);
    double level = 0;
    for (const Stage& stage : stages) {
      if (at <= stage.cpu || &stage == &stages.back()) {
        level = At(PriorOf(stage.key).level, at / stage.cpu) * stage.peak;
        largest = std::max(largest, At(PriorOf(stage.key).rise, at / stage.cpu) * stage.peak);
        break;
      }
      at -= stage.cpu;
      largest = std::max(largest, stage.peak);
    }
    shape.level[static_cast<size_t>(i)] = level / peak;
    shape.rise[static_cast<size_t>(i)] = largest / peak;
  }
  return shape;
}

// Brings a class's tables up to date. Its parent's are.
void Refresh(ClassCurves& curves, const Stats& stats, const ClassCurves* parent) {
  const uint64_t parent_version = parent == nullptr ? 0 : parent->version;
  if (curves.made && curves.count == stats.cpu_count + stats.shape_count &&
      curves.parent_version == parent_version) {
    return;
  }
  // Shape: the parent's or the prior's, and what was seen.
  Shape prior_level{};
  Shape prior_rise{};
  double prior_ln_cpu = 0;
  double prior_var_cpu = 0;
  if (parent != nullptr) {
    prior_level = parent->level;
    prior_rise = parent->rise_raw;
    prior_ln_cpu = parent->ln_cpu;
    prior_var_cpu = parent->sd_cpu * parent->sd_cpu;
  } else if (stats.job) {
    const JobShape shape = ShapeOfJob(stats.key, stats.fan_out);
    prior_level = shape.level;
    prior_rise = shape.rise;
    prior_ln_cpu = std::log(shape.cpu_s);
    const double sd = PriorOf(MainTool(stats.key)).sd_cpu;
    prior_var_cpu = sd * sd;
  } else {
    const Prior& prior = PriorOf(stats.key);
    prior_level = prior.level;
    prior_rise = prior.rise;
    prior_ln_cpu = std::log(prior.cpu_s);
    prior_var_cpu = prior.sd_cpu * prior.sd_cpu;
  }
  const double weight = kPriorShapeWeight + stats.shape_count;
  for (size_t i = 0; i < kShapePoints; ++i) {
    curves.level[i] = (kPriorShapeWeight * prior_level[i] + stats.level[i]) / weight;
    curves.rise_raw[i] = (kPriorShapeWeight * prior_rise[i] + stats.rise[i]) / weight;
  }
  const double n = stats.cpu_count;
  curves.ln_cpu = (kPriorCpuWeight * prior_ln_cpu + stats.log_cpu) / (kPriorCpuWeight + n);
  const double spread =
      n > 0 ? std::max(0.0, stats.log_cpu2 - stats.log_cpu * stats.log_cpu / n) : 0.0;
  curves.sd_cpu = std::sqrt((2 * prior_var_cpu + spread) / (2 + n));
  curves.sd_cpu = std::clamp(curves.sd_cpu, 0.12, 1.2);
  curves.shape_weight = (parent == nullptr ? 0 : parent->shape_weight) + stats.shape_count;

  // Tables. The fall after the peak is believed as far as it was seen: an early release of memory
  // that does not come is what a plan cannot bear.
  const double trust = (1 + curves.shape_weight) / (3 + curves.shape_weight);
  const double top = std::max(0.5, curves.rise_raw[kShapePoints - 1]);
  double largest = 0;
  // Share that still runs at u times the median: a log-logistic tail, heavier than the normal one.
  const double k = 1.702 / curves.sd_cpu;
  for (size_t i = 0; i < curves.points.size(); ++i) {
    ClassCurves::Point& point = curves.points[i];
    const double u = static_cast<double>(i) / 16;
    const double raw = At(curves.rise_raw, u);
    const double level = At(curves.level, u);
    largest = std::clamp(std::max(largest, raw / top), 0.0, 1.0);
    const double fall = std::clamp(level / std::max(0.02, raw), 0.02, 1.0);
    const double alive = 1 / (1 + std::pow(u, k));
    point.rise = static_cast<float>(largest);
    point.level = static_cast<float>(level);
    point.alive = static_cast<float>(std::max(1e-4, alive));
    point.keep = static_cast<float>(std::max(1e-4, (1 - trust * (1 - fall)) * alive));
  }
  // Early on there is no fall, only noise of two small numbers.
  float highest = 0;
  for (size_t i = curves.points.size(); i-- > 0;) {
    highest = std::max(highest, curves.points[i].keep);
    curves.points[i].keep = highest;
  }
  curves.trust = trust;
  curves.made = true;
  curves.count = stats.cpu_count + stats.shape_count;
  curves.parent_version = parent_version;
  ++curves.version;
}

uint32_t FindOrAdd(Profile& profile, Stats stats) {
  const auto it = profile.index.find(stats.name);
  if (it != profile.index.end()) return it->second;
  const uint32_t position = static_cast<uint32_t>(profile.classes.size());
  profile.index.emplace(stats.name, position);
  profile.classes.push_back(std::move(stats));
  return position;
}

uint32_t RootClass(Profile& profile, const std::string& tool) {
  Stats stats;
  stats.name = tool.substr(0, 64);
  stats.key = stats.name;
  // A hostile or odd set of names ends in one class.
  if (profile.classes.size() >= kMaxClasses && profile.index.count(stats.name) == 0) {
    stats.name = "";
    stats.key = "";
  }
  return FindOrAdd(profile, std::move(stats));
}

uint32_t FamilyClass(Profile& profile, uint32_t root, const std::string& source) {
  const std::string family = Family(source);
  if (family.empty() || profile.classes.size() >= kMaxClasses) return root;
  const Stats& above = profile.classes[root];
  Stats stats;
  stats.name = above.name + " " + family;
  stats.key = above.key;
  stats.job = above.job;
  stats.fan_out = above.fan_out;
  stats.parent = static_cast<int32_t>(root);
  return FindOrAdd(profile, std::move(stats));
}

// A source as the profile names it. The path of one outside of the build folder tells of its user
// (/home/NAME/...) and is of no use elsewhere: the folder is hashed.
std::string NameOfSource(const std::string& source) {
  const size_t slash = source.rfind('/');
  if (source.front() != '/' || slash == 0) return source.substr(0, 200);
  uint64_t hash = 14695981039346656037U;  // FNV-1a: the same everywhere
  for (size_t i = 0; i < slash; ++i) {
    hash ^= static_cast<uint8_t>(source[i]);
    hash *= 1099511628211U;
  }
  std::string name = "~";
  for (int shift = 60; shift >= 0; shift -= 4) name += "0123456789abcdef"[(hash >> shift) & 15];
  return name + source.substr(slash, 200);
}

// One source by itself: what it took an earlier time, or for another arch in this build. Leaves
// half of the classes to tools and families.
uint32_t SourceClass(Profile& profile, uint32_t above_at, const std::string& source) {
  if (source.empty()) return above_at;
  const Stats& above = profile.classes[above_at];
  Stats stats;
  stats.name = above.key + ": " + NameOfSource(source);
  if (profile.classes.size() >= kMaxClasses / 2 && profile.index.count(stats.name) == 0) {
    return above_at;
  }
  stats.one_source = true;
  stats.key = above.key;
  stats.job = above.job;
  stats.fan_out = above.fan_out;
  stats.parent = static_cast<int32_t>(above_at);
  return FindOrAdd(profile, std::move(stats));
}

}  // namespace

std::string Family(std::string_view source) {
  const size_t slash = source.rfind('/');
  std::string_view name = slash == std::string_view::npos ? source : source.substr(slash + 1);
  name = name.substr(0, name.find('.'));
  // Three words tell a kernel and its size; of a name of one word nothing can be left out.
  size_t end = std::string_view::npos;
  size_t at = 0;
  int words = 0;
  while (at < name.size()) {
    const size_t next = name.find_first_of("_-", at);
    ++words;
    if (words == 3) end = std::min(next, name.size());
    if (next == std::string_view::npos) break;
    at = next + 1;
  }
  if (words < 2) {
    // "kernel07" is of the family "kernel".
    size_t letters = name.size();
    while (letters > 0 && name[letters - 1] >= '0' && name[letters - 1] <= '9') --letters;
    if (letters == name.size()) return {};
    return std::string(name.substr(0, std::min<size_t>(letters, 64)));
  }
  return std::string(name.substr(0, std::min<size_t>(end, 64)));
}

uint32_t ToolClass(Profile& profile, const std::string& tool, const std::string& source) {
  return SourceClass(profile, FamilyClass(profile, RootClass(profile, tool), source), source);
}

uint32_t JobClass(Profile& profile, const std::string& driver, int fan_out,
                  const std::string& source) {
  const int width = std::clamp(fan_out, 1, 64);
  const uint32_t tool = RootClass(profile, std::string(MainTool(driver)));
  Stats stats;
  stats.name = "job " + driver.substr(0, 64) + "*" + std::to_string(width);
  stats.key = driver.substr(0, 64);
  stats.job = true;
  stats.fan_out = width;
  stats.parent = static_cast<int32_t>(tool);
  stats.log_scale = std::log(ShapeOfJob(driver, width).scale);
  if (profile.classes.size() >= kMaxClasses && profile.index.count(stats.name) == 0) {
    return tool;
  }
  return FamilyClass(profile, FindOrAdd(profile, std::move(stats)), source);
}

namespace {

// CPU seconds of mark i.
constexpr std::array<double, kMarks> kMarkAges = [] {
  constexpr double kQuarters[] = {1, 1.189207115002721, 1.4142135623730951, 1.681792830507429};
  std::array<double, kMarks> ages{};
  double power = 1.0 / 32;
  for (size_t i = 0; i < kMarks; ++i) {
    ages[i] = power * kQuarters[i % 4];
    if (i % 4 == 3) power *= 2;
  }
  return ages;
}();
double MarkAge(size_t i) {
  return kMarkAges[i];
}

}  // namespace

void Update(Usage& use, Bytes anon, Duration cpu, Time now) {
  const Bytes before = use.anon;
  const double cpu_before = Seconds(use.cpu);
  const double cpu_now = std::max(cpu_before, Seconds(cpu));
  if (use.sampled_at != Time{}) {
    const double dt = Seconds(now - use.sampled_at);
    // Rates over less than this are made of clock ticks (10 ms), not of work.
    const double dcpu = cpu_now - cpu_before;
    if (dt > 0.005) {
      // At first the mean since it was seen: on a machine with more jobs than cores a short job
      // would be over before a smoothed figure has left its start of 1, and would seem to end at
      // once.
      const double age = std::max(0.0, Seconds(now - use.since));
      use.cpu_rate += std::max(dt / (dt + 2), dt / (age + 0.1)) * (dcpu / dt - use.cpu_rate);
    }
    if (dcpu > 0.005) {
      const double growth = AsDouble(anon - before) / dcpu;
      use.growth += dcpu / (dcpu + 1.5) * (growth - use.growth);
    }
  }
  use.sampled_at = now;
  use.anon = anon;
  use.peak = std::max(use.peak, anon);
  use.cpu = std::max(use.cpu, cpu);
  while (use.marks.size() < kMarks && MarkAge(use.marks.size()) <= cpu_now) {
    // Between two samples the curve is taken as straight.
    const double age = MarkAge(use.marks.size());
    const double f = cpu_now > cpu_before ? (age - cpu_before) / (cpu_now - cpu_before) : 1;
    const double kib = (AsDouble(before) + f * AsDouble(anon - before)) / 1024;
    use.marks.push_back(static_cast<uint32_t>(std::clamp(kib, 0.0, 4294967295.0)));
  }
}

void Learn(Profile& profile, uint32_t klass, const Usage& use, int64_t input_bytes) {
  if (klass >= profile.classes.size() || use.sampled_at == Time{}) return;
  // What was never seen above this tells nothing about size but that it is small.
  constexpr double kLeastPeak = 4.0 * 1024 * 1024;
  const double peak = std::max(kLeastPeak, AsDouble(use.peak));
  const double cpu = std::max(0.05, Seconds(use.cpu));
  const Stats& own = profile.classes[klass];
  const double ln_peak =
      std::log(peak) - static_cast<double>(InputGain(own.key, own.job, input_bytes));
  const double ln_cpu = std::log(cpu);
  // The curve at sixteenths of its life, from the marks.
  Shape level{};
  Shape rise{};
  // Of less than 0.15 CPU seconds a look each 50 ms has no curve.
  const bool shaped = use.marks.size() >= 10;
  if (shaped) {
    double largest = 0;
    size_t mark = 0;
    double age_before = 0;
    double value_before = 0;
    for (size_t i = 0; i < kShapePoints; ++i) {
      const double age = cpu * static_cast<double>(i) / (kShapePoints - 1);
      while (mark < use.marks.size() && MarkAge(mark) <= age) {
        age_before = MarkAge(mark);
        value_before = use.marks[mark] * 1024.0;
        largest = std::max(largest, value_before);
        ++mark;
      }
      const bool last = mark >= use.marks.size();
      const double age_after = last ? cpu : MarkAge(mark);
      const double value_after = last ? AsDouble(use.anon) : use.marks[mark] * 1024.0;
      const double f = age_after > age_before
                           ? std::clamp((age - age_before) / (age_after - age_before), 0.0, 1.0)
                           : 1.0;
      const double value = value_before + f * (value_after - value_before);
      largest = std::max(largest, value);
      level[i] = std::min(1.0, value / peak);
      rise[i] = std::min(1.0, largest / peak);
    }
    // The peak lay between two marks: somewhere after the largest of them.
    const double top = std::max(0.01, rise[kShapePoints - 1]);
    for (size_t i = 0; i < kShapePoints; ++i) {
      level[i] = std::min(1.0, level[i] / top);
      rise[i] /= top;
    }
  }
  const bool job = profile.classes[klass].job;
  for (int32_t at = static_cast<int32_t>(klass); at >= 0;) {
    Stats& stats = profile.classes[static_cast<size_t>(at)];
    if (stats.job != job) break;
    stats.count += 1;
    stats.log_peak += ln_peak;
    stats.log_peak2 += ln_peak * ln_peak;
    stats.cpu_count += 1;
    stats.log_cpu += ln_cpu;
    stats.log_cpu2 += ln_cpu * ln_cpu;
    if (shaped) {
      stats.shape_count += 1;
      for (size_t i = 0; i < kShapePoints; ++i) {
        stats.level[i] += level[i];
        stats.rise[i] += rise[i];
      }
    }
    stats.largest = std::max(stats.largest, use.peak);
    at = stats.parent;
  }
}

bool IsSane(const Stats& stats) {
  // A build of a million processes in one class is beyond all that are known.
  constexpr double kMost = 1e6;
  // ln of a peak between 1 byte and 2^60, of a time between 1 ms and 30 years.
  constexpr double kLeastLog = -7;
  constexpr double kMostLog = 42;
  const auto sums = [&](double n, double sum, double squares) {
    return n >= 0 && n <= kMost && sum >= kLeastLog * n - 1e-9 && sum <= kMostLog * n + 1e-9 &&
           // By Cauchy and Schwarz, up to rounding.
           squares * n >= sum * sum * (1 - 1e-6) - 1e-9 &&
           squares <= kMostLog * kMostLog * n + 1e-9;
  };
  const auto text = [](const std::string& name, size_t most) {
    return name.size() <= most && name.find('\0') == std::string::npos;
  };
  if (!text(stats.name, 300) || !text(stats.key, 64) || stats.fan_out < 1 || stats.fan_out > 64 ||
      stats.largest.count < 0 || stats.largest.count > (int64_t{1} << 60)) {
    return false;
  }
  if (!sums(stats.count, stats.log_peak, stats.log_peak2) ||
      !sums(stats.cpu_count, stats.log_cpu, stats.log_cpu2) || !(stats.shape_count >= 0) ||
      !(stats.shape_count <= kMost)) {
    return false;
  }
  for (size_t i = 0; i < kShapePoints; ++i) {
    const double most = stats.shape_count * (1 + 1e-6) + 1e-9;
    if (!(stats.level[i] >= 0 && stats.level[i] <= most)) return false;
    if (!(stats.rise[i] >= 0 && stats.rise[i] <= most)) return false;
  }
  return true;
}

void Recall(Profile& profile, const std::vector<Stats>& classes) {
  // Room is left for what the coming build has of its own.
  constexpr size_t kMostRecalled = kMaxClasses / 2;
  constexpr int32_t kNone = -2;
  std::vector<int32_t> at(classes.size(), kNone);
  for (size_t i = 0; i < classes.size(); ++i) {
    Stats stats = classes[i];
    if (!IsSane(stats)) continue;
    if (stats.parent >= 0) {
      const size_t above = static_cast<size_t>(stats.parent);
      if (above >= i || at[above] == kNone) continue;
      stats.parent = at[above];
    } else {
      stats.parent = -1;
    }
    const auto known = profile.index.find(stats.name);
    if (known != profile.index.end()) {
      const Stats& there = profile.classes[known->second];
      if (there.key != stats.key || there.job != stats.job ||
          there.one_source != stats.one_source || there.fan_out != stats.fan_out ||
          there.parent != stats.parent) {
        continue;
      }
    } else if (profile.classes.size() >= kMostRecalled) {
      continue;
    }
    // Not of the history: this version's shapes say how a job's peak goes with its main tool's.
    const bool first_job =
        stats.job && stats.parent >= 0 && !profile.classes[static_cast<size_t>(stats.parent)].job;
    stats.log_scale = first_job ? std::log(ShapeOfJob(stats.key, stats.fan_out).scale) : 0;
    const uint32_t position = FindOrAdd(profile, stats);
    at[i] = static_cast<int32_t>(position);
    profile.classes[position] = std::move(stats);
  }
}

void Predictor::Need(uint32_t klass) {
  int32_t at = static_cast<int32_t>(klass);
  while (at >= 0 && slots_[static_cast<size_t>(at)] < 0) {
    slots_[static_cast<size_t>(at)] = 0;
    at = state_.profile.classes[static_cast<size_t>(at)].parent;
  }
}

Predictor::Predictor(State& state, const std::vector<uint32_t>& extra)
    : state_(state), slots_(state.profile.classes.size(), -1) {
  const Profile& profile = state.profile;
  for (const ProcState& proc : state.procs) Need(proc.klass);
  for (const JobState& job : state.jobs) Need(job.klass);
  for (uint32_t klass : extra) Need(klass);

  // Shapes, spreads and durations: from what has ended.
  std::vector<ClassCurves>& all_curves = state.curves.value;
  all_curves.resize(profile.classes.size());
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] < 0) continue;
    const Stats& stats = profile.classes[i];
    Model model;
    model.klass = static_cast<uint32_t>(i);
    model.job = stats.job;
    const bool has_parent = stats.parent >= 0;
    model.parent = has_parent ? slots_[static_cast<size_t>(stats.parent)] : -1;
    const bool same_kind =
        has_parent && profile.classes[static_cast<size_t>(stats.parent)].job == stats.job;
    const ClassCurves* parent_curves =
        same_kind ? &all_curves[static_cast<size_t>(stats.parent)] : nullptr;
    Refresh(all_curves[i], stats, parent_curves);
    model.curves = &all_curves[i];
    const double n = stats.count;
    const double spread =
        n > 0 ? std::max(0.0, stats.log_peak2 - stats.log_peak * stats.log_peak / n) : 0.0;
    double prior_within = 0;
    if (has_parent) {
      const double above = models_[static_cast<size_t>(model.parent)].within;
      prior_within = same_kind ? above * kWithinShare : above;
    } else {
      const double sd = PriorOf(stats.key).sd;
      prior_within = sd * sd;
    }
    model.within = std::max(
        kLeastWithin, (kPriorWithinWeight * prior_within + spread) / (kPriorWithinWeight + n));
    model.cpu_s = std::exp(model.curves->ln_cpu);
    model.per_cpu_s = static_cast<float>(1 / model.cpu_s);
    slots_[i] = static_cast<int>(models_.size());
    models_.push_back(model);
  }

  // What the running ones tell.
  sums_.resize(models_.size());
  const auto model_of = [&](uint32_t klass) -> const Model& {
    return models_[static_cast<size_t>(slots_[klass])];
  };
  proc_seen_.resize(state.procs.size());
  const size_t stride = std::max<size_t>(1, state.procs.size() / kEnoughWitnesses);
  for (size_t i = 0; i < state.procs.size(); ++i) {
    const ProcState& proc = state.procs[i];
    if (proc.in_job && i % stride != 0) continue;
    proc_seen_[i] = See(proc.use, model_of(proc.klass));
    Observe(proc.use, proc.klass, Gain(proc.klass, proc.input_bytes), proc_seen_[i]);
  }
  job_seen_.resize(state.jobs.size());
  for (size_t i = 0; i < state.jobs.size(); ++i) {
    const JobState& job = state.jobs[i];
    // Before its main tool has begun, a job shows nothing of what it will take.
    if (!job.main_seen) continue;
    job_seen_[i] = See(job.use, model_of(job.klass));
    Observe(job.use, job.klass, 0, job_seen_[i]);
  }

  // With more processes than cores each gets a part of one: what starts now will as well, and takes
  // its memory later and for longer than its CPU seconds say.
  double part = 0;
  double parts = 0;
  for (size_t i = 0; i < state.procs.size(); i += stride) {
    const ProcState& proc = state.procs[i];
    if (proc.frozen || proc.lane == LaneId::kNone || proc.use.cpu_rate < kLeastRate) continue;
    if (Seconds(proc.use.sampled_at - proc.use.since) < kRateAgeSeconds) continue;
    part += std::min(1.0, proc.use.cpu_rate);
    parts += 1;
  }
  const double share_of_core = parts > 0 ? part / parts : 1.0;

  // Means, parents first.
  for (size_t i = 0; i < models_.size(); ++i) {
    Model& model = models_[i];
    const Stats& stats = profile.classes[model.klass];
    const Sums& sums = sums_[i];
    double prior_mean = 0;
    double prior_var = 0;
    double parent_var = 0;
    if (model.parent >= 0) {
      const Model& parent = models_[static_cast<size_t>(model.parent)];
      const bool same_kind = profile.classes[parent.klass].job == stats.job;
      prior_mean = parent.mean + stats.log_scale;
      prior_var = same_kind ? parent.within * kBetweenShare : kJobScaleVar;
      parent_var = parent.total_var;
      model.source = parent.source;
    } else {
      const Prior& prior = PriorOf(stats.key);
      prior_mean = std::log(prior.peak);
      prior_var = prior.sd_mean * prior.sd_mean;
    }
    double weight = stats.count / model.within;
    double weighted = stats.log_peak / model.within;
    if (sums.weight > 0) {
      const double tau2 = sums.tau2 / sums.weight;
      const double running = 1 / (1 / sums.weight + kSharedNoise * tau2);
      weight += running;
      weighted += running * (sums.weighted / sums.weight);
    }
    const double prior_weight = 1 / prior_var;
    model.share = prior_weight / (prior_weight + weight);
    model.mean = (prior_mean * prior_weight + weighted) / (prior_weight + weight);
    model.own_var = 1 / (prior_weight + weight);
    model.mean_peak = std::exp(model.mean);
    model.total_var = model.own_var + model.share * model.share * parent_var;
    if (model.share < 0.5) {
      const bool family =
          model.parent >= 0 &&
          profile.classes[models_[static_cast<size_t>(model.parent)].klass].job == stats.job;
      model.source = stats.one_source ? PredictionSource::kHistory
                     : family         ? PredictionSource::kFamily
                                      : PredictionSource::kTool;
    }
    // Those that run longer than the median of the ended ones count, or a class would be taken for
    // as quick as its quickest members.
    if (sums.overdue > 0) {
      const double n = kPriorCpuWeight + stats.cpu_count;
      model.cpu_s = std::exp((model.curves->ln_cpu * n + sums.ln_overdue) / (n + sums.overdue));
    }
    // Chains of one job run at once, if the machine has the cores.
    model.per_cpu_s = static_cast<float>(1 / model.cpu_s);
    if (sums.rates >= 1) {
      // Jobs that stand still for a while are among the running ones, and tell less.
      model.rate = std::max(stats.job ? kLeastJobRate : kLeastRate, sums.rate / sums.rates);
    } else {
      // What cannot be taken back is planned with as if it got all of its cores.
      model.rate = stats.job ? std::max(1.0, 0.85 * stats.fan_out) : share_of_core;
    }
  }
}

Predictor::Sighting Predictor::See(const Usage& use, const Model& model) const {
  Sighting seen;
  const float age = static_cast<float>(Seconds(use.cpu));
  const float u = age * model.per_cpu_s;
  const bool started = age >= kLeastAgeSeconds || u >= kLeastAgeShare;
  if (use.sampled_at == Time{} || !started || use.peak.count <= 0) return seen;
  seen.valid = true;
  const float rise = At(*model.curves, u).rise;
  const float largest = static_cast<float>(use.peak.count);
  const float growth = static_cast<float>(use.growth);
  const float noise = kEarlyNoise * (1 - rise) + kLateNoise / std::max(0.02F, rise);
  float var = noise * noise;
  float peak = largest / std::max(0.03F, rise);
  if (age > kFlatSeconds && var > kFlatNoise * kFlatNoise &&
      growth * kFlatSeconds < 0.02F * largest) {
    var = kFlatNoise * kFlatNoise;
    peak = largest;
  } else if (growth * age > 0.5F * largest) {
    peak = std::max(peak, largest + growth * kGrowsOn * age);
  }
  seen.ln_peak = std::log(peak);
  seen.var = var;
  return seen;
}

float Predictor::Gain(uint32_t klass, int64_t input_bytes) const {
  const Stats& stats = state_.profile.classes[klass];
  return InputGain(stats.key, stats.job, input_bytes);
}

void Predictor::Observe(const Usage& use, uint32_t klass, float gain, const Sighting& seen) {
  if (!seen.valid) return;
  const int leaf = slots_[klass];
  const double age = Seconds(use.cpu);
  const bool overdue = age > models_[static_cast<size_t>(leaf)].cpu_s;
  const double ln_overdue = overdue ? std::log(age * 1.15) : 0;
  const double ln_peak = static_cast<double>(seen.ln_peak - gain);
  const double var = static_cast<double>(seen.var);
  const bool job = state_.profile.classes[klass].job;
  for (int at = leaf; at >= 0; at = models_[static_cast<size_t>(at)].parent) {
    const Model& m = models_[static_cast<size_t>(at)];
    if (m.job != job) break;
    Sums& sums = sums_[static_cast<size_t>(at)];
    const double weight = 1 / (m.within + var);
    sums.weight += weight;
    sums.weighted += weight * ln_peak;
    sums.tau2 += weight * var;
    if (overdue) {
      sums.overdue += 1;
      sums.ln_overdue += ln_overdue;
    }
    if (age > kSpeedSeconds || age > kSpeedShare * models_[static_cast<size_t>(leaf)].cpu_s) {
      sums.rate += use.cpu_rate;
      sums.rates += 1;
    }
  }
}

void Predictor::OfProc(size_t index, Bytes floor, bool frozen, Forecast& forecast) const {
  const ProcState& proc = state_.procs[index];
  Foresee(proc.use, proc.klass, Gain(proc.klass, proc.input_bytes), floor, frozen, true,
          proc_seen_[index], forecast);
}

void Predictor::OfJob(size_t index, bool frozen, Forecast& forecast) const {
  const JobState& job = state_.jobs[index];
  Foresee(job.use, job.klass, 0, Bytes{}, frozen, job.main_seen, job_seen_[index], forecast);
}

Forecast Predictor::Of(const Usage& use, uint32_t klass, Bytes floor, bool frozen,
                       int64_t input_bytes) const {
  Forecast forecast;
  Foresee(use, klass, Gain(klass, input_bytes), floor, frozen, true,
          See(use, models_[static_cast<size_t>(slots_[klass])]), forecast);
  return forecast;
}

Forecast Predictor::Fresh(uint32_t klass, Bytes floor, int64_t input_bytes) const {
  Forecast forecast;
  Foresee(Usage{}, klass, Gain(klass, input_bytes), floor, false, false, Sighting{}, forecast);
  return forecast;
}

// `tells`: it does what takes its memory, so that its speed and size say something.
void Predictor::Foresee(const Usage& use, uint32_t klass, float gain_of_input, Bytes floor,
                        bool frozen, bool tells, const Sighting& seen, Forecast& forecast) const {
  if (!state_.prediction) {
    forecast.level.fill(static_cast<float>(use.anon.count));
    forecast.peak = AsDouble(use.peak);
    return;
  }
  if (state_.spoiled_peak) {
    forecast.peak = AsDouble(*state_.spoiled_peak);
    forecast.level.fill(static_cast<float>(std::max(use.anon, *state_.spoiled_peak).count));
    return;
  }
  const Model& model = models_[static_cast<size_t>(slots_[klass])];

  // The peak: the class's, and what its own curve says so far.
  const float now_bytes = static_cast<float>(use.anon.count);
  const float largest = static_cast<float>(use.peak.count);
  const float typical = static_cast<float>(model.mean_peak);
  const float class_peak = gain_of_input == 0 ? typical : typical * std::exp(gain_of_input);
  float above = 0;  // ln(own peak / class's)
  double own_var = model.within;
  double gain = 1;
  if (seen.valid) {
    const double w = model.within / (model.within + static_cast<double>(seen.var));
    above =
        static_cast<float>(w * (static_cast<double>(seen.ln_peak - gain_of_input) - model.mean));
    own_var *= 1 - w;
    gain = 1 - w;
  }
  const float own = class_peak * std::exp(above + std::min(0.3F, static_cast<float>(own_var) / 2));
  const float peak = std::max({own, largest, static_cast<float>(floor.count)});
  forecast.peak = static_cast<double>(peak);
  forecast.own_var = own_var;
  forecast.common_gain = gain;
  if (frozen) {
    forecast.level.fill(now_bytes);
    return;
  }

  // One that is larger than its class takes longer as well.
  float per_cpu_s = model.per_cpu_s;
  if (peak > 1.05F * typical) {
    per_cpu_s *= std::pow(std::min(peak / typical, kMostStretch), -kStretch);
  }
  const ClassCurves& curves = *model.curves;
  const float age = static_cast<float>(Seconds(use.cpu));
  const float u = age * per_cpu_s;
  const ClassCurves::Point here = At(curves, u);
  // Past its peak and falling it hardly comes back to it.
  float reach = peak;
  if (largest > 0 && now_bytes < 0.7F * largest && here.rise > 0.6F) {
    reach = now_bytes + (peak - now_bytes) * (now_bytes / largest) * (now_bytes / largest);
  }
  const float per_left = 1 / std::max(0.02F, 1 - here.rise);
  // Its own speed, once it does what takes the memory; front ends run on one core.
  const bool own_speed = tells && use.sampled_at != Time{} && (age > 0.2F || u > 0.1F);
  // One that has stood still since it was seen (it waits for a lock, a download, a child) may go on
  // at any time, but nothing says that it will be now: a forgotten compiler somewhere on the
  // machine would else count as one about to grow for as long as it stands.
  const bool still = !model.job && use.cpu_rate < kStillRate &&
                     Seconds(use.sampled_at - use.since) > kStillSeconds;
  const float speed = static_cast<float>(still       ? use.cpu_rate
                                         : own_speed ? std::max(0.05, use.cpu_rate)
                                                     : model.rate);
  const float ahead = use.growth > 0 ? 0.5F * static_cast<float>(use.growth) * speed : 0;
  const float per_second = speed * per_cpu_s;
  if (!model.job) {
    // The class's mean course, from what it has now: unbiased over the class, also in the fall (the
    // plan is the sum of many). Early on, when it has next to nothing, from the peak instead.
    const float trust = static_cast<float>(curves.trust);
    const float from_now = trust * here.rise * now_bytes / std::max(0.02F, here.level);
    const float from_peak = trust * (1 - here.rise) * peak;
    const float per_alive = 1 / here.alive;
    const bool is_short = per_second > kShort;
    for (size_t block = 0; block < kBlocks; ++block) {
      const Float4 horizon = Load(kHorizonFloats, block);
      const Float4 before = Load(kBeforeFloats, block);
      const Float4 after = Load(kAfterFloats, block);
      // Its highest point around each horizon. One look in the middle is enough where little of its
      // life passes from one horizon to the next, or where it is over by then; else those that
      // start together, which reach their peaks together, would do so at a moment that nobody looks
      // at.
      Int4 coarse{};
      if (is_short) {
        coarse = (per_second * (before + after) > kCoarse) &
                 (u + per_second * (horizon - before / 2) < 1);
      }
      const bool any = (coarse[0] | coarse[1] | coarse[2] | coarse[3]) != 0;
      Float4 levels{};
      Float4 slopes{};
      for (int look = any ? 0 : kLooksAround / 2;
           look <= (any ? kLooksAround - 1 : kLooksAround / 2); ++look) {
        // From half way to the one before to half way to the one after.
        const float off = static_cast<float>(look) / (kLooksAround - 1) - 0.5F;
        const Float4 when = coarse ? horizon + off * (off < 0 ? before : after) : horizon;
        const Float4 at = u + per_second * when;
        const Course then = At(curves, at);
        const Float4 f = Min((then.rise - here.rise) * per_left, All(1));
        Float4 level = (from_now + from_peak) * then.level +
                       (1 - trust) * (now_bytes + (reach - now_bytes) * f);
        if (ahead > 0) level = when <= 4 ? Max(level, now_bytes + ahead * when) : level;
        // That it may have ended takes nothing off its peak: one that is quicker peaks sooner.
        const Float4 runs = (coarse & (at < 1)) ? All(1) : Min(then.alive * per_alive, All(1));
        levels = Max(levels, level * runs);
        slopes = Max(slopes, (from_peak * then.level + (1 - trust) * reach * f) * runs);
      }
      Store(forecast.level, block, levels);
      Store(forecast.slope, block, slopes);
    }
    return;
  }
  const float per_keep = 1 / here.keep;
  for (size_t block = 0; block < kBlocks; ++block) {
    const Float4 horizon = Load(kHorizonFloats, block);
    const Course then = At(curves, u + per_second * horizon);
    Float4 f = Min((then.rise - here.rise) * per_left, All(1));
    Float4 kept = Min(then.keep * per_keep, All(1));
    if (block == 0 && u < 1 && per_second * horizon[0] >= 1 - u) {
      // Its whole life is shorter than the first horizon: its peak lies at no moment that is looked
      // at.
      f[0] = 1;
      kept[0] = 1;
    }
    // What grows goes on growing for a while, whatever the class does.
    const Float4 level =
        Max(now_bytes + (reach - now_bytes) * f, now_bytes + ahead * Min(horizon, All(4)));
    Store(forecast.level, block, level * kept);
    Store(forecast.slope, block, reach * f * kept);
  }
}

void Blur(Forecast& forecast, double learned) {
  // Neighbours on either side: horizons are a factor of 1.3 to 2 apart. A course is known once a
  // handful of this kind have run to their end.
  const size_t reach = learned < 2 ? 2 : learned < kKnownCourse ? 1 : 0;
  if (reach == 0) return;
  const Forecast sharp = forecast;
  // By distance: each loop is worked on four numbers at a time.
  for (size_t off = 1; off <= reach; ++off) {
    for (size_t h = 0; h + off < kHorizons; ++h) {
      forecast.level[h] = std::max(forecast.level[h], sharp.level[h + off]);
      forecast.slope[h] = std::max(forecast.slope[h], sharp.slope[h + off]);
    }
    for (size_t h = off; h < kHorizons; ++h) {
      forecast.level[h] = std::max(forecast.level[h], sharp.level[h - off]);
      forecast.slope[h] = std::max(forecast.slope[h], sharp.slope[h - off]);
    }
  }
}

Bytes Predictor::P95(uint32_t klass, Bytes floor, int64_t input_bytes) const {
  if (state_.spoiled_peak) return *state_.spoiled_peak;
  if (!state_.prediction) return Bytes{};
  const Model& model = models_[static_cast<size_t>(slots_[klass])];
  const double p95 = std::exp(model.mean + static_cast<double>(Gain(klass, input_bytes)) +
                              1.645 * std::sqrt(model.within + model.total_var));
  return std::max(floor, Bytes{static_cast<int64_t>(std::min(p95, 1e15))});
}

}  // namespace headroom::policy
