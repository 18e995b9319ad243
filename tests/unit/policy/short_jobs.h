// A closed loop in a few words, for tests of the policy: short jobs that all follow one curve, a
// client that takes tokens as soon as they lie in the fifo, a daemon that looks each 50 ms, and a
// hog that is no part of the build. Time is virtual.
#ifndef HEADROOM_TESTS_UNIT_POLICY_SHORT_JOBS_H_
#define HEADROOM_TESTS_UNIT_POLICY_SHORT_JOBS_H_

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "tests/unit/policy/fixture.h"

namespace headroom::policy {

struct ShortJobs {
  struct Point {
    double seconds;
    double bytes;
  };
  struct Job {
    double age = 0;  // seconds along the curve
    double scale = 1;
    bool token = false;  // else it runs in the implicit slot
  };

  ShortJobs(Bytes limit, int most_jobs, std::vector<Point> job_curve, double share_of_core)
      : host(limit), curve(std::move(job_curve)), share(share_of_core) {
    LaneOpened lane = host.Open(2);
    lane.jobs_cap = most_jobs;
    host.Feed(lane);
    Obey();
  }

  double BytesAt(double age) const {
    for (size_t i = 1; i < curve.size(); ++i) {
      if (age > curve[i].seconds) continue;
      const double f = (age - curve[i - 1].seconds) / (curve[i].seconds - curve[i - 1].seconds);
      return curve[i - 1].bytes + f * (curve[i].bytes - curve[i - 1].bytes);
    }
    return 0;
  }

  // The client: fills its implicit slot and takes every token that it finds.
  void Client() {
    const auto implicit =
        std::any_of(jobs.begin(), jobs.end(), [](const auto& job) { return !job.second.token; });
    if (!implicit) Start(false);
    for (; idle > 0; --idle) Start(true);
  }
  void Start(bool token) {
    const int pid = next_pid += 2;
    // Uneven by a fifth, in a fixed order.
    jobs[pid] = Job{0, 0.9 + 0.05 * (pid / 2 % 5), token};
    JobSeen job;
    job.job = {pid, 1};
    job.lane = kLane;
    job.driver = "c++";
    job.source = "unit" + std::to_string(pid) + ".cc";
    host.Feed(job);
    ProcSeen proc = Tool(pid + 1, "cc1plus", job.source.c_str());
    proc.job = job.job;
    host.Feed(proc);
    Obey();
  }
  void End(int pid) {
    const bool token = jobs.at(pid).token;
    jobs.erase(pid);
    host.Feed(ProcGone{ProcId{pid + 1, 1}});
    host.Feed(JobGone{ProcId{pid, 1}});
    if (token) {
      if (debt > 0) {
        --debt;
        host.Feed(TokensMoved{kLane, 0, 1, idle});
      } else {
        ++idle;
      }
    }
    Obey();
  }
  void Obey() {
    for (const Action& action : host.Take()) {
      if (const auto* mint = std::get_if<Mint>(&action)) {
        idle += mint->count;
        host.Feed(TokensMoved{kLane, mint->count, 0, idle});
      } else if (const auto* collect = std::get_if<Collect>(&action)) {
        debt = collect->debt;
        const int taken = std::min(debt, idle);
        idle -= taken;
        debt -= taken;
        if (taken > 0) host.Feed(TokensMoved{kLane, 0, taken, idle});
      } else if (const auto* freeze = std::get_if<Freeze>(&action)) {
        frozen.insert(freeze->proc.pid - 1);
        ++freezes;
      } else if (const auto* thaw = std::get_if<Thaw>(&action)) {
        frozen.erase(thaw->proc.pid - 1);
      }
    }
    if (!host.actions.empty()) Obey();
  }

  int Running() const {
    return static_cast<int>(std::count_if(
        jobs.begin(), jobs.end(), [&](const auto& job) { return frozen.count(job.first) == 0; }));
  }
  double Used() const {
    double used = hog;
    for (const auto& [pid, job] : jobs) used += job.scale * BytesAt(job.age);
    return used;
  }

  // `hog_rate`: bytes a second that the hog takes, up to `hog_most`. Gives the mean of running
  // jobs.
  double Run(double seconds, double hog_rate = 0, double hog_most = 0) {
    constexpr double kLook = 0.05;
    double sum = 0;
    int looks = 0;
    for (double t = 0; t < seconds - 1e-9; t += kLook) {
      host.Wait(Sec(kLook));
      hog = hog_rate < 0 ? 0 : std::min(std::max(hog, hog_most), hog + hog_rate * kLook);
      std::vector<int> ended;
      // All that run share the cores.
      double pace = std::min(1.0, cores / (share * std::max(1, Running())));
      // The machine's other load takes up to four fifths away, for two seconds at a time.
      if (starved) {
        pace *= 1 - 0.2 * static_cast<double>(host.now.time_since_epoch() / Sec(2) * 7 % 5);
      }
      for (auto& [pid, job] : jobs) {
        if (frozen.count(pid) == 0) job.age += kLook * pace;
        if (job.age >= curve.back().seconds) ended.push_back(pid);
      }
      for (int pid : ended) End(pid);
      Client();
      const double used = Used();
      const double limit = static_cast<double>(host.state.domains.at(kHost).limit.count);
      if (used > limit) ++out_of_memory;
      least_free = std::min(least_free, limit - used);
      host.available = Bytes{static_cast<int64_t>(std::max(0.0, limit - used))};
      std::vector<ProcSample> samples;
      for (const auto& [pid, job] : jobs) {
        samples.push_back({ProcId{pid + 1, 1},
                           Bytes{static_cast<int64_t>(job.scale * BytesAt(job.age))},
                           // proc(5) counts in ticks of 10 ms.
                           Sec(std::floor(job.age * share * 100) / 100)});
      }
      host.Look({LaneSample{kLane, idle, 1, static_cast<int>(jobs.size()) - 1, true}}, samples);
      Obey();
      Client();
      sum += Running();
      ++looks;
    }
    return looks > 0 ? sum / looks : 0;
  }

  Host host;
  std::vector<Point> curve;
  double share;  // of a core that a job uses
  double cores = 1e9;
  bool starved = false;
  std::map<int, Job> jobs;
  std::set<int> frozen;
  int next_pid = 1000;
  int idle = 0;
  int debt = 0;
  double hog = 0;
  int freezes = 0;
  int out_of_memory = 0;
  double least_free = 1e18;
};

}  // namespace headroom::policy

#endif  // HEADROOM_TESTS_UNIT_POLICY_SHORT_JOBS_H_
