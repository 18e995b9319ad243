#include "client/cli/say.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace headroom::cli {
namespace {

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

void Say(const std::string& text) {
  WriteAll(STDERR_FILENO, "headroom: " + text + "\n");
}

void Say(const absl::Status& status) {
  Say(std::string(status.message()));
}

void SayRaw(const std::string& text) {
  WriteAll(STDERR_FILENO, text);
}

bool Print(const std::string& text) {
  return WriteAll(STDOUT_FILENO, text);
}

}  // namespace headroom::cli
