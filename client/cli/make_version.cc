#include "client/cli/make_version.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "client/cli/tool_version.h"

namespace headroom::cli {
namespace {

constexpr std::string_view kVersionPrefix = "GNU Make ";
// A make is 250 KB to 1 MB; nothing larger is read.
constexpr uintmax_t kMaxMake = 16 << 20;
}  // namespace

std::string VersionText(std::string_view text) {
  if (text.substr(0, kVersionPrefix.size()) != kVersionPrefix) return "";
  text.remove_prefix(kVersionPrefix.size());
  return std::string(text.substr(0, text.find_first_of(" \r\n")));
}

std::optional<MakeAbility> AbilityFromVersion(std::string_view text) {
  const std::string version = VersionText(text);
  const char* const end = version.data() + version.size();
  int major = 0;
  auto [at, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc()) return std::nullopt;
  int minor = 0;
  if (at != end && *at == '.') std::from_chars(at + 1, end, minor);
  if (major > 4 || (major == 4 && minor >= 4)) return MakeAbility::kFifo;
  if (major == 4 && minor >= 2) return MakeAbility::kDescriptors;
  return MakeAbility::kOldDescriptors;
}

std::optional<MakeAbility> AbilityFromImage(std::string_view image) {
  if (image.substr(0, 4) !=
      "\x7f"
      "ELF")
    return std::nullopt;
  const auto has = [image](std::string_view text) {
    return image.find(text) != std::string_view::npos;
  };
  // Every GNU make since 3.78 knows --jobserver-fds; .FEATURES has "jobserver-fifo" since 4.4.
  if (!has("jobserver-fds")) return std::nullopt;
  if (has("jobserver-fifo")) return MakeAbility::kFifo;
  if (has("jobserver-auth")) return MakeAbility::kDescriptors;
  return MakeAbility::kOldDescriptors;
}

bool IsMakeName(std::string_view path) {
  std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view prefix : {"gnu", "g"}) {
    if (name.substr(0, prefix.size()) == prefix) {
      name.remove_prefix(prefix.size());
      break;
    }
  }
  if (name.substr(0, 4) != "make") return false;
  return name.substr(4).find_first_not_of("-.0123456789") == std::string_view::npos;
}

std::optional<Make> ProbeMake(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error || !(IsMakeName(path) || IsMakeName(real.native()))) return std::nullopt;
  if (const auto size = std::filesystem::file_size(real, error); !error && size <= kMaxMake) {
    std::ifstream file(real, std::ios::binary);
    const std::string image{std::istreambuf_iterator<char>(file), {}};
    if (const auto ability = AbilityFromImage(image)) return Make{path, *ability};
  }
  if (const auto ability = AbilityFromVersion(OutputOf(path, {"--version"})))
    return Make{path, *ability};
  return std::nullopt;
}

}  // namespace headroom::cli
