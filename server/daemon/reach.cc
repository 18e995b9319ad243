#include "server/daemon/reach.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/sys/file.h"
#include "server/sys/process.h"

namespace headroom::daemon {
namespace {

constexpr const char* kLibrary = "libheadroom.so";

struct Segment {
  uint32_t type = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
};

// Entry `index` of a program header table; Header: Elf32_Phdr or Elf64_Phdr, elf(5).
template <typename Header>
std::optional<Segment> ReadSegment(int file, uint64_t table, int index) {
  Header entry{};
  const uint64_t at = table + static_cast<uint64_t>(index) * sizeof entry;
  if (pread(file, &entry, sizeof entry, static_cast<off_t>(at)) !=
      static_cast<ssize_t>(sizeof entry)) {
    return std::nullopt;
  }
  return Segment{entry.p_type, entry.p_offset, entry.p_filesz};
}

// The program's own loader; empty: none, it is static. nullopt: can't be told.
std::optional<std::string> ReadInterpreter(const sys::Roots& roots, pid_t pid) {
  const std::string path = absl::StrCat(roots.proc, "/", pid, "/exe");
  const sys::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return std::nullopt;
  Elf64_Ehdr header{};
  if (pread(file.get(), &header, sizeof header, 0) < static_cast<ssize_t>(sizeof(Elf32_Ehdr)) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return std::nullopt;
  }
  const bool wide = header.e_ident[EI_CLASS] == ELFCLASS64;
  Elf32_Ehdr narrow{};
  std::memcpy(&narrow, &header, sizeof narrow);
  const uint64_t table = wide ? header.e_phoff : narrow.e_phoff;
  const int count = std::min<int>(wide ? header.e_phnum : narrow.e_phnum, 64);
  for (int i = 0; i < count; ++i) {
    const std::optional<Segment> segment = wide ? ReadSegment<Elf64_Phdr>(file.get(), table, i)
                                                : ReadSegment<Elf32_Phdr>(file.get(), table, i);
    if (!segment) return std::nullopt;
    if (segment->type != PT_INTERP) continue;
    std::string name(std::min<uint64_t>(segment->size, 4096), '\0');
    const ssize_t got =
        pread(file.get(), name.data(), name.size(), static_cast<off_t>(segment->offset));
    if (got <= 0) return std::nullopt;
    name.resize(strnlen(name.data(), static_cast<size_t>(got)));
    return name;
  }
  return std::string();
}

}  // namespace

Reach ReadReach(const sys::Roots& roots, pid_t pid) {
  const absl::StatusOr<std::string> environment =
      sys::ReadFile(absl::StrCat(roots.proc, "/", pid, "/environ"));
  if (!environment.ok()) return Reach::kUnknown;
  if (sys::FindInEnviron(*environment, "HEADROOM_GATE") == "0") return Reach::kOptedOut;
  const std::optional<std::string> preload = sys::FindInEnviron(*environment, "LD_PRELOAD");
  if (!preload || preload->find(kLibrary) == std::string::npos ||
      !sys::FindInEnviron(*environment, "HEADROOM_LANE")) {
    return Reach::kOutside;
  }
  const std::optional<std::string> interpreter = ReadInterpreter(roots, pid);
  if (!interpreter) return Reach::kUnknown;
  if (interpreter->empty()) return Reach::kOutside;
  // Any other loader (musl's, another root's) may have taken the library all the same.
  if (interpreter->find("ld-linux") != std::string::npos) return Reach::kInside;
  const absl::StatusOr<std::string> maps =
      sys::ReadFile(absl::StrCat(roots.proc, "/", pid, "/maps"));
  if (!maps.ok()) return Reach::kUnknown;
  return maps->find(kLibrary) != std::string::npos ? Reach::kInside : Reach::kOutside;
}

}  // namespace headroom::daemon
