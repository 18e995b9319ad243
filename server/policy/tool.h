// Recognises the commands that take memory, from their words alone. Pure string work: the daemon
// feeds it /proc/PID/cmdline, the gate's server what a keeper sent, the simulator names from
// traces.
#ifndef HEADROOM_SERVER_POLICY_TOOL_H_
#define HEADROOM_SERVER_POLICY_TOOL_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/policy/event.h"

namespace headroom::policy {

// What part a process plays in a build.
enum class Role : uint8_t {
  kTool,    // a leaf that takes the memory: cicc, ptxas, cudafe++, cc1plus, lto1, ld, rustc, ...
  kDriver,  // runs tools one after another: nvcc, g++, clang without -cc1, ...
  kClient,  // takes tokens and runs commands: ninja, make, cargo, ...
  kOther,
};

struct Command {
  Role role = Role::kOther;
  std::string
      name;  // canonical: "cicc", "cc1plus", "ld" for all linkers, "nvcc", "c++", "ninja", ...
  std::string source;  // the source file among the words, as written; empty if none
  int fan_out = 1;     // for nvcc: archs in its command, capped by --threads
};

// `exe` is the basename of the program (argv[0]'s, or the link's target where known). A launcher
// (ccache, env, nice) counts as what it launches, `sh -c` as the heaviest command of its line.
Command Recognise(std::string_view exe, std::span<const std::string> argv);

// The heaviest command of a shell line, as a build file has it ("cd x && nvcc -c a.cu"). Quotes and
// backslashes are understood, expansions are not; nothing is executed.
Command RecogniseLine(std::string_view line);

// A hash of the words that shape memory: options, without paths of sources, outputs and temporary
// files. Stable across machines and runs.
uint64_t FlagsHash(std::span<const std::string> argv);

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_TOOL_H_
