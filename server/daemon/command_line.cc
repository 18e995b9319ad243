#include "server/daemon/command_line.h"

#include <algorithm>
#include <array>
#include <initializer_list>

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

std::string DriverOf(const policy::Command& command) {
  if (command.role == policy::Role::kDriver) return command.name;
  if (command.role != policy::Role::kTool) return "other";
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), command.name) != names.end();
  };
  if (is_one_of({"cicc", "ptxas", "cudafe++", "nvlink", "fatbinary"})) return "nvcc";
  if (is_one_of({"cc1plus", "cc1", "cc1obj", "cc1objplus", "f951", "gnat1", "clang"})) return "c++";
  if (is_one_of({"ld", "lto1"})) return "ld";
  return "other";
}

}  // namespace headroom::daemon
