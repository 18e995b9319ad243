// Which programs stop at the gate, what they compile, and whether they can be run again unseen.
// Pure: files are looked at through a function that the caller gives.
#ifndef HEADROOM_CLIENT_PRELOAD_TOOLS_H_
#define HEADROOM_CLIENT_PRELOAD_TOOLS_H_

#include "client/preload/text.h"
#include "proto/headroom/v1/gate_wire.h"

namespace headroom::preload {

enum class ToolKind : uint8_t {
  kCompiler,  // Reads files named in its arguments.
  kClang,     // A driver as well: gated only where the process itself compiles.
  kLinker,
  kRust,   // Holds jobserver tokens while it runs.
  kOther,  // Named by the user: nothing is known about it.
};

struct Tool {
  char name[32] = {};
  ToolKind kind = ToolKind::kOther;
  // Peak to reckon with when there is no daemon that knows better: base + bytes of input x factor.
  uint32_t base_mega = 500;  // 10^6 bytes
  uint32_t factor = 0;
};

// Is `program` (a file's base name) gated? `configured` is HEADROOM_TOOLS, empty if unset: names
// separated by ':'; `+name` adds to the built-in list, `-name` takes from it, a name without a sign
// starts a list of its own. A target's prefix ("x86_64-linux-gnu-ld.bfd") and a version's suffix
// ("clang-14") are seen through for built-in names.
bool FindTool(View program, View configured, Tool* tool);

enum class FileType : uint8_t { kNone, kRegular, kFifo, kSocket, kOther };

// What a path leads to, with its size in bytes.
struct Probe {
  FileType (*look)(void* context, View path, uint64_t* size) = nullptr;
  void* context = nullptr;
};

// What the arguments say.
struct Command {
  bool gate = false;  // false: a query ("--version"), or a driver that only starts others
  gate::Replay replay = gate::Replay::kReplayable;  // as far as the arguments tell
  bool reads_stdin = false;    // replayable only if stdin is a regular file or empty
  bool writes_stdout = false;  // its result goes there: replayable only into the null device
  View source;                 // part of the arguments
  gate::InputSize inputs[gate::kGateInputs] = {};
  uint32_t input_count = 0;
  uint64_t input_bytes = 0;
};

// `arguments`: argv, each ended by NUL, as in /proc/PID/cmdline. Files named by `@file` are not
// read here: AddArguments takes their words.
class CommandReader {
 public:
  CommandReader(const Tool& tool, Probe probe) : tool_(tool), probe_(probe) {}
  // argv[0] and after.
  void AddArguments(View arguments);
  // The words of an `@file`: blanks separate, quotes and backslashes protect. `text` is changed in
  // place and must live as long as the result.
  void AddResponse(char* text, size_t size);
  // Response files named so far, to be read by the caller: index from 0, empty view at the end.
  View Response(size_t index) const;
  Command Finish();

 private:
  static constexpr size_t kMostResponses = 4;
  static constexpr size_t kMostSuffixes = 16;

  void Add(View word);
  void AddFile(View word);

  const Tool& tool_;
  Probe probe_;
  Command command_;
  gate::InputSize sizes_[kMostSuffixes] = {};
  View responses_[kMostResponses];
  size_t response_count_ = 0;
  View before_;  // the word before, if it takes this one as its operand
  size_t words_ = 0;
  bool compiles_ = false;      // -c, -S, -cc1
  bool query_ = false;         // a lone --version or the like
  bool has_output_ = false;    // -o FILE
  bool preprocesses_ = false;  // -E and the like
  bool source_named_ = false;  // by an option that says so
};

// Bytes.
uint64_t PriorPeak(const Tool& tool, uint64_t input_bytes);

}  // namespace headroom::preload

#endif  // HEADROOM_CLIENT_PRELOAD_TOOLS_H_
