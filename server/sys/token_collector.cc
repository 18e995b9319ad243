#include "server/sys/token_collector.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <latch>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "server/sys/file.h"

namespace headroom::sys {
namespace {

// A collecting thread at real-time priority must not wait for a caller that lost its core.
class PriorityInheritingMutex {
 public:
  PriorityInheritingMutex() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  ~PriorityInheritingMutex() { pthread_mutex_destroy(&mutex_); }
  PriorityInheritingMutex(const PriorityInheritingMutex&) = delete;
  PriorityInheritingMutex& operator=(const PriorityInheritingMutex&) = delete;
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

// sched_setattr(2)'s argument, first version; not in glibc 2.36.
struct SchedAttr {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns;  // SCHED_OTHER: the EEVDF slice, since Linux 6.12
  uint64_t deadline_ns;
  uint64_t period_ns;
};

// The kernel's least slice; a shorter one gets a waking thread onto its core sooner.
constexpr uint64_t kShortSliceNs = 100'000;
// Bytes taken at once: more than a client gives back in one go.
constexpr int64_t kReadAtOnce = 64;
constexpr size_t kStackBytes = size_t{256} << 10;

// For the calling thread.
TokenCollector::Scheduling SetScheduling(bool realtime) {
  if (realtime) {
    // The least real-time priority: above every compiler, below everything else that is real-time.
    sched_param param = {};
    param.sched_priority = sched_get_priority_min(SCHED_FIFO);
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) == 0) {
      return TokenCollector::Scheduling::kRealtime;
    }
  }
  int nice = -20;
  if (geteuid() != 0) {
    rlimit limit = {};
    const bool known = getrlimit(RLIMIT_NICE, &limit) == 0;
    nice = known && limit.rlim_cur > 20
               ? std::max(-20, 20 - static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 40)))
               : 0;
  }
  SchedAttr attr = {};
  attr.size = sizeof attr;
  attr.policy = SCHED_OTHER;
  attr.nice = nice;
  attr.runtime_ns = kShortSliceNs;
  if (syscall(SYS_sched_setattr, 0, &attr, 0) != 0) {
    attr.nice = 0;
    if (syscall(SYS_sched_setattr, 0, &attr, 0) != 0) return TokenCollector::Scheduling::kNormal;
  }
  // An older kernel takes the slice without a word and reports none.
  SchedAttr got = {};
  if (syscall(SYS_sched_getattr, 0, &got, sizeof got, 0) == 0 && got.runtime_ns == kShortSliceNs) {
    return TokenCollector::Scheduling::kShortSlice;
  }
  return TokenCollector::Scheduling::kNormal;
}

void Signal(int event_fd) {
  const uint64_t one = 1;
  // Fails only where the counter is at its maximum: then it is readable anyway.
  [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof one);
}

class Collector final : public TokenCollector {
 public:
  Collector() = default;
  ~Collector() override { Stop(); }

  absl::Status Init(const Options& options);

  absl::Status Add(Lane lane, int fifo_fd) override;
  absl::StatusOr<int64_t> Remove(Lane lane) override;
  int64_t SetDebt(Lane lane, int64_t debt) override;
  int64_t TakeCollected(Lane lane) override;
  int event_fd() const override { return collected_event_.get(); }
  Scheduling scheduling() const override { return scheduling_.load(); }
  int threads() const override { return static_cast<int>(workers_.size()); }

 private:
  // A thread that polls a fifo keeps its descriptor open, so the number can't come to stand for
  // another file under it.
  using SharedFd = std::shared_ptr<const UniqueFd>;
  struct LaneState {
    SharedFd fd;
    int64_t debt = 0;
    int64_t collected = 0;
  };
  struct Worker {
    Collector* collector = nullptr;
    pthread_t thread = {};
    UniqueFd wake;
    int cpu = -1;                 // -1: any
    std::latch* ready = nullptr;  // counted down once it is scheduled as it will stay
  };

  static void* Main(void* worker);
  void Run(Worker& worker);
  void Collect(Lane lane, const SharedFd& fd, short events);
  void ChangedLocked();
  void Stop();

  mutable PriorityInheritingMutex mutex_;
  std::map<Lane, LaneState> lanes_;  // guarded by mutex_
  uint64_t generation_ = 0;          // guarded by mutex_: changes with the set of lanes in debt
  bool stopping_ = false;            // guarded by mutex_
  UniqueFd collected_event_;
  std::vector<std::unique_ptr<Worker>> workers_;  // constant after Init
  std::atomic<Scheduling> scheduling_{Scheduling::kNormal};
  bool realtime_ = true;
};

absl::Status Collector::Init(const Options& options) {
  realtime_ = options.realtime;
  collected_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!collected_event_) return ErrnoStatus(errno, "eventfd");

  // A mask for as many CPUs as a kernel can have; the default one ends at 1,024.
  constexpr int kMostCpus = 8192;
  cpu_set_t* mask = CPU_ALLOC(kMostCpus);
  const size_t mask_bytes = CPU_ALLOC_SIZE(kMostCpus);
  std::vector<int> cpus;
  if (mask != nullptr && sched_getaffinity(0, mask_bytes, mask) == 0) {
    for (int cpu = 0; cpu < kMostCpus; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), mask_bytes, mask)) cpus.push_back(cpu);
    }
  }
  if (mask != nullptr) CPU_FREE(mask);

  const size_t most = static_cast<size_t>(std::max(1, options.max_threads));
  const size_t count = std::clamp<size_t>(cpus.size(), 1, most);
  const bool pinned = !cpus.empty() && cpus.size() <= most;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  // Signals are the main thread's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  absl::Status status;
  std::latch ready(static_cast<std::ptrdiff_t>(count));
  for (size_t i = 0; i < count && status.ok(); ++i) {
    auto worker = std::make_unique<Worker>();
    worker->collector = this;
    worker->cpu = pinned ? cpus[i] : -1;
    worker->wake = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!worker->wake) {
      status = ErrnoStatus(errno, "eventfd");
      break;
    }
    worker->ready = &ready;
    const int error = pthread_create(&worker->thread, &attributes, &Collector::Main, worker.get());
    if (error != 0) {
      status = ErrnoStatus(error, "start a collecting thread");
      break;
    }
    workers_.push_back(std::move(worker));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  ready.count_down(static_cast<std::ptrdiff_t>(count - workers_.size()));
  ready.wait();
  // One thread collects, too: fewer than there are cores is no reason to give up.
  if (workers_.empty()) return status;
  return absl::OkStatus();
}

void* Collector::Main(void* argument) {
  Worker& worker = *static_cast<Worker*>(argument);
  worker.collector->Run(worker);
  return nullptr;
}

void Collector::Run(Worker& worker) {
  pthread_setname_np(pthread_self(), "hr-collect");
  if (worker.cpu >= 0) {
    // May fail where the cpuset has changed since: then the thread floats.
    constexpr size_t kMostCpus = 8192;
    if (cpu_set_t* mask = CPU_ALLOC(kMostCpus)) {
      const size_t bytes = CPU_ALLOC_SIZE(kMostCpus);
      CPU_ZERO_S(bytes, mask);
      CPU_SET_S(static_cast<size_t>(worker.cpu), bytes, mask);
      pthread_setaffinity_np(pthread_self(), bytes, mask);
      CPU_FREE(mask);
    }
  }
  scheduling_.store(SetScheduling(realtime_));
  worker.ready->count_down();

  std::vector<pollfd> polls;
  std::vector<std::pair<Lane, SharedFd>> targets;  // of polls[1] and on
  bool first = true;
  uint64_t seen = 0;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (first || seen != generation_) {
        first = false;
        seen = generation_;
        targets.clear();
        polls.assign(1, pollfd{worker.wake.get(), POLLIN, 0});
        for (const auto& [lane, state] : lanes_) {
          if (state.debt == 0) continue;
          targets.emplace_back(lane, state.fd);
          polls.push_back(pollfd{state.fd->get(), POLLIN, 0});
        }
      }
    }
    if (poll(polls.data(), polls.size(), -1) <= 0) continue;
    if (polls[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(worker.wake.get(), &count, sizeof count);
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      if (polls[i + 1].revents != 0)
        Collect(targets[i].first, targets[i].second, polls[i + 1].revents);
    }
  }
}

void Collector::Collect(Lane lane, const SharedFd& fd, short events) {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(lane);
  if (found == lanes_.end() || found->second.fd != fd) return;
  LaneState& state = found->second;
  if (state.debt == 0) return;
  char tokens[kReadAtOnce];
  const ssize_t got =
      (events & POLLIN) == 0
          ? 0
          : read(fd->get(), tokens, static_cast<size_t>(std::min(state.debt, kReadAtOnce)));
  if (got > 0) {
    state.debt -= got;
    state.collected += got;
    if (state.debt == 0) ++generation_;
    Signal(collected_event_.get());
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    // Not a fifo that we hold both ends of: poll() would return at once for ever, at real-time
    // priority. Its debt is given up.
    state.debt = 0;
    ++generation_;
  }
}

void Collector::ChangedLocked() {
  ++generation_;
  for (const auto& worker : workers_) Signal(worker->wake.get());
}

absl::Status Collector::Add(Lane lane, int fifo_fd) {
  const int flags = fcntl(fifo_fd, F_GETFL);
  if (flags < 0) return ErrnoStatus(errno, "lane's fifo");
  if ((flags & O_NONBLOCK) == 0) {
    return absl::InvalidArgumentError("the lane's fifo must be opened with O_NONBLOCK");
  }
  UniqueFd copy(fcntl(fifo_fd, F_DUPFD_CLOEXEC, 3));
  if (!copy) return ErrnoStatus(errno, "duplicate the lane's fifo");
  auto shared = std::make_shared<const UniqueFd>(std::move(copy));
  const std::lock_guard lock(mutex_);
  if (!lanes_.emplace(lane, LaneState{std::move(shared), 0, 0}).second) {
    return absl::AlreadyExistsError("lane " + std::to_string(lane) + " is collected from already");
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Collector::Remove(Lane lane) {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(lane);
  if (found == lanes_.end()) {
    return absl::NotFoundError("lane " + std::to_string(lane) + " is not collected from");
  }
  const int64_t collected = found->second.collected;
  const bool polled = found->second.debt > 0;
  lanes_.erase(found);
  if (polled) ChangedLocked();
  return collected;
}

int64_t Collector::SetDebt(Lane lane, int64_t debt) {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(lane);
  if (found == lanes_.end()) return 0;
  LaneState& state = found->second;
  const int64_t collected = std::exchange(state.collected, 0);
  const int64_t before = state.debt;
  state.debt = std::max<int64_t>(0, std::max<int64_t>(0, debt) - collected);
  if ((before > 0) != (state.debt > 0)) ChangedLocked();
  return collected;
}

int64_t Collector::TakeCollected(Lane lane) {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(lane);
  return found == lanes_.end() ? 0 : std::exchange(found->second.collected, 0);
}

void Collector::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ChangedLocked();
  }
  for (const auto& worker : workers_) pthread_join(worker->thread, nullptr);
  workers_.clear();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenCollector>> TokenCollector::Start(const Options& options) {
  auto collector = std::make_unique<Collector>();
  if (absl::Status status = collector->Init(options); !status.ok()) return status;
  return collector;
}

}  // namespace headroom::sys
