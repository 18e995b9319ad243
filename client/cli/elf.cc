#include "client/cli/elf.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <optional>

namespace headroom::cli {
namespace {

// A copy: the image has no alignment to speak of.
template <typename T>
std::optional<T> At(std::string_view image, uint64_t offset) {
  if (offset > image.size() || image.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, image.data() + offset, sizeof(T));
  return value;
}

template <typename Header, typename Segment>
Loading LoadingIn(std::string_view image) {
  const auto header = At<Header>(image, 0);
  if (!header || header->e_phentsize < sizeof(Segment)) return Loading::kNotElf;
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    const auto segment = At<Segment>(image, header->e_phoff + uint64_t{i} * header->e_phentsize);
    if (!segment) break;
    if (segment->p_type != PT_INTERP) continue;
    const uint64_t begin = segment->p_offset;
    if (begin >= image.size()) return Loading::kOther;
    const std::string_view name = image.substr(begin, segment->p_filesz);
    return name.find("/ld-musl-") != std::string_view::npos ? Loading::kMusl : Loading::kOther;
  }
  return Loading::kStatic;
}

}  // namespace

Loading LoadingOf(std::string_view image) {
  if (image.size() < EI_NIDENT || image.substr(0, SELFMAG) != std::string_view(ELFMAG, SELFMAG))
    return Loading::kNotElf;
  switch (image[EI_CLASS]) {
    case ELFCLASS64:
      return LoadingIn<Elf64_Ehdr, Elf64_Phdr>(image);
    case ELFCLASS32:
      return LoadingIn<Elf32_Ehdr, Elf32_Phdr>(image);
    default:
      return Loading::kNotElf;
  }
}

}  // namespace headroom::cli
