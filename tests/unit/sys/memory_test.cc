// meminfo, vmstat, arcstats, psi.
#include <catch2/catch.hpp>

#include "server/sys/arcstats.h"
#include "server/sys/meminfo.h"
#include "server/sys/psi.h"
#include "server/sys/vmstat.h"
#include "tests/unit/sys/sys_fixture.h"

namespace headroom::sys {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kGiB = int64_t{1} << 30;

TEST_CASE("meminfo of Linux 6.18") {
  const auto info = ParseMemInfo(KernelText("linux_6_18_meminfo"));
  REQUIRE(info);
  CHECK(info->total_bytes == 24683584 * kKiB);
  CHECK(info->available_bytes > 20 * kGiB);
  CHECK(info->available_bytes < info->total_bytes);
  CHECK_FALSE(info->available_is_estimate);
  CHECK(info->swap_total_bytes == 0);
}

TEST_CASE("meminfo of WSL 2") {
  const auto info = ParseMemInfo(KernelText("wsl2_meminfo"));
  REQUIRE(info);
  CHECK(info->total_bytes == 8029908 * kKiB);
  CHECK(info->free_bytes == 5411024 * kKiB);
  CHECK(info->available_bytes == 6892344 * kKiB);
  CHECK(info->buffers_bytes == 46388 * kKiB);
  CHECK(info->cached_bytes == 1592840 * kKiB);
  CHECK(info->shmem_bytes == 4204 * kKiB);
  CHECK(info->slab_reclaimable_bytes == 95368 * kKiB);
  CHECK(info->swap_total_bytes == 2097152 * kKiB);
  CHECK(info->swap_free_bytes == 2097152 * kKiB);
}

TEST_CASE("meminfo without MemAvailable falls back to an estimate") {
  const auto info = ParseMemInfo(KernelText("wsl1_meminfo"));
  REQUIRE(info);
  CHECK(info->available_is_estimate);
  CHECK(info->available_bytes == (7204520 + 34032 + 188576 - 17720 + 6744 / 2) * kKiB);
}

TEST_CASE("K8: Shmem is used memory, in the estimate too") {
  // A 6 GB tmpfs on an otherwise idle 8 GB host: Cached holds all of it.
  const std::string text =
      "MemTotal: 8000000 kB\nMemFree: 1000000 kB\nBuffers: 0 kB\nCached: 6500000 kB\n"
      "Shmem: 6000000 kB\n";
  const auto estimated = ParseMemInfo(text);
  REQUIRE(estimated);
  CHECK(estimated->available_bytes == 1500000 * kKiB);
  const auto reported = ParseMemInfo(text + "MemAvailable: 1400000 kB\n");
  REQUIRE(reported);
  CHECK(reported->available_bytes == 1400000 * kKiB);
  CHECK(reported->shmem_bytes == 6000000 * kKiB);
  // More Shmem than Cached (the counters aren't read at one instant) is no reason for less than
  // free.
  const auto skewed = ParseMemInfo("MemTotal: 10 kB\nMemFree: 4 kB\nCached: 1 kB\nShmem: 3 kB\n");
  REQUIRE(skewed);
  CHECK(skewed->available_bytes == 4 * kKiB);
}

TEST_CASE("meminfo that makes no sense is refused") {
  CHECK_FALSE(ParseMemInfo(""));
  CHECK_FALSE(ParseMemInfo("MemTotal: 8000000 kB\n"));
  CHECK_FALSE(ParseMemInfo("MemFree: 8000000 kB\n"));
  CHECK_FALSE(ParseMemInfo("MemTotal: 0 kB\nMemFree: 0 kB\n"));
  CHECK_FALSE(ParseMemInfo("MemTotal: 10 kB\nMemFree: 11 kB\n"));
  CHECK_FALSE(ParseMemInfo("MemTotal: -10 kB\nMemFree: 1 kB\n"));
  CHECK_FALSE(ParseMemInfo("MemTotal: 9223372036854775807 kB\nMemFree: 1 kB\n"));
  // A container that mixes host and own figures (old lxcfs): held to the total.
  const auto mixed = ParseMemInfo("MemTotal: 10 kB\nMemFree: 4 kB\nMemAvailable: 900 kB\n");
  REQUIRE(mixed);
  CHECK(mixed->available_bytes == 10 * kKiB);
}

TEST_CASE("meminfo is read again from its kept file") {
  const TempDir dir;
  dir.Write("proc/meminfo", "MemTotal: 10 kB\nMemFree: 4 kB\nMemAvailable: 6 kB\n");
  const auto reader = MemInfoReader::Open(dir.roots());
  REQUIRE(reader.ok());
  REQUIRE(reader->Read().ok());
  CHECK(reader->Read()->available_bytes == 6 * kKiB);
  dir.Write("proc/meminfo", "MemTotal: 10 kB\nMemFree: 4 kB\nMemAvailable: 5 kB\n");
  REQUIRE(reader->Read().ok());
  CHECK(reader->Read()->available_bytes == 5 * kKiB);
  dir.Write("proc/meminfo", "");
  CHECK(reader->Read().status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("the real meminfo") {
  const auto info = ReadMemInfo(Roots());
  REQUIRE(info.ok());
  CHECK(info->available_bytes > 0);
  CHECK(info->available_bytes <= info->total_bytes);
}

TEST_CASE("no meminfo: NotFound") {
  const TempDir dir;
  CHECK(ReadMemInfo(dir.roots()).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("vmstat") {
  const VmStat stat = ParseVmStat(KernelText("linux_6_18_vmstat"));
  CHECK(stat.oom_kills == 2);
  CHECK(stat.swapped_in_pages == 0);
  CHECK(stat.swapped_out_pages == 0);
  // Before 4.13 there is no oom_kill; names that only begin alike don't count.
  const VmStat old = ParseVmStat("pswpin 12\npswpout 345\noom_killer 7\npswpin_x 4\n");
  CHECK_FALSE(old.oom_kills);
  CHECK(old.swapped_in_pages == 12);
  CHECK(old.swapped_out_pages == 345);
  CHECK_FALSE(ParseVmStat("oom_kill many\n").oom_kills);

  const TempDir dir;
  CHECK(ReadVmStat(dir.roots()).status().code() == absl::StatusCode::kNotFound);
  CHECK(ReadVmStat(Roots()).ok());
}

TEST_CASE("K8: ZFS's ARC is credited down to its floor") {
  const TempDir dir;
  CHECK_FALSE(ReadArcStats(dir.roots()));
  dir.Write("proc/spl/kstat/zfs/arcstats", KernelText("arcstats"));
  const auto arc = ReadArcStats(dir.roots());
  REQUIRE(arc);
  CHECK(arc->size_bytes == 11 * kGiB);
  CHECK(arc->floor_bytes == 1 * kGiB);
  CHECK(arc->ReclaimableBytes() == 10 * kGiB);
  CHECK(ArcStats{1 * kGiB, 2 * kGiB}.ReclaimableBytes() == 0);
  // Without a floor nothing may be credited.
  CHECK_FALSE(ParseArcStats("size 4 11811160064\n"));
  CHECK_FALSE(ParseArcStats("c_min 4 1\n"));
  CHECK_FALSE(ParseArcStats("size 4 -5\nc_min 4 1\n"));
}

TEST_CASE("psi") {
  const auto idle = ParsePsi(KernelText("linux_6_18_psi"));
  REQUIRE(idle);
  CHECK(idle->some.avg10_permyriad == 0);
  const auto busy = ParsePsi(KernelText("psi_busy"));
  REQUIRE(busy);
  REQUIRE(busy->full);
  CHECK(busy->some.avg10_permyriad == 1234);
  CHECK(busy->some.avg60_permyriad == 501);
  CHECK(busy->some.avg300_permyriad == 99);
  CHECK(busy->some.total_us == 81265309);
  CHECK(busy->full->avg10_permyriad == 250);
  CHECK_FALSE(ParsePsi(""));
  CHECK_FALSE(ParsePsi("some avg10=1.2 avg60=0.00 avg300=0.00 total=1\n"));
  CHECK_FALSE(ParsePsi("full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"));
  // cpu pressure had no "full" line before 5.13.
  const auto some_only = ParsePsi("some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
  REQUIRE(some_only);
  CHECK_FALSE(some_only->full);
}

TEST_CASE("psi off or absent is nullopt") {
  const TempDir dir;
  CHECK_FALSE(ReadMemoryPsi(dir.roots()));
  dir.Write("proc/pressure/memory", KernelText("psi_busy"));
  CHECK(ReadMemoryPsi(dir.roots()));
}

}  // namespace
}  // namespace headroom::sys
