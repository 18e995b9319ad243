#include "tests/fuzz/sys_parsers.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "server/sys/arcstats.h"
#include "server/sys/cgroup.h"
#include "server/sys/cores.h"
#include "server/sys/fifo_watch.h"
#include "server/sys/limits.h"
#include "server/sys/meminfo.h"
#include "server/sys/mountinfo.h"
#include "server/sys/proc_connector.h"
#include "server/sys/process.h"
#include "server/sys/process_table.h"
#include "server/sys/psi.h"
#include "server/sys/vmstat.h"

namespace {

using namespace headroom::sys;

void Check(bool good, const char* what) {
  if (good) return;
  fprintf(stderr, "broken promise: %s\n", what);
  abort();
}

void CheckMemory(std::string_view text) {
  if (const auto info = ParseMemInfo(text)) {
    Check(info->total_bytes > 0, "meminfo: total");
    Check(info->available_bytes >= 0 && info->available_bytes <= info->total_bytes,
          "meminfo: 0 <= available <= total");
    Check(info->free_bytes >= 0 && info->free_bytes <= info->total_bytes, "meminfo: free");
  }
  ParseVmStat(text);
  if (const auto arc = ParseArcStats(text)) {
    Check(arc->size_bytes >= 0 && arc->floor_bytes >= 0 && arc->ReclaimableBytes() >= 0 &&
              arc->ReclaimableBytes() <= arc->size_bytes,
          "arcstats: sizes");
  }
  if (const auto psi = ParsePsi(text)) {
    Check(psi->some.avg10_permyriad >= 0 && psi->some.avg10_permyriad < 10100, "psi: share");
  }
}

void CheckCgroup(std::string_view text) {
  const auto mounts = ParseMountInfo(text);
  const auto entries = ParseProcCgroup(text);
  for (const auto& mount : mounts) Check(mount.mount_point[0] == '/', "mountinfo: absolute");
  for (const auto& entry : entries) Check(entry.path[0] == '/', "cgroup: absolute");
  for (const char* controller : {"memory", "cpu", ""}) {
    if (const auto location = LocateCgroup(entries, mounts, controller)) {
      Check(location->relative.empty() || location->relative[0] == '/',
            "location: below its mount");
      Check(location->relative.find("/../") == std::string::npos, "location: no steps up");
      Check(!AncestorPaths(Roots(), *location).empty(), "location: is its own first");
    }
  }
  for (const auto version : {CgroupVersion::kV1, CgroupVersion::kV2}) {
    CgroupMemory memory;
    memory.stat = ParseCgroupStat(version, text);
    Check(memory.stat.inactive_file_bytes >= 0 && memory.stat.active_file_bytes >= 0,
          "memory.stat: sizes");
    if (const auto limit = ParseLimit(text)) memory.limit_bytes = limit->bytes;
    memory.usage_bytes = 1 << 20;
    if (const auto available = memory.AvailableBytes()) {
      Check(*available >= 0 && *available <= *memory.limit_bytes,
            "cgroup: 0 <= available <= limit");
    }
  }
  ParseOomControl(text);
  ParseMemoryEvents(text);
}

void CheckCores(std::string_view text) {
  Cores cores;
  cores.affinity = ParseAllowedCpus(text);
  cores.cpuset = ParseCpuList(text);
  if (const auto quota = ParseCpuMax(text)) cores.quota_millicores = quota->millicores;
  Check(!cores.cpuset || *cores.cpuset >= 0, "cpu list: count");
  Check(!cores.quota_millicores || *cores.quota_millicores >= 0, "cpu.max: quota");
  Check(cores.Count() >= 1, "cores: at least one");
  ParseCfsQuota(text, "100000");
  ParseCfsQuota("100000", text);
  ParseLimits(text);
}

void CheckProcess(std::string_view text) {
  if (const auto stat = ParseProcStat(text)) {
    Check(stat->pid > 0, "stat: pid");
    Check(stat->comm.size() < text.size(), "stat: comm is part of the text");
  }
  if (const auto count = ParseTaskCount(text)) Check(count->tasks > 0, "loadavg: tasks");
  if (const auto statm = ParseStatm(text)) Check(statm->anon_pages() >= 0, "statm: anonymous");
  size_t bytes = 0;
  for (const std::string& argument : ParseCmdline(text)) bytes += argument.size();
  Check(bytes <= text.size(), "cmdline: no more than the text");
  FindInEnviron(text, "HEADROOM_LANE");
  FindInEnviron(text, "");
  ParseStatusUid(text);
}

void CheckEvents(std::string_view bytes) {
  for (const ProcEvent& event : ParseProcEvents(bytes)) {
    Check(event.kind != ProcEvent::Kind::kLost, "proc events: a parsed one isn't a lost one");
  }
  ParseFifoEvents(bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // An exact copy, so that a sanitizer sees a read behind its end.
  char* copy = static_cast<char*>(malloc(size == 0 ? 1 : size));
  for (size_t i = 0; i < size; ++i) copy[i] = static_cast<char>(data[i]);
  const std::string_view text(copy, size);
  CheckMemory(text);
  CheckCgroup(text);
  CheckCores(text);
  CheckProcess(text);
  CheckEvents(text);
  free(copy);
  return 0;
}
