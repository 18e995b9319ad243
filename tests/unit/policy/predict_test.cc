// Prediction: priors are dominated by what is seen; errors of a wave are common; curves sharpen.
#include "server/policy/predict.h"

#include <cmath>

#include "tests/unit/policy/fixture.h"

namespace headroom::policy {
namespace {

// A process that grows in a straight line to `peak` over `cpu_s`, as the sampler sees it.
Usage Ramp(double peak, double cpu_s, double upto_s) {
  Usage use;
  Time now{std::chrono::seconds(1)};
  use.since = now;
  for (double at = 0.1; at <= upto_s + 1e-9; at += 0.1) {
    now += Sec(0.1);
    Update(use, Bytes{static_cast<int64_t>(peak * std::min(1.0, at / cpu_s))}, Sec(at), now);
  }
  return use;
}

const Model& ModelOf(const Predictor& predictor, uint32_t klass) {
  return predictor.models()[static_cast<size_t>(predictor.Slot(klass))];
}

TEST_CASE("families: a kernel and its size, not its type") {
  CHECK(Family("csrc/flash_bwd_hdim128_bf16_causal_sm80.cu") == "flash_bwd_hdim128");
  CHECK(Family("flash_bwd_hdim128_fp16_sm80.cu") == "flash_bwd_hdim128");
  CHECK(Family("gemm_large.cu") == "gemm_large");
  CHECK(Family("kernel07.cu") == "kernel");
  CHECK(Family("main.cc").empty());
  CHECK(Family("").empty());
  CHECK(Family(std::string(100000, '_')).size() <= 64);
}

TEST_CASE("what a build shows dominates the prior from the third process on") {
  State state;
  const uint32_t klass = ToolClass(state.profile, "cicc", "a.cu");
  const double before = Predictor(state, {klass}).Fresh(klass, {}).peak;
  CHECK(before > 1.5e9);
  for (const char* other : {"b.cu", "c.cu", "d.cu"}) {
    Learn(state.profile, ToolClass(state.profile, "cicc", other), Ramp(3e8, 5, 5));
  }
  const Predictor after(state, {klass});
  CHECK(after.Fresh(klass, {}).peak == Approx(3e8).epsilon(0.3));
  CHECK(ModelOf(after, klass).source == PredictionSource::kTool);
  CHECK(ModelOf(after, klass).cpu_s < 12);
}

TEST_CASE("a family that differs from its tool is told apart") {
  State state;
  const uint32_t small = ToolClass(state.profile, "cicc", "copy_small_f32_1.cu");
  const uint32_t large = ToolClass(state.profile, "cicc", "gemm_large_f32_1.cu");
  REQUIRE(small != large);
  for (int i = 2; i < 6; ++i) {
    const std::string n = std::to_string(i) + ".cu";
    Learn(state.profile, ToolClass(state.profile, "cicc", "copy_small_f32_" + n), Ramp(2e8, 3, 3));
    Learn(state.profile, ToolClass(state.profile, "cicc", "gemm_large_f32_" + n),
          Ramp(4e9, 30, 30));
  }
  const Predictor predictor(state, {small, large});
  CHECK(predictor.Fresh(small, {}).peak < 6e8);
  CHECK(predictor.Fresh(large, {}).peak > 2.5e9);
  CHECK(ModelOf(predictor, small).source == PredictionSource::kFamily);
}

TEST_CASE("a source that ran before is told by itself") {
  State state;
  const auto klass = [&](int i) {
    return ToolClass(state.profile, "cicc", "flash_bwd_hdim64_" + std::to_string(i) + ".cu");
  };
  for (int i = 0; i < 8; ++i) Learn(state.profile, klass(i), Ramp(i == 3 ? 9e9 : 3e9, 30, 30));
  const Predictor predictor(state, {klass(3), klass(4), klass(9)});
  CHECK(predictor.Fresh(klass(3), {}).peak > 1.5 * predictor.Fresh(klass(4), {}).peak);
  CHECK(ModelOf(predictor, klass(3)).source == PredictionSource::kHistory);
  // Of a new one the family tells most.
  CHECK(ModelOf(predictor, klass(9)).source == PredictionSource::kFamily);
  CHECK(predictor.Fresh(klass(9), {}).peak < 5e9);
}

TEST_CASE("a falling class is expected to give memory back") {
  State state;
  // Up to 4 GB within 10 s, back to 1 GB at 20 s, until 40 s.
  const auto course = [](double at) {
    return at <= 10 ? 4e8 * at : at <= 20 ? 4e9 - 3e8 * (at - 10) : 1e9;
  };
  const auto run = [&](double upto) {
    Usage use;
    Time now{Sec(1000)};
    use.since = now;
    for (double at = 0.1; at <= upto + 1e-9; at += 0.1) {
      now += Sec(0.1);
      Update(use, Bytes{static_cast<int64_t>(course(at))}, Sec(at), now);
    }
    return use;
  };
  for (int i = 0; i < 12; ++i) {
    Learn(state.profile, ToolClass(state.profile, "cicc", "fall_off_x_" + std::to_string(i)),
          run(40));
  }
  const uint32_t klass = ToolClass(state.profile, "cicc", "fall_off_x_99");
  const Predictor predictor(state, {klass});
  for (const double at : {12.0, 15.0, 25.0}) {
    const Forecast forecast = predictor.Of(run(at), klass, {}, false);
    for (size_t h = 0; h < kHorizons && at + kHorizonSeconds[h] < 38; ++h) {
      INFO("at " << at << " s, " << kHorizonSeconds[h] << " s ahead");
      CHECK(forecast.level[h] == Approx(course(at + kHorizonSeconds[h])).epsilon(0.3).margin(7e8));
    }
  }
}

TEST_CASE("the error of a wave is common to it, and its running members narrow it") {
  Host host(GiB(400));
  host.Feed(host.Open(32));
  const uint32_t klass = ToolClass(host.state.profile, "cicc", "");
  const double prior = ModelOf(Predictor(host.state, {klass}), klass).total_var;
  for (int i = 0; i < 16; ++i) host.Feed(Tool(100 + i, "cicc", ""));
  // All of them twice as heavy as the prior, half-way up.
  for (int t = 1; t <= 140; ++t) {
    host.Wait(Sec(0.1));
    std::vector<ProcSample> samples;
    for (int i = 0; i < 16; ++i) {
      samples.push_back({ProcId{100 + i, 1}, Bytes{static_cast<int64_t>(3.3e7 * t)}, Sec(0.1 * t)});
    }
    host.Look({}, samples);
  }
  const Predictor predictor(host.state, {klass});
  const Model& model = ModelOf(predictor, klass);
  CHECK(model.total_var < prior / 4);
  CHECK(std::exp(model.mean) > 4.2e9);
  // One of the same kind that has not begun is expected to be as heavy.
  CHECK(predictor.Fresh(klass, {}).peak > 4e9);
}

TEST_CASE("a process that stopped growing is not expected to grow") {
  State state;
  const uint32_t klass = ToolClass(state.profile, "cicc", "");
  Usage flat = Ramp(2e8, 2, 2);
  Time now = flat.sampled_at;
  for (int i = 1; i <= 100; ++i) {
    now += Sec(0.1);
    Update(flat, Bytes{200000000}, Sec(2 + 0.1 * i), now);
  }
  const Usage growing = Ramp(2.4e9, 12, 12);
  const Predictor predictor(state, {klass});
  const Forecast still = predictor.Of(flat, klass, {}, false);
  const Forecast moving = predictor.Of(growing, klass, {}, false);
  CHECK(still.peak < 1.2e9);
  CHECK(moving.peak > 2.6e9);
}

TEST_CASE("one that grows faster than its class goes on growing") {
  State state;
  const uint32_t klass = ToolClass(state.profile, "cc1plus", "");
  for (int i = 0; i < 10; ++i) Learn(state.profile, klass, Ramp(1e8, 4, 4));
  const Usage giant = Ramp(3e9, 3, 3);  // 1 GB a second
  const Forecast forecast = Predictor(state, {klass}).Of(giant, klass, {}, false);
  CHECK(forecast.level[0] > 3.2e9);
}

TEST_CASE("a frozen one keeps what it has, a floor holds") {
  State state;
  const uint32_t klass = ToolClass(state.profile, "cicc", "");
  const Usage use = Ramp(1e9, 10, 4);
  const Predictor predictor(state, {klass});
  const Forecast frozen = predictor.Of(use, klass, {}, true);
  for (double level : frozen.level) CHECK(level == Approx(4e8).epsilon(0.01));
  CHECK(predictor.Of(use, klass, GiB(9), false).peak >= 9.0 * 1024 * 1024 * 1024);
  CHECK(predictor.P95(klass, GiB(50)) >= GiB(50));
}

TEST_CASE("memory is expected back when processes of the kind have been seen to end") {
  State state;
  const uint32_t klass = ToolClass(state.profile, "cicc", "");
  for (int i = 0; i < 10; ++i) Learn(state.profile, klass, Ramp(1e9, 10, 10));
  const Usage old = Ramp(1e9, 10, 9);
  const Forecast forecast = Predictor(state, {klass}).Of(old, klass, {}, false);
  CHECK(forecast.level[0] > 7e8);
  CHECK(forecast.level[kHorizons - 1] < 1e8);
}

TEST_CASE("a job of nvcc is expected to take as many cicc as it runs at once") {
  State state;
  const uint32_t one = JobClass(state.profile, "nvcc", 1, "");
  const uint32_t four = JobClass(state.profile, "nvcc", 4, "");
  const Predictor predictor(state, {one, four});
  CHECK(predictor.Fresh(four, {}).peak == Approx(4 * predictor.Fresh(one, {}).peak).epsilon(0.05));
}

TEST_CASE("the test options switch prediction off or spoil it") {
  State state;
  const uint32_t klass = ToolClass(state.profile, "cicc", "");
  state.prediction = false;
  CHECK(Predictor(state, {klass}).Fresh(klass, {}).level[3] == 0);
  state.prediction = true;
  state.spoiled_peak = MiB(1);
  CHECK(Predictor(state, {klass}).Fresh(klass, {}).peak == 1024 * 1024);
}

TEST_CASE("odd figures do no harm") {
  Usage use;
  const Time now{std::chrono::seconds(5)};
  Update(use, Bytes{-5}, Sec(-1), now);
  Update(use, Bytes{INT64_MAX / 2}, Sec(1e6), now);
  Update(use, Bytes{0}, Sec(0), now + Sec(100));
  CHECK(use.marks.size() <= kMarks);
  State state;
  const uint32_t klass = ToolClass(state.profile, std::string(1000, 'x'), std::string(1000, '_'));
  Learn(state.profile, klass, use);
  const Forecast forecast = Predictor(state, {klass}).Of(use, klass, {}, false);
  CHECK(std::isfinite(forecast.peak));
  for (double level : forecast.level) CHECK(std::isfinite(level));
  // Classes are bounded.
  for (int i = 0; i < 5000; ++i) {
    ToolClass(state.profile, "cc1plus", "a" + std::to_string(i) + "_b_c.cc");
    ToolClass(state.profile, "tool" + std::to_string(i), "");
    JobClass(state.profile, "driver" + std::to_string(i), i, "");
  }
  CHECK(state.profile.classes.size() <= kMaxClasses + 100);
}

TEST_CASE("the size of its PTX tells what a ptxas takes, on old toolchains as well") {
  // nvcc 13's ptxas, and one that takes six times as much.
  for (const double times : {1.0, 6.0}) {
    State state;
    const auto peak = [times](int64_t input) {
      return times * (0.08e9 + 30 * static_cast<double>(input));
    };
    for (int i = 0; i < 6; ++i) {
      const int64_t input = (2 + i) * 1'000'000;
      const std::string source = "a" + std::to_string(i) + ".cu";
      Learn(state.profile, ToolClass(state.profile, "ptxas", source), Ramp(peak(input), 5, 5),
            input);
    }
    const uint32_t klass = ToolClass(state.profile, "ptxas", "b.cu");
    const Predictor predictor(state, {klass});
    for (const int64_t input : {1'000'000, 30'000'000}) {
      INFO(times << " times, " << input);
      const Forecast forecast = predictor.Fresh(klass, {}, input);
      CHECK(forecast.peak > 0.9 * peak(input));
      CHECK(forecast.peak < 1.6 * peak(input));
      CHECK(static_cast<double>(predictor.P95(klass, {}, input).count) > peak(input));
      // Half way it still tells of its own size.
      const Forecast half = predictor.Of(Ramp(peak(input), 5, 2.5), klass, {}, false, input);
      CHECK(half.peak > 0.8 * peak(input));
      CHECK(half.peak < 1.7 * peak(input));
    }
    // Without a size: what the class takes.
    CHECK(predictor.Fresh(klass, {}).peak == Approx(predictor.Fresh(klass, {}, 14'000'000).peak));
  }
  // Of other tools it says nothing.
  State state;
  const uint32_t klass = ToolClass(state.profile, "cicc", "b.cu");
  const Predictor predictor(state, {klass});
  CHECK(predictor.Fresh(klass, {}, 1'000'000'000).peak == predictor.Fresh(klass, {}).peak);
}

}  // namespace
}  // namespace headroom::policy
