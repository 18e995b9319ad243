#include "server/sys/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "server/sys/text.h"

namespace headroom::sys {
namespace {

// v1 writes "unlimited" as the largest whole number of pages in a long, whatever the page size; no
// machine has an eighth of it.
constexpr int64_t kUnlimitedFrom = int64_t{1} << 60;

bool ListHas(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == name) return true;
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return false;
}

bool HasParentStep(std::string_view path) {
  return path == "/.." || path.substr(0, 4) == "/../" ||
         path.find("/../") != std::string_view::npos ||
         (path.size() > 3 && path.substr(path.size() - 3) == "/..");
}

// `path` below `root` ("" for itself), or nullopt where it isn't.
std::optional<std::string> Below(std::string_view root, std::string_view path) {
  if (root == "/") return path == "/" ? std::string() : std::string(path);
  if (path == root) return std::string();
  if (path.size() > root.size() && path.substr(0, root.size()) == root &&
      path[root.size()] == '/') {
    return std::string(path.substr(root.size()));
  }
  return std::nullopt;
}

// Reads a limit that may not be there (v2's root has none). False: the cgroup was removed.
bool ReadLimit(const KeptFile& file, std::optional<int64_t>& bytes) {
  if (!file.is_open()) return true;
  char buffer[128];
  const auto text = file.Read(buffer);
  if (!text) return false;
  const std::optional<ParsedLimit> limit = ParseLimit(*text);
  bytes = limit ? limit->bytes : std::nullopt;
  return true;
}

void OpenOptional(int directory, const char* name, KeptFile& file) {
  if (auto opened = KeptFile::OpenOptionalAt(directory, name)) file = std::move(*opened);
}

}  // namespace

std::vector<CgroupEntry> ParseProcCgroup(std::string_view text) {
  std::vector<CgroupEntry> entries;
  while (const auto line = NextLine(text)) {
    const size_t first = line->find(':');
    if (first == std::string_view::npos) continue;
    const size_t second = line->find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::optional<int> hierarchy = ParseNumber<int>(line->substr(0, first));
    std::string_view path = line->substr(second + 1);
    if (!hierarchy || *hierarchy < 0 || path.empty() || path[0] != '/') continue;
    CgroupEntry entry;
    entry.hierarchy = *hierarchy;
    std::string_view controllers = line->substr(first + 1, second - first - 1);
    while (!controllers.empty()) {
      const size_t comma = controllers.find(',');
      entry.controllers.emplace_back(controllers.substr(0, comma));
      if (comma == std::string_view::npos) break;
      controllers.remove_prefix(comma + 1);
    }
    constexpr std::string_view kDeleted = " (deleted)";
    if (entry.hierarchy == 0 && path.size() > kDeleted.size() &&
        path.substr(path.size() - kDeleted.size()) == kDeleted) {
      entry.deleted = true;
      path.remove_suffix(kDeleted.size());
    }
    entry.path = std::string(path);
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::optional<CgroupLocation> LocateCgroup(const std::vector<CgroupEntry>& entries,
                                           const std::vector<Mount>& mounts,
                                           std::string_view controller) {
  // A controller is on one hierarchy only: where a v1 line names it, v2 hasn't got it.
  const CgroupEntry* entry = nullptr;
  for (const CgroupEntry& candidate : entries) {
    const bool named = std::find(candidate.controllers.begin(), candidate.controllers.end(),
                                 controller) != candidate.controllers.end();
    if (named) {
      entry = &candidate;
      break;
    }
    if (candidate.hierarchy == 0 && candidate.controllers.empty()) entry = &candidate;
  }
  if (entry == nullptr || entry->deleted) return std::nullopt;
  const bool v1 = !entry->controllers.empty();

  // Of several mounts of the hierarchy, the one that shows the most ancestors: the shortest root
  // that the path is below. Later mounts lie over earlier ones.
  const Mount* best = nullptr;
  const Mount* any = nullptr;
  std::string best_relative;
  for (const Mount& mount : mounts) {
    if (mount.type != (v1 ? "cgroup" : "cgroup2")) continue;
    if (v1 && !ListHas(mount.super_options, controller)) continue;
    any = &mount;
    if (HasParentStep(entry->path) || HasParentStep(mount.root)) continue;
    std::optional<std::string> relative = Below(mount.root, entry->path);
    if (!relative || (best != nullptr && mount.root.size() > best->root.size())) continue;
    best = &mount;
    best_relative = std::move(*relative);
  }
  if (any == nullptr) return std::nullopt;
  CgroupLocation location;
  location.version = v1 ? CgroupVersion::kV1 : CgroupVersion::kV2;
  location.mount_point = best != nullptr ? best->mount_point : any->mount_point;
  location.relative = best_relative;
  return location;
}

absl::StatusOr<CgroupLocation> FindCgroup(const Roots& roots, pid_t pid,
                                          std::string_view controller) {
  const std::string who = pid == 0 ? "self" : std::to_string(pid);
  const absl::StatusOr<std::string> cgroup = ReadFile(roots.proc + "/" + who + "/cgroup");
  if (!cgroup.ok()) return cgroup.status();
  const absl::StatusOr<std::string> mounts =
      ReadFile(roots.proc + "/self/mountinfo", size_t{16} << 20);
  if (!mounts.ok()) return mounts.status();
  std::optional<CgroupLocation> location =
      LocateCgroup(ParseProcCgroup(*cgroup), ParseMountInfo(*mounts), controller);
  if (!location) {
    return absl::NotFoundError("no cgroup hierarchy with the controller " +
                               std::string(controller) + " is mounted for process " + who);
  }
  return *std::move(location);
}

std::vector<std::string> AncestorPaths(const Roots& roots, const CgroupLocation& location) {
  std::vector<std::string> paths;
  std::string relative = location.relative;
  while (true) {
    paths.push_back(roots.prefix + location.mount_point + relative);
    const size_t slash = relative.rfind('/');
    if (slash == std::string::npos) return paths;
    relative.resize(slash);
  }
}

std::optional<ParsedLimit> ParseLimit(std::string_view text) {
  const std::string_view value = Trim(text);
  if (value == "max" || value == "-1") return ParsedLimit{std::nullopt};
  const std::optional<uint64_t> number = ParseNumber<uint64_t>(value);
  if (!number) return std::nullopt;
  if (*number >= static_cast<uint64_t>(kUnlimitedFrom)) return ParsedLimit{std::nullopt};
  return ParsedLimit{static_cast<int64_t>(*number)};
}

CgroupStat ParseCgroupStat(CgroupVersion version, std::string_view text) {
  struct Field {
    std::string_view v1_total, v1_own, v2;
    int64_t CgroupStat::*value;
    bool total_seen = false;
  };
  Field fields[] = {
      {"total_inactive_file", "inactive_file", "inactive_file", &CgroupStat::inactive_file_bytes},
      {"total_active_file", "active_file", "active_file", &CgroupStat::active_file_bytes},
      {"total_rss", "rss", "anon", &CgroupStat::anon_bytes},
      {"total_shmem", "shmem", "shmem", &CgroupStat::shmem_bytes},
  };
  CgroupStat stat;
  while (const auto line = NextLine(text)) {
    std::string_view rest = *line;
    const std::string_view name = NextField(rest);
    for (Field& field : fields) {
      const bool total = version == CgroupVersion::kV1 && name == field.v1_total;
      const bool own = name == (version == CgroupVersion::kV1 ? field.v1_own : field.v2);
      // The line with children wins over the one without, in whichever order they come.
      if (!total && (!own || field.total_seen)) continue;
      const std::optional<int64_t> value = ParseTrimmed<int64_t>(rest);
      if (!value || *value < 0) continue;
      stat.*field.value = *value;
      field.total_seen = total;
    }
  }
  return stat;
}

CgroupOom ParseOomControl(std::string_view text) {
  CgroupOom oom;
  while (const auto line = NextLine(text)) {
    std::string_view rest = *line;
    const std::string_view name = NextField(rest);
    if (name == "oom_kill") oom.oom_kills = ParseTrimmed<int64_t>(rest);
    if (name == "under_oom") oom.under_oom = Trim(rest) == "1";
  }
  return oom;
}

CgroupOom ParseMemoryEvents(std::string_view text) {
  CgroupOom oom;
  while (const auto line = NextLine(text)) {
    std::string_view rest = *line;
    if (NextField(rest) == "oom_kill") oom.oom_kills = ParseTrimmed<int64_t>(rest);
  }
  return oom;
}

std::optional<int64_t> CgroupMemory::EffectiveLimitBytes() const {
  if (!limit_bytes) return high_bytes;
  return high_bytes ? std::min(*limit_bytes, *high_bytes) : *limit_bytes;
}

std::optional<int64_t> CgroupMemory::AvailableBytes() const {
  const std::optional<int64_t> limit = EffectiveLimitBytes();
  if (!limit || !usage_bytes) return std::nullopt;
  const int64_t reclaimable = SaturatingAdd(stat.inactive_file_bytes, stat.active_file_bytes);
  // File pages are part of the usage; the two files are read one after the other, so hold it there.
  const int64_t kept = std::max<int64_t>(0, *usage_bytes - reclaimable);
  return std::max<int64_t>(0, *limit - kept);
}

absl::StatusOr<MemoryCgroup> MemoryCgroup::Open(CgroupVersion version, UniqueFd directory,
                                                std::string name) {
  absl::StatusOr<FileId> id = IdOf(directory.get());
  if (!id.ok()) return id.status();
  MemoryCgroup cgroup;
  cgroup.version_ = version;
  cgroup.name_ = std::move(name);
  cgroup.id_ = *id;
  const int fd = directory.get();
  switch (version) {
    case CgroupVersion::kV1:
      OpenOptional(fd, "memory.limit_in_bytes", cgroup.limit_);
      OpenOptional(fd, "memory.usage_in_bytes", cgroup.usage_);
      OpenOptional(fd, "memory.oom_control", cgroup.events_);
      break;
    case CgroupVersion::kV2:
      OpenOptional(fd, "memory.max", cgroup.limit_);
      OpenOptional(fd, "memory.high", cgroup.high_);
      OpenOptional(fd, "memory.current", cgroup.usage_);
      OpenOptional(fd, "memory.events", cgroup.events_);
      OpenOptional(fd, "memory.oom.group", cgroup.oom_group_);
      OpenOptional(fd, "memory.swap.max", cgroup.swap_limit_);
      OpenOptional(fd, "memory.pressure", cgroup.pressure_);
      break;
  }
  OpenOptional(fd, "memory.stat", cgroup.stat_);
  cgroup.directory_ = std::move(directory);
  return cgroup;
}

absl::StatusOr<MemoryCgroup> MemoryCgroup::Open(const Roots& roots,
                                                const CgroupLocation& location) {
  absl::StatusOr<UniqueFd> directory =
      OpenAt(AT_FDCWD, roots.prefix + location.Path(), O_RDONLY | O_DIRECTORY);
  if (!directory.ok()) return directory.status();
  return Open(location.version, std::move(*directory), location.Path());
}

bool MemoryCgroup::Removed() const {
  // cgroup file systems say so when a file is read (ENODEV); a folder of any other one (a fake
  // tree) has no links any more.
  struct stat st = {};
  return fstat(directory_.get(), &st) != 0 || st.st_nlink == 0;
}

std::optional<CgroupMemory> MemoryCgroup::ReadFast() const {
  if (Removed()) return std::nullopt;
  CgroupMemory memory;
  char buffer[8192];
  if (usage_.is_open()) {
    const auto text = usage_.Read(buffer);
    if (!text) return std::nullopt;
    const std::optional<int64_t> usage = ParseTrimmed<int64_t>(*text);
    if (usage && *usage >= 0) memory.usage_bytes = *usage;
  }
  if (stat_.is_open()) {
    const auto text = stat_.Read(buffer);
    if (!text) return std::nullopt;
    memory.stat = ParseCgroupStat(version_, *text);
  }
  if (!ReadLimit(limit_, memory.limit_bytes) || !ReadLimit(high_, memory.high_bytes)) {
    return std::nullopt;
  }
  return memory;
}

std::optional<int64_t> MemoryCgroup::ReadUsage() const {
  char buffer[64];
  const auto text = usage_.Read(buffer);
  if (!text) return std::nullopt;
  const std::optional<int64_t> usage = ParseTrimmed<int64_t>(*text);
  return usage && *usage >= 0 ? usage : std::nullopt;
}

std::optional<CgroupMemory> MemoryCgroup::Read() const {
  std::optional<CgroupMemory> memory = ReadFast();
  if (!memory) return std::nullopt;
  char buffer[1024];
  if (events_.is_open()) {
    const auto text = events_.Read(buffer);
    if (!text) return std::nullopt;
    memory->oom =
        version_ == CgroupVersion::kV1 ? ParseOomControl(*text) : ParseMemoryEvents(*text);
  }
  if (const auto text = oom_group_.Read(buffer)) memory->oom_group = Trim(*text) == "1";
  if (!ReadLimit(swap_limit_, memory->swap_limit_bytes)) return std::nullopt;
  return memory;
}

std::optional<Psi> MemoryCgroup::ReadPsi() const {
  char buffer[512];
  const auto text = pressure_.Read(buffer);
  if (!text) return std::nullopt;
  return ParsePsi(*text);
}

absl::StatusOr<CgroupChain> CgroupChain::Open(const Roots& roots, const CgroupLocation& location) {
  CgroupChain chain;
  chain.location_ = location;
  absl::StatusOr<UniqueFd> directory =
      OpenAt(AT_FDCWD, roots.prefix + location.Path(), O_RDONLY | O_DIRECTORY);
  if (!directory.ok()) return directory.status();
  std::string relative = location.relative;
  while (true) {
    // Up by "..", not by path: whatever is renamed or made anew meanwhile, these are the ancestors
    // of the folder that we hold.
    absl::StatusOr<UniqueFd> parent = absl::NotFoundError("");
    const bool more = !relative.empty();
    if (more) parent = OpenAt(directory->get(), "..", O_RDONLY | O_DIRECTORY);
    absl::StatusOr<MemoryCgroup> level = MemoryCgroup::Open(location.version, std::move(*directory),
                                                            location.mount_point + relative);
    if (!level.ok()) return level.status();
    chain.levels_.push_back(std::move(*level));
    if (!more) return chain;
    if (!parent.ok()) return parent.status();
    directory = std::move(parent);
    relative.resize(relative.rfind('/'));
  }
}

absl::StatusOr<CgroupChain> CgroupChain::OpenFor(const Roots& roots, pid_t pid) {
  absl::StatusOr<CgroupLocation> location = FindCgroup(roots, pid);
  if (!location.ok()) return location.status();
  return Open(roots, *location);
}

std::optional<CgroupChain::Reading> CgroupChain::Read() const {
  return ReadWith(&MemoryCgroup::Read);
}

std::optional<CgroupChain::Reading> CgroupChain::ReadFast() const {
  return ReadWith(&MemoryCgroup::ReadFast);
}

std::optional<CgroupChain::Reading> CgroupChain::ReadWith(
    std::optional<CgroupMemory> (MemoryCgroup::*read)() const) const {
  Reading reading;
  reading.levels.reserve(levels_.size());
  for (size_t i = 0; i < levels_.size(); ++i) {
    std::optional<CgroupMemory> memory = (levels_[i].*read)();
    if (!memory) return std::nullopt;
    const std::optional<int64_t> available = memory->AvailableBytes();
    if (available && (!reading.tightest || *available < reading.tightest->available_bytes)) {
      reading.tightest = Tightest{i, *available};
    }
    reading.levels.push_back(std::move(*memory));
  }
  return reading;
}

}  // namespace headroom::sys
