#include "client/preload/tools.h"

namespace headroom::preload {
namespace {

using gate::InputSize;
using gate::Replay;

// Texts are in the tables themselves, not behind pointers: the loader would have to relocate those,
// and so write to a page, in every process.
struct Known {
  char name[12];
  ToolKind kind;
  uint32_t base_mega;
  uint32_t factor;
};

// Priors: upper halves of what flash-attn 2.8.3's build showed (design.md, "Compiler memory"), over
// the sizes of the inputs there; linkers keep about twice their inputs.
constexpr Known kKnown[] = {
    {"cicc", ToolKind::kCompiler, 300, 700},     {"ptxas", ToolKind::kCompiler, 150, 60},
    {"cudafe++", ToolKind::kCompiler, 150, 100}, {"nvlink", ToolKind::kLinker, 150, 4},
    {"cc1", ToolKind::kCompiler, 300, 50},       {"cc1plus", ToolKind::kCompiler, 700, 50},
    {"cc1obj", ToolKind::kCompiler, 300, 50},    {"cc1objplus", ToolKind::kCompiler, 700, 50},
    {"f951", ToolKind::kCompiler, 400, 50},      {"gnat1", ToolKind::kCompiler, 400, 50},
    {"lto1", ToolKind::kCompiler, 500, 10},      {"clang", ToolKind::kClang, 600, 50},
    {"clang++", ToolKind::kClang, 600, 50},      {"flang-new", ToolKind::kClang, 600, 50},
    {"rustc", ToolKind::kRust, 1000, 0},         {"ld", ToolKind::kLinker, 100, 3},
    {"ld.bfd", ToolKind::kLinker, 100, 3},       {"ld.gold", ToolKind::kLinker, 100, 3},
    {"gold", ToolKind::kLinker, 100, 3},         {"ld.lld", ToolKind::kLinker, 100, 3},
    {"lld", ToolKind::kLinker, 100, 3},          {"rust-lld", ToolKind::kLinker, 100, 3},
    {"wasm-ld", ToolKind::kLinker, 100, 3},      {"ld.mold", ToolKind::kLinker, 100, 3},
    {"mold", ToolKind::kLinker, 100, 3},
};

// Options whose operand is the next word and no input.
constexpr char kOperandOptions[][28] = {
    "-o",
    "--output",
    "--output-file",
    "-dumpbase",
    "-dumpbase-ext",
    "-dumpdir",
    "-auxbase",
    "-auxbase-strip",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-imultiarch",
    "-imultilib",
    "-isysroot",
    "-I",
    "-L",
    "-D",
    "-U",
    "-MF",
    "-MD",
    "-MMD",
    "-MT",
    "-MQ",
    "-x",
    "-main-file-name",
    "-T",
    "-m",
    "-z",
    "-soname",
    "-h",
    "-rpath",
    "-rpath-link",
    "-plugin",
    "-plugin-opt",
    "-dynamic-linker",
    "-Map",
    "-arch",
    "-include-pch",
    "-resource-dir",
    "-fdebug-compilation-dir",
    "-triple",
    "-target-cpu",
    "-mllvm",
    "-dependency-file",
    "-internal-isystem",
    "-internal-externc-isystem",
    "--include_file_name",
    "--module_id_file_name",
    "--gen_c_file_name",
    "--stub_file_name",
    "--gen_module_id_file",
    "--gen_device_file_name",
    "--orig_src_path_name",
    "--orig_src_file_name",
    "--nv_arch",
    "--out-dir",
    "--crate-name",
    "--emit",
};

constexpr char kSourceSuffixes[][4] = {
    "c",   "cc",  "cpp", "cxx", "c++", "C",   "cu", "i",  "ii", "ptx", "m", "mm",  "f",   "for",
    "f90", "f95", "f03", "f08", "F",   "F90", "rs", "bc", "ll", "s",   "S", "adb", "gpu",
};

template <size_t kCount, size_t kSize>
bool IsOneOf(View word, const char (&list)[kCount][kSize]) {
  for (const auto& entry : list) {
    if (Equal(word, View(&entry[0]))) return true;
  }
  return false;
}

View Suffix(View path) {
  const View name = BaseName(path);
  const size_t dot = FindLast(name, '.');
  return dot == kNotFound || dot == 0 ? View(name.data, 0) : name.From(dot + 1);
}

bool IsSource(View path) {
  return IsOneOf(Suffix(path), kSourceSuffixes);
}

// "clang-14", "clang-14.0.6": without the version.
View WithoutVersion(View name) {
  const size_t dash = FindLast(name, '-');
  if (dash == kNotFound || dash + 1 == name.size) return name;
  for (size_t i = dash + 1; i < name.size; ++i) {
    if (name[i] != '.' && (name[i] < '0' || name[i] > '9')) return name;
  }
  return name.Before(dash);
}

const Known* FindKnown(View program) {
  const View plain = WithoutVersion(program);
  for (const Known& known : kKnown) {
    const View name(known.name);
    if (Equal(plain, name)) return &known;
    if (known.kind == ToolKind::kLinker && EndsWith(plain, name) && plain.size > name.size + 1 &&
        plain[plain.size - name.size - 1] == '-') {
      return &known;
    }
  }
  return nullptr;
}

void Fill(const Known& known, Tool* tool) {
  Copy(View(known.name), tool->name);
  tool->kind = known.kind;
  tool->base_mega = known.base_mega;
  tool->factor = known.factor;
}

// A name for one of the process's own descriptors.
bool IsStream(View path) {
  return Equal(path, "/dev/stdin") || Equal(path, "/dev/stdout") || Equal(path, "/dev/stderr") ||
         StartsWith(path, "/dev/fd/") || StartsWith(path, "/proc/self/fd/");
}

bool IsOutputOption(View option) {
  return Equal(option, "-o") || Equal(option, "--output") || Equal(option, "--output-file") ||
         Equal(option, "-MF") || Equal(option, "-MD") || Equal(option, "-MMD") ||
         Equal(option, "-dependency-file") || Equal(option, "-Map");
}

bool IsQuery(View word) {
  return Equal(word, "--version") || Equal(word, "-V") || Equal(word, "-v") || Equal(word, "-vV") ||
         Equal(word, "--help") || Equal(word, "-h");
}

}  // namespace

bool FindTool(View program, View configured, Tool* tool) {
  if (program.empty()) return false;
  const Known* known = FindKnown(program);
  bool own_list = false;
  bool listed = false;
  bool taken = false;
  View rest = configured;
  View item;
  while (NextPart(&rest, ':', &item)) {
    if (item.empty()) continue;
    const char sign = item[0];
    const bool signed_item = sign == '+' || sign == '-';
    const View name = signed_item ? item.From(1) : item;
    own_list |= !signed_item;
    const bool same = Equal(name, program) || (known != nullptr && Equal(name, known->name));
    if (!same) continue;
    listed |= sign != '-';
    taken |= sign == '-';
  }
  if (taken || (!listed && (own_list || known == nullptr))) return false;
  if (known != nullptr) {
    Fill(*known, tool);
  } else {
    *tool = Tool();
    Copy(program, tool->name);
  }
  return true;
}

void CommandReader::AddArguments(View arguments) {
  size_t start = 0;
  for (size_t i = 0; i < arguments.size; ++i) {
    if (arguments[i] != '\0') continue;
    if (words_++ > 0) Add(View(arguments.data + start, i - start));
    start = i + 1;
  }
}

void CommandReader::AddResponse(char* text, size_t size) {
  size_t in = 0;
  while (in < size) {
    while (in < size &&
           (text[in] == ' ' || text[in] == '\t' || text[in] == '\n' || text[in] == '\r')) {
      ++in;
    }
    if (in == size) break;
    const size_t start = in;
    size_t out = in;  // Never ahead of `in`: protection only takes bytes away.
    char quote = '\0';
    for (; in < size; ++in) {
      const char c = text[in];
      if (c == '\\' && in + 1 < size) {
        text[out++] = text[++in];
      } else if (quote != '\0') {
        if (c == quote) {
          quote = '\0';
        } else {
          text[out++] = c;
        }
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        break;
      } else {
        text[out++] = c;
      }
    }
    ++words_;
    const View word(text + start, out - start);
    if (!StartsWith(word, "@")) Add(word);  // One level is all that compilers write.
  }
}

View CommandReader::Response(size_t index) const {
  return index < response_count_ ? responses_[index] : View();
}

void CommandReader::Add(View word) {
  const View option = before_;
  before_ = View();
  const bool is_option = word.size > 1 && word[0] == '-';
  if (words_ == 2 && tool_.kind != ToolKind::kOther) query_ = IsQuery(word);
  if (words_ > 2 && tool_.kind != ToolKind::kRust) query_ = false;

  if (!option.empty()) {
    if (Equal(option, "-o") || Equal(option, "--output") || Equal(option, "--output-file")) {
      has_output_ = true;
      if (tool_.kind == ToolKind::kLinker && !source_named_) command_.source = word;
    }
    if (Equal(option, "--orig_src_path_name") ||
        (Equal(option, "--orig_src_file_name") && !source_named_)) {
      command_.source = word;
      source_named_ = true;
    }
    if (IsOutputOption(option)) {
      if (Equal(word, "-") || Equal(word, "/dev/stdout")) {
        command_.writes_stdout = true;
      } else if (IsStream(word)) {
        command_.replay = Replay::kOutputStream;
      } else {
        // An output that exists already may be a stream as well; /dev/null is none.
        uint64_t size = 0;
        const FileType type = probe_.look(probe_.context, word, &size);
        if (type == FileType::kFifo || type == FileType::kSocket) {
          command_.replay = Replay::kOutputStream;
        }
      }
      if (!is_option) return;  // A file's name never looks like an option here.
    } else {
      return;
    }
  }

  if (Equal(word, "-")) {
    command_.reads_stdin = true;
    ++command_.input_count;
    return;
  }
  if (!is_option) {
    if (StartsWith(word, "@") && word.size > 1) {
      if (response_count_ < kMostResponses) responses_[response_count_++] = word.From(1);
      return;
    }
    AddFile(word);
    return;
  }

  if (Equal(word, "-c") || Equal(word, "-S") || Equal(word, "-cc1")) compiles_ = true;
  if (Equal(word, "-E") || Equal(word, "-M") || Equal(word, "-MM")) preprocesses_ = true;
  if (Equal(word, "-o-")) command_.writes_stdout = true;
  if (StartsWith(word, "--output-file=")) {
    has_output_ = true;
    if (Equal(word, "--output-file=-")) command_.writes_stdout = true;
  }
  if (tool_.kind == ToolKind::kLinker && StartsWith(word, "--incremental")) {
    command_.replay = Replay::kModifiesInput;
  }
  if (tool_.kind == ToolKind::kRust && (StartsWith(word, "--print") || IsQuery(word))) {
    query_ = true;
  }
  const size_t equals = Find(word, '=');
  if (equals != kNotFound && IsStream(word.From(equals + 1))) {
    command_.replay = Replay::kOutputStream;
  }
  // In cc1 -MD names a file; in the clang driver it stands alone.
  if (tool_.kind == ToolKind::kClang && (Equal(word, "-MD") || Equal(word, "-MMD"))) return;
  if (IsOneOf(word, kOperandOptions)) before_ = word;
}

void CommandReader::AddFile(View word) {
  if (IsStream(word)) {
    if (Equal(word, "/dev/stdin")) {
      command_.reads_stdin = true;
    } else {
      command_.replay = Replay::kInputStream;
    }
    ++command_.input_count;
    return;
  }
  uint64_t size = 0;
  const FileType type = probe_.look(probe_.context, word, &size);
  if (type == FileType::kFifo || type == FileType::kSocket) {
    command_.replay = Replay::kInputStream;
    ++command_.input_count;
    return;
  }
  // A source that isn't there still tells the tool what it is about: it will say so itself.
  if (command_.source.empty() && tool_.kind != ToolKind::kLinker && IsSource(word)) {
    command_.source = word;
  }
  if (type != FileType::kRegular) return;
  ++command_.input_count;
  command_.input_bytes += size;
  const View suffix = Suffix(word);
  InputSize entry = {};
  Copy(suffix, entry.suffix);
  for (InputSize& other : sizes_) {
    if (other.bytes == 0 && other.suffix[0] == '\0') Copy(View(entry.suffix), other.suffix);
    if (!Equal(View(other.suffix), View(entry.suffix))) continue;
    other.bytes += size;
    break;
  }
}

Command CommandReader::Finish() {
  for (InputSize& place : command_.inputs) {
    InputSize* largest = nullptr;
    for (InputSize& entry : sizes_) {
      if (entry.bytes > 0 && (largest == nullptr || entry.bytes > largest->bytes)) {
        largest = &entry;
      }
    }
    if (largest == nullptr) break;
    place = *largest;
    largest->bytes = 0;
  }
  command_.gate = !query_;
  switch (tool_.kind) {
    case ToolKind::kCompiler:
      if (preprocesses_ && !has_output_) command_.writes_stdout = true;
      if (command_.input_count == 0 && command_.source.empty()) command_.reads_stdin = true;
      break;
    case ToolKind::kClang:
      command_.gate &= compiles_;
      if (preprocesses_ && !has_output_) command_.writes_stdout = true;
      break;
    case ToolKind::kLinker:
      break;
    case ToolKind::kRust:
      command_.replay = Replay::kHoldsTokens;
      break;
    case ToolKind::kOther:
      command_.reads_stdin = true;
      break;
  }
  return command_;
}

uint64_t PriorPeak(const Tool& tool, uint64_t input_bytes) {
  // No prior exceeds 8 GB: above it, only what was seen counts.
  constexpr uint64_t kMost = 8'000'000'000;
  const uint64_t peak = uint64_t{tool.base_mega} * 1'000'000 + input_bytes * tool.factor;
  return peak < kMost ? peak : kMost;
}

}  // namespace headroom::preload
