#include "client/cli/quoting.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace headroom::cli {
namespace {

std::string Quote(std::string_view text, std::string_view quote_inside) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += quote_inside;
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace

std::string QuoteSh(std::string_view text) {
  return Quote(text, "'\\''");
}

// In fish's single quotes a backslash escapes a quote and itself.
std::string QuoteFish(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') escaped += '\\';
    escaped += c;
  }
  return Quote(escaped, "\\'");
}

absl::StatusOr<std::string> SetLine(ShellFormat format, std::string_view name,
                                    std::string_view value) {
  const std::string key(name);
  switch (format) {
    case ShellFormat::kSh:
      return absl::StrCat("export ", key, "=", QuoteSh(value), ";\n");
    case ShellFormat::kFish:
      return absl::StrCat("set -gx ", key, " ", QuoteFish(value), ";\n");
    case ShellFormat::kSystemd:
      for (const char c : value) {
        if (c == '$' || c == '`' || c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 ||
            c == 0x7f) {
          return absl::InvalidArgumentError(
              absl::StrCat(key, ": systemd's files can't hold '", std::string(value),
                           "'; use a runtime folder with a plain name (HEADROOM_RUNTIME_DIR)"));
        }
      }
      return absl::StrCat(key, "=\"", std::string(value), "\"\n");
    case ShellFormat::kDocker:
      return absl::StrCat("--env ", QuoteSh(absl::StrCat(key, "=", std::string(value))), " ");
  }
  return absl::InternalError("no such format");
}

std::string UnsetLine(ShellFormat format, std::string_view name) {
  const std::string key(name);
  switch (format) {
    case ShellFormat::kSh:
      return absl::StrCat("unset ", key, ";\n");
    case ShellFormat::kFish:
      return absl::StrCat("set -e ", key, ";\n");
    case ShellFormat::kSystemd:
      return absl::StrCat(key, "=\n");
    case ShellFormat::kDocker:  // a container has only what it is given
      return "";
  }
  return "";
}

}  // namespace headroom::cli
