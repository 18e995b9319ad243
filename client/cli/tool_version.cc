#include "client/cli/tool_version.h"

#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/process.hpp>
#include <charconv>
#include <chrono>
#include <exception>
#include <future>
#include <system_error>

#include "client/cli/paths.h"

namespace headroom::cli {
namespace {

namespace bp = boost::process;

// One that takes longer to say its version is none that we need to know.
constexpr std::chrono::seconds kProbeTime{2};

// Boost.Process leaves SIGCHLD at its default; `run` hands an ignored one on to CMD.
class ChildSignal {
 public:
  ChildSignal() { sigaction(SIGCHLD, nullptr, &before_); }
  ~ChildSignal() { sigaction(SIGCHLD, &before_, nullptr); }
  ChildSignal(const ChildSignal&) = delete;
  ChildSignal& operator=(const ChildSignal&) = delete;

 private:
  struct sigaction before_ {};
};

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

std::string OutputOf(const std::string& path, const std::vector<std::string>& words,
                     const Environment& variables) {
  const ChildSignal as_it_was;
  try {
    boost::asio::io_context io;
    std::future<std::string> output;
    std::error_code error;
    bp::environment env = boost::this_process::environment();
    // With them make would talk about jobservers or read other makefiles, and nvcc compile.
    for (const char* name :
         {"MAKEFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "CARGO_MAKEFLAGS", "NVCC_APPEND_FLAGS",
          "NVCC_PREPEND_FLAGS", "LD_PRELOAD", "HEADROOM_LANE"})
      env.erase(name);
    for (const auto& [name, value] : variables) env[name] = value;
    bp::child child(path, bp::args(words), env, bp::std_in<bp::null, bp::std_out> output,
                    bp::std_err > bp::null, io, error);
    if (error) return "";
    io.run_for(kProbeTime);
    if (child.running(error)) child.terminate(error);
    child.wait(error);
    if (output.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return "";
    return output.get();
  } catch (const std::exception&) {
    return "";  // Not to be found out: the caller takes it for another program.
  }
}

std::optional<Version> FirstVersion(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (!IsDigit(text[at]) || (at > 0 && (IsDigit(text[at - 1]) || text[at - 1] == '.'))) continue;
    const char* const end = text.data() + text.size();
    Version version;
    const auto [dot, error] = std::from_chars(text.data() + at, end, version.major);
    if (error != std::errc() || dot == end || *dot != '.') continue;
    if (std::from_chars(dot + 1, end, version.minor).ec == std::errc()) return version;
  }
  return std::nullopt;
}

std::optional<Version> VersionOfNvcc(std::string_view text) {
  constexpr std::string_view kBefore = "Cuda compilation tools, release ";
  const size_t at = text.find(kBefore);
  if (at == std::string_view::npos) return std::nullopt;
  return FirstVersion(text.substr(at + kBefore.size()));
}

std::optional<Version> VersionInPath(const std::string& tool, const Environment& env) {
  const Found found = FindProgram(tool, env);
  if (found.kind != Found::Kind::kExecutable) return std::nullopt;
  const std::string text = OutputOf(found.path, {"--version"});
  return tool == "nvcc" ? VersionOfNvcc(text) : FirstVersion(text);
}

bool NinjaTakesTokens(const Version& version) {
  return version >= Version{1, 13};
}

bool NvccTakesTokens(const Version& version) {
  return version >= Version{13, 0};
}

}  // namespace headroom::cli
