#include "server/daemon/domains.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/sys/arcstats.h"
#include "server/sys/file.h"
#include "server/sys/psi.h"
#include "server/sys/vmstat.h"

namespace headroom::daemon {
namespace {

using policy::Bytes;
using policy::DomainId;
using policy::LaneId;

// While this share of a limit is unused no file pages are reclaimed for it: usage alone then says
// how available memory moves. (For a limit above, its own figure says so.)
constexpr int64_t kUnusedShare = 8;

// Mounts change rarely: a container started after the daemon.
constexpr int kMountsEvery = 30;

uint64_t Counter(const std::optional<int64_t>& value) {
  return static_cast<uint64_t>(std::max<int64_t>(0, value.value_or(0)));
}

}  // namespace

int64_t ArcCredit(int64_t reclaimable_bytes, int64_t total_bytes) {
  constexpr int64_t kLeastSlice = int64_t{256} << 20;
  return std::clamp<int64_t>(reclaimable_bytes, 0, std::max(kLeastSlice, total_bytes / 50));
}

absl::StatusOr<Domains> Domains::Open(const sys::Roots& roots) {
  absl::StatusOr<sys::MemInfoReader> meminfo = sys::MemInfoReader::Open(roots);
  if (!meminfo.ok()) return meminfo.status();
  Domains domains(roots, *std::move(meminfo));
  domains.RefreshMounts();
  return domains;
}

void Domains::RefreshMounts() {
  if (absl::StatusOr<std::string> text = sys::ReadFile(roots_.proc + "/self/mountinfo");
      text.ok()) {
    mounts_ = sys::ParseMountInfo(*text);
  }
}

void Domains::Start(Emit emit) {
  emit_ = std::move(emit);
  host_told_ = {kHost, DomainId::kNone, "host", Bytes{}, false, false};
  host_last_.id = kHost;
  ReadHost(true, &host_last_);
}

void Domains::ReadHost(bool all, policy::DomainSample* sample) {
  if (const absl::StatusOr<sys::MemInfo> info = meminfo_.Read(); info.ok()) {
    available_is_estimate_ = info->available_is_estimate;
    extras_.shmem_bytes = info->shmem_bytes;
    if (all) {
      const std::optional<sys::ArcStats> arc = sys::ReadArcStats(roots_);
      extras_.arc_credit_bytes = arc ? ArcCredit(arc->ReclaimableBytes(), info->total_bytes) : 0;
    }
    sample->available =
        Bytes{std::min(info->total_bytes, info->available_bytes + extras_.arc_credit_bytes)};
    policy::DomainSeen now = host_told_;
    now.limit = Bytes{info->total_bytes};
    now.swap_possible = info->swap_total_bytes > 0;
    now.kills_group = std::any_of(nodes_.begin(), nodes_.end(),
                                  [](const auto& entry) { return entry.second.kills_group; });
    if (now != host_told_) {
      host_told_ = now;
      emit_(now);
    }
  }
  if (!all) return;
  const std::optional<sys::Psi> psi = sys::ReadMemoryPsi(roots_);
  has_psi_ = psi && psi->full;
  sample->psi_full_avg10.reset();
  if (has_psi_) sample->psi_full_avg10 = policy::Permyriad{psi->full->avg10_permyriad};
  if (const absl::StatusOr<sys::VmStat> vmstat = sys::ReadVmStat(roots_); vmstat.ok()) {
    has_oom_counter_ = vmstat->oom_kills.has_value();
    sample->oom_kills = Counter(vmstat->oom_kills);
    sample->swap_in_pages = Counter(vmstat->swapped_in_pages);
  }
}

std::optional<sys::CgroupLocation> Domains::Locate(pid_t pid) const {
  const absl::StatusOr<std::string> text =
      sys::ReadFile(absl::StrCat(roots_.proc, "/", pid, "/cgroup"));
  if (!text.ok()) return std::nullopt;
  return sys::LocateCgroup(sys::ParseProcCgroup(*text), mounts_, "memory");
}

DomainId Domains::NearestFrom(std::optional<sys::FileId> at) const {
  while (at) {
    const auto node = nodes_.find(*at);
    if (node == nodes_.end()) break;
    if (node->second.id != DomainId::kNone) return node->second.id;
    at = node->second.parent;
  }
  return kHost;
}

DomainId Domains::Lookup(pid_t pid) const {
  std::optional<sys::CgroupLocation> location = Locate(pid);
  if (!location) return kHost;
  for (;;) {
    const auto leaf = leaf_of_path_.find(location->Path());
    if (leaf != leaf_of_path_.end()) return NearestFrom(leaf->second);
    if (location->relative.empty()) return kHost;
    location->relative.resize(location->relative.rfind('/'));
  }
}

bool Domains::KillsGroup(const Node& node) const {
  for (const auto& [id, below] : nodes_) {
    if (!below.kills_group) continue;
    for (const Node* up = &below; up != nullptr;) {
      if (up == &node) return true;
      const auto next = up->parent ? nodes_.find(*up->parent) : nodes_.end();
      up = next == nodes_.end() ? nullptr : &next->second;
    }
  }
  return false;
}

void Domains::Tell(Node& node, const sys::CgroupMemory& reading) {
  node.kills_group = reading.oom_group;
  const std::optional<int64_t> limit = reading.EffectiveLimitBytes();
  if (!limit) {
    if (node.id == DomainId::kNone) return;
    const DomainId gone = std::exchange(node.id, DomainId::kNone);
    emit_(policy::DomainGone{gone});
    return;
  }
  if (node.id == DomainId::kNone) {
    node.id = DomainId{next_id_++};
    node.told = {};
  }
  const policy::DomainSeen now = {
      node.id,
      NearestFrom(node.parent),
      node.cgroup.name(),
      Bytes{*limit},
      host_told_.swap_possible && reading.swap_limit_bytes.value_or(1) > 0,
      KillsGroup(node)};
  if (now != node.told) {
    node.told = now;
    emit_(now);
  }
}

DomainId Domains::Hold(LaneId lane, pid_t pid) {
  const std::optional<sys::CgroupLocation> location = Locate(pid);
  if (!location) return kHost;
  // From the visible root down, so that a parent is told of before its child.
  std::vector<sys::CgroupLocation> levels;
  for (sys::CgroupLocation level = *location;;) {
    levels.push_back(level);
    if (level.relative.empty()) break;
    level.relative.resize(level.relative.rfind('/'));
  }
  std::optional<sys::FileId> parent;
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    absl::StatusOr<sys::MemoryCgroup> cgroup = sys::MemoryCgroup::Open(roots_, *level);
    if (!cgroup.ok()) break;  // vanished: what is above counts
    const sys::FileId id = cgroup->id();
    auto node = nodes_.find(id);
    if (node == nodes_.end()) {
      Node fresh{*std::move(cgroup), parent, DomainId::kNone, {}, {}, {}, {}, 0, false, {}};
      node = nodes_.emplace(id, std::move(fresh)).first;
      if (const std::optional<sys::CgroupMemory> reading = node->second.cgroup.Read()) {
        Tell(node->second, *reading);
        CountOomKills(node->second, *reading);
      }
    }
    node->second.holders[lane] = 1;
    leaf_of_path_.insert_or_assign(level->Path(), id);
    parent = id;
  }
  return NearestFrom(parent);
}

DomainId Domains::HoldAgain(LaneId lane, pid_t pid) {
  const std::optional<sys::CgroupLocation> location = Locate(pid);
  if (!location) return kHost;
  const auto leaf = leaf_of_path_.find(location->Path());
  if (leaf != leaf_of_path_.end()) {
    const auto node = nodes_.find(leaf->second);
    if (node != nodes_.end() && node->second.holders.contains(lane)) {
      return NearestFrom(leaf->second);
    }
  }
  return Hold(lane, pid);
}

void Domains::Forget(std::map<sys::FileId, Node>::iterator node) {
  if (node->second.id != DomainId::kNone) emit_(policy::DomainGone{node->second.id});
  std::erase_if(leaf_of_path_, [&](const auto& entry) { return entry.second == node->first; });
  nodes_.erase(node);
}

void Domains::Drop(LaneId lane) {
  for (auto node = nodes_.begin(); node != nodes_.end();) {
    const auto here = node++;
    here->second.holders.erase(lane);
    if (here->second.holders.empty()) Forget(here);
  }
}

DomainId Domains::Tightest(const std::vector<DomainId>& domains) const {
  DomainId best = kHost;
  std::optional<Bytes> least;
  for (const auto& [id, node] : nodes_) {
    if (node.id == DomainId::kNone) continue;
    if (std::find(domains.begin(), domains.end(), node.id) == domains.end()) continue;
    if (!least || node.last.available < *least) {
      least = node.last.available;
      best = node.id;
    }
  }
  return best;
}

std::vector<policy::DomainSample> Domains::ReadAll() {
  if (++reads_ % kMountsEvery == 0) RefreshMounts();
  ReadHost(true, &host_last_);
  std::vector<policy::DomainSample> samples = {host_last_};
  std::vector<sys::FileId> gone;
  for (auto& [id, node] : nodes_) {
    const std::optional<sys::CgroupMemory> reading = node.cgroup.Read();
    if (!reading) {
      gone.push_back(id);
      continue;
    }
    Tell(node, *reading);
    CountOomKills(node, *reading);
    node.read = *reading;
    if (node.id == DomainId::kNone) continue;
    node.last.id = node.id;
    node.last.available = Bytes{reading->AvailableBytes().value_or(0)};
    node.last.psi_full_avg10.reset();
    if (const std::optional<sys::Psi> psi = node.cgroup.ReadPsi(); psi && psi->full) {
      node.last.psi_full_avg10 = policy::Permyriad{psi->full->avg10_permyriad};
    }
  }
  for (const sys::FileId& id : gone) Forget(nodes_.find(id));
  for (auto& [id, node] : nodes_) {
    if (node.id == DomainId::kNone) continue;
    node.last.oom_kills = node.oom_kills;
    samples.push_back(node.last);
  }
  return samples;
}

void Domains::CountOomKills(Node& node, const sys::CgroupMemory& reading) {
  const uint64_t now = Counter(reading.oom.oom_kills);
  const bool known = node.own_oom_kills.has_value();
  const uint64_t before = node.own_oom_kills.value_or(0);
  node.own_oom_kills = now;
  if (now <= before) return;
  const uint64_t rise = now - before;
  node.oom_kills += rise;
  // What was counted before it was known is no news to those above, nor is what v2 counts there
  // too.
  if (!known || node.cgroup.version() != sys::CgroupVersion::kV1) return;
  for (std::optional<sys::FileId> above = node.parent; above;) {
    const auto parent = nodes_.find(*above);
    if (parent == nodes_.end()) break;
    parent->second.oom_kills += rise;
    above = parent->second.parent;
  }
}

std::vector<policy::DomainSample> Domains::ReadFast() {
  ReadHost(false, &host_last_);
  std::vector<policy::DomainSample> samples = {host_last_};
  for (auto& [id, node] : nodes_) {
    if (node.id == DomainId::kNone) continue;
    const std::optional<sys::CgroupMemory> reading = node.cgroup.ReadFast();
    if (!reading) continue;  // ReadAll tells of it
    node.read = *reading;
    node.last.id = node.id;
    node.last.available = Bytes{reading->AvailableBytes().value_or(0)};
    node.last.oom_kills = node.oom_kills;
    samples.push_back(node.last);
  }
  return samples;
}

std::vector<policy::DomainSample> Domains::Glance() {
  policy::DomainSample host = host_last_;
  ReadHost(false, &host);
  std::vector<policy::DomainSample> samples = {host};
  for (auto& [id, node] : nodes_) {
    if (node.id == DomainId::kNone) continue;
    std::optional<sys::CgroupMemory> reading;
    const std::optional<int64_t> limit = node.read.EffectiveLimitBytes();
    if (limit) {
      if (const std::optional<int64_t> usage = node.cgroup.ReadUsage();
          usage && *usage < *limit - *limit / kUnusedShare) {
        reading = node.read;
        reading->usage_bytes = usage;
      }
    }
    if (!reading) reading = node.cgroup.ReadFast();
    if (!reading) continue;  // ReadAll tells of it
    policy::DomainSample sample = node.last;
    sample.id = node.id;
    sample.available = Bytes{reading->AvailableBytes().value_or(0)};
    samples.push_back(sample);
  }
  return samples;
}

std::optional<uint64_t> Domains::OomKills(DomainId domain) {
  if (domain == kHost) {
    const absl::StatusOr<sys::VmStat> vmstat = sys::ReadVmStat(roots_);
    if (!vmstat.ok() || !vmstat->oom_kills) return std::nullopt;
    return Counter(vmstat->oom_kills);
  }
  for (auto& [id, node] : nodes_) {
    if (const std::optional<sys::CgroupMemory> reading = node.cgroup.Read()) {
      CountOomKills(node, *reading);
    }
  }
  for (const auto& [id, node] : nodes_) {
    if (node.id == domain) return node.oom_kills;
  }
  return std::nullopt;
}

std::vector<std::string> Domains::notes() const {
  std::vector<std::string> notes;
  if (available_is_estimate_) {
    notes.push_back(
        "this kernel has no MemAvailable; it is estimated from free memory and the page cache");
  }
  if (!has_psi_) {
    notes.push_back(
        "this kernel has no memory pressure figures (PSI); only memory that is left "
        "is looked at");
  }
  if (!has_oom_counter_) {
    notes.push_back("this kernel doesn't count OOM kills; they can't be told from other kills");
  }
  const bool has_cgroup = std::any_of(mounts_.begin(), mounts_.end(), [](const sys::Mount& mount) {
    return mount.type == "cgroup2" ||
           (mount.type == "cgroup" && mount.super_options.find("memory") != std::string::npos);
  });
  if (!has_cgroup) {
    notes.push_back("no memory cgroup is mounted here; only the host's memory is planned with");
  }
  return notes;
}

}  // namespace headroom::daemon
