#include "server/sys/mountinfo.h"

#include "server/sys/text.h"

namespace headroom::sys {
namespace {

// The kernel writes blank, tab, newline and backslash as \ooo.
std::string Unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      const std::optional<unsigned> code = ParseNumber<unsigned>(text.substr(i + 1, 3), 8);
      if (code && *code < 256) {
        out.push_back(static_cast<char>(*code));
        i += 3;
        continue;
      }
    }
    out.push_back(text[i]);
  }
  return out;
}

// Fields are separated by exactly one blank: a mount's source may be empty.
std::string_view NextExactField(std::string_view& rest) {
  const size_t end = rest.find(' ');
  const std::string_view field = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return field;
}

}  // namespace

std::vector<Mount> ParseMountInfo(std::string_view text) {
  std::vector<Mount> mounts;
  while (const auto line = NextLine(text)) {
    std::string_view rest = *line;
    for (int i = 0; i < 3; ++i) NextExactField(rest);  // mount id, parent id, major:minor
    const std::string_view root = NextExactField(rest);
    const std::string_view mount_point = NextExactField(rest);
    bool separated = false;
    while (!rest.empty() && !separated) separated = NextExactField(rest) == "-";
    const std::string_view type = NextExactField(rest);
    NextExactField(rest);  // source
    if (!separated || type.empty() || mount_point.empty() || mount_point[0] != '/') continue;
    mounts.push_back({Unescape(root), Unescape(mount_point), std::string(type), std::string(rest)});
  }
  return mounts;
}

}  // namespace headroom::sys
