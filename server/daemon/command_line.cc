#include "server/daemon/command_line.h"

#include <algorithm>
#include <array>

namespace headroom::daemon {
namespace {

std::string_view Basename(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool IsShell(std::string_view name) {
  // A login shell's argv[0] begins with a dash.
  if (name.starts_with('-')) name.remove_prefix(1);
  constexpr std::array<std::string_view, 9> kShells = {"sh",  "bash", "dash", "zsh",    "ksh",
                                                       "ash", "fish", "mksh", "busybox"};
  return std::find(kShells.begin(), kShells.end(), name) != kShells.end();
}

}  // namespace

Recognised RecogniseProcess(const std::vector<std::string>& argv, std::string_view comm) {
  Recognised result;
  if (argv.empty()) return result;
  const std::string_view name = Basename(argv[0]);
  result.runs = policy::Recognise(name, argv);
  result.is_shell = IsShell(name) || IsShell(comm);
  if (!result.is_shell) result.command = result.runs;
  return result;
}

}  // namespace headroom::daemon
