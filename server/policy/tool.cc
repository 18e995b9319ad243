#include "server/policy/tool.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>

namespace headroom::policy {
namespace {

using Words = std::span<const std::string>;

// Command lines nest (sh -c "env ccache g++ ..."). Real ones stay within four levels; a hostile one
// must not exhaust the stack.
constexpr int kMaxNesting = 8;

// nvcc compiles for this many archs with -arch=all-major and -arch=all (CUDA 12 and 13: majors 5 to
// 12 less the dropped ones; all adds the minors). Between versions the true number moves by two or
// three, and --threads caps it anyway.
constexpr int kAllMajorArchs = 6;
constexpr int kAllArchs = 12;

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view Basename(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

template <size_t N>
bool OneOf(std::string_view text, const std::array<std::string_view, N>& list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// "-12", "-12.2" at the end of "g++-12".
std::string_view WithoutVersion(std::string_view name) {
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || dash + 1 == name.size()) return name;
  for (char c : name.substr(dash + 1)) {
    if (!IsDigit(c) && c != '.') return name;
  }
  return name.substr(0, dash);
}

// True for "g++" and for "x86_64-linux-gnu-g++", where `name` is "g++".
bool IsProgram(std::string_view exe, std::string_view name) {
  if (exe == name) return true;
  return exe.size() > name.size() + 1 && EndsWith(exe, name) &&
         exe[exe.size() - name.size() - 1] == '-';
}

constexpr std::array<std::string_view, 24> kSourceSuffixes = {
    ".cu", ".cc", ".cpp", ".cxx", ".c++", ".cp",  ".c", ".C",  ".cppm", ".ixx", ".i", ".ii",
    ".f",  ".F",  ".f90", ".F90", ".f95", ".f03", ".m", ".mm", ".rs",   ".s",   ".S", ".ptx"};

bool IsSource(std::string_view word) {
  if (word.empty() || word[0] == '-') return false;
  const std::string_view base = Basename(word);
  const size_t dot = base.rfind('.');
  return dot != std::string_view::npos && dot > 0 && OneOf(base.substr(dot), kSourceSuffixes);
}

// Options whose value is the next word and is a path or a name, not what is compiled.
constexpr std::array<std::string_view, 31> kPathOptions = {"-o",
                                                           "-MF",
                                                           "-MT",
                                                           "-MQ",
                                                           "-MMD",
                                                           "-I",
                                                           "-L",
                                                           "-isystem",
                                                           "-iquote",
                                                           "-idirafter",
                                                           "-include",
                                                           "-imacros",
                                                           "-iprefix",
                                                           "-isysroot",
                                                           "--sysroot",
                                                           "-dumpbase",
                                                           "-dumpdir",
                                                           "-dumpbase-ext",
                                                           "-auxbase",
                                                           "-imultilib",
                                                           "-imultiarch",
                                                           "-ccbin",
                                                           "--output-file",
                                                           "--compiler-bindir",
                                                           "-auxbase-strip",
                                                           "--gen_c_file_name",
                                                           "--stub_file_name",
                                                           "--gen_device_file_name",
                                                           "--module_id_file_name",
                                                           "--orig_src_file_name",
                                                           "--orig_src_path_name"};

// Options whose value is the next word and shapes the result.
constexpr std::array<std::string_view, 14> kValueOptions = {"-gencode", "--generate-code",
                                                            "-arch",    "--gpu-architecture",
                                                            "-code",    "--gpu-code",
                                                            "-x",       "--param",
                                                            "-D",       "-U",
                                                            "-std",     "--std",
                                                            "-O",       "-m"};

std::string_view ValueAfter(Words argv, std::string_view option) {
  for (size_t i = 0; i + 1 < argv.size(); ++i) {
    if (argv[i] == option) return argv[i + 1];
  }
  return {};
}

bool Has(Words argv, std::string_view option) {
  return std::find(argv.begin(), argv.end(), option) != argv.end();
}

// nvcc's temporary files carry the source's name: tmpxft_00004c2b_00000000-8_NAME.compute_90.ptx.
std::string_view WithoutTemporary(std::string_view word) {
  const std::string_view base = Basename(word);
  if (!StartsWith(base, "tmpxft_")) return word;
  const size_t dash = base.find('-');
  if (dash == std::string_view::npos) return word;
  const size_t bar = base.find('_', dash);
  if (bar == std::string_view::npos || bar + 1 == base.size()) return word;
  return base.substr(bar + 1);
}

std::string FirstSource(Words argv) {
  for (size_t i = 1; i < argv.size(); ++i) {
    if (OneOf(argv[i], kPathOptions)) {
      ++i;
    } else if (IsSource(argv[i])) {
      return std::string(WithoutTemporary(argv[i]));
    }
  }
  return {};
}

int ParseCount(std::string_view text) {
  int value = 0;
  if (text.empty()) return -1;
  for (char c : text) {
    if (!IsDigit(c)) return -1;
    value = value * 10 + (c - '0');
    if (value > 4096) return 4096;
  }
  return value;
}

// The value of an option given as "--name value", "--name=value".
std::string_view OptionValue(Words argv, size_t& i, std::string_view name) {
  const std::string_view word = argv[i];
  if (word == name) return i + 1 < argv.size() ? std::string_view(argv[++i]) : std::string_view();
  if (StartsWith(word, name) && word.size() > name.size() && word[name.size()] == '=') {
    return word.substr(name.size() + 1);
  }
  return {};
}

// Adds the items of "sm_80,sm_90" or "[sm_80,compute_80]" that begin with `prefix`.
void AddItems(std::string_view list, std::string_view prefix, std::set<std::string_view>& to) {
  size_t begin = 0;
  while (begin <= list.size()) {
    size_t end = list.find_first_of(",[]\"", begin);
    if (end == std::string_view::npos) end = list.size();
    const std::string_view item = list.substr(begin, end - begin);
    if (StartsWith(item, prefix) && item.size() > prefix.size()) to.insert(item);
    begin = end + 1;
  }
}

// How many chains of cicc and ptxas one nvcc runs at once.
int NvccFanOut(Words argv) {
  std::set<std::string_view> virtual_archs;  // one cicc each
  std::set<std::string_view> real_archs;     // one ptxas each
  int listed = 0;                            // -arch=all and the like
  int threads = 1;
  for (size_t i = 1; i < argv.size(); ++i) {
    const size_t at = i;
    if (std::string_view code = OptionValue(argv, i, "-gencode"); !code.empty()) {
      const size_t arch = code.find("arch=");
      if (arch != std::string_view::npos) {
        const size_t end = code.find(',', arch);
        AddItems(code.substr(arch + 5, end == std::string_view::npos ? end : end - arch - 5),
                 "compute_", virtual_archs);
      }
      const size_t real = code.find("code=");
      if (real != std::string_view::npos) AddItems(code.substr(real + 5), "sm_", real_archs);
      continue;
    }
    i = at;
    if (std::string_view code = OptionValue(argv, i, "--generate-code"); !code.empty()) {
      const size_t real = code.find("code=");
      AddItems(code.substr(0, real), "compute_", virtual_archs);
      const size_t arch = code.find("arch=compute_");
      if (arch != std::string_view::npos) {
        const size_t end = std::min(code.find(',', arch), code.size());
        virtual_archs.insert(code.substr(arch + 5, end - arch - 5));
      }
      if (real != std::string_view::npos) AddItems(code.substr(real + 5), "sm_", real_archs);
      continue;
    }
    i = at;
    for (std::string_view name : {"-arch", "--gpu-architecture"}) {
      const std::string_view arch = OptionValue(argv, i, name);
      if (arch.empty()) continue;
      if (arch == "all") listed = kAllArchs;
      if (arch == "all-major") listed = kAllMajorArchs;
      AddItems(arch, "compute_", virtual_archs);
      AddItems(arch, "sm_", real_archs);
      break;
    }
    if (i != at) continue;
    for (std::string_view name : {"-code", "--gpu-code"}) {
      AddItems(OptionValue(argv, i, name), "sm_", real_archs);
      if (i != at) break;
    }
    if (i != at) continue;
    for (std::string_view name : {"--threads", "-t"}) {
      const int value = ParseCount(OptionValue(argv, i, name));
      if (value >= 0) threads = value;
      if (i != at) break;
    }
  }
  const int chains = std::max(
      {1, listed, static_cast<int>(virtual_archs.size()), static_cast<int>(real_archs.size())});
  return threads == 0 ? chains : std::min(chains, threads);
}

int Weight(const Command& command) {
  if (command.role == Role::kOther) return 0;
  if (command.name == "nvcc") return 4;
  if (command.name == "c++") return 3;
  return command.role == Role::kClient ? 1 : 2;
}

// Words of a shell line up to its end or an operator, which `position` then stands behind.
std::vector<std::string> NextCommand(std::string_view line, size_t& position) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  const auto finish = [&] {
    if (in_word) words.push_back(std::move(word));
    word.clear();
    in_word = false;
  };
  for (; position < line.size(); ++position) {
    const char c = line[position];
    if (c == '\\' && position + 1 < line.size()) {
      word += line[++position];
      in_word = true;
    } else if (c == '\'' || c == '"') {
      in_word = true;
      for (++position; position < line.size() && line[position] != c; ++position) {
        if (c == '"' && line[position] == '\\' && position + 1 < line.size()) ++position;
        word += line[position];
      }
    } else if (c == ' ' || c == '\t') {
      finish();
    } else if (c == ';' || c == '&' || c == '|' || c == '\n' || c == '(' || c == ')') {
      ++position;
      break;
    } else {
      word += c;
      in_word = true;
    }
  }
  finish();
  return words;
}

Command RecogniseAt(std::string_view exe, Words argv, int depth);

Command RecogniseLineAt(std::string_view line, int depth) {
  Command best;
  size_t position = 0;
  while (position < line.size()) {
    const std::vector<std::string> words = NextCommand(line, position);
    // Assignments before the command: FOO=bar g++ ...
    size_t first = 0;
    while (first < words.size() && words[first].find('=') != std::string::npos &&
           words[first][0] != '-' && words[first].find('/') > words[first].find('=')) {
      ++first;
    }
    if (first == words.size()) continue;
    const Words rest = Words(words).subspan(first);
    Command command = RecogniseAt(Basename(rest[0]), rest, depth);
    if (Weight(command) > Weight(best)) best = std::move(command);
  }
  return best;
}

// Index of the launched command's first word in a launcher's words; 0: none.
size_t Launched(std::string_view exe, Words argv) {
  size_t i = 1;
  const auto skip_options = [&](std::string_view with_value) {
    while (i < argv.size() && !argv[i].empty() && argv[i][0] == '-') {
      const bool takes =
          argv[i].size() == 2 && with_value.find(argv[i][1]) != std::string_view::npos;
      i += takes ? 2 : 1;
    }
  };
  if (exe == "ccache" || exe == "sccache" || exe == "distcc" || exe == "icecc" ||
      exe == "buildcache" || exe == "gomacc" || exe == "time" || exe == "nohup" ||
      exe == "setsid") {
    skip_options("");
  } else if (exe == "nice") {
    skip_options("n");
  } else if (exe == "ionice") {
    skip_options("cnp");
  } else if (exe == "stdbuf") {
    skip_options("ioe");
  } else if (exe == "env") {
    skip_options("uCS");
  } else if (exe == "timeout") {
    skip_options("ks");
    ++i;
  } else {
    return 0;
  }
  while (i < argv.size() && argv[i].find('=') != std::string::npos) ++i;
  return i < argv.size() ? i : 0;
}

bool IsShell(std::string_view exe) {
  return exe == "sh" || exe == "bash" || exe == "dash" || exe == "zsh" || exe == "ksh";
}

Command MakeTool(std::string_view name, std::string source) {
  return Command{Role::kTool, std::string(name), std::move(source), 1};
}

std::string ToolSource(Words argv) {
  for (std::string_view option : {"--orig_src_path_name", "--orig_src_file_name"}) {
    const std::string_view value = ValueAfter(argv, option);
    if (!value.empty()) return std::string(value);
  }
  std::string source = FirstSource(argv);
  if (source.empty()) source = std::string(WithoutTemporary(ValueAfter(argv, "-dumpbase")));
  return source;
}

// A front end that only preprocesses (nvcc has it do that twice for each source) takes a tenth of
// what it takes to compile: it is another tool to all who expect memory of it.
std::string_view Frontend(std::string_view name, Words argv) {
  return Has(argv, "-E") ? "cpp" : name;
}

// A C, C++ or Fortran driver: compiles when it is told to stop before linking or has sources.
Command CompilerDriver(Words argv) {
  Command command{Role::kDriver, "c++", FirstSource(argv), 1};
  const bool stops = Has(argv, "-c") || Has(argv, "-S") || Has(argv, "-E") ||
                     Has(argv, "-fsyntax-only") || Has(argv, "--precompile");
  if (stops || !command.source.empty()) return command;
  command.name = "ld";
  command.source = std::string(ValueAfter(argv, "-o"));
  return command;
}

Command RecogniseAt(std::string_view exe, Words argv, int depth) {
  if (depth > kMaxNesting) return {};
  exe = Basename(exe);
  if (IsShell(exe)) {
    for (size_t i = 1; i + 1 < argv.size(); ++i) {
      const std::string& word = argv[i];
      if (word.size() > 1 && word[0] == '-' && word[1] != '-' && word.back() == 'c') {
        return RecogniseLineAt(argv[i + 1], depth + 1);
      }
      if (word.empty() || word[0] != '-') break;
    }
    return {};
  }
  if (const size_t at = Launched(exe, argv); at != 0) {
    return RecogniseAt(argv[at], argv.subspan(at), depth + 1);
  }
  const std::string_view bare = WithoutVersion(exe);

  // Leaves.
  constexpr std::array<std::string_view, 10> kPlainTools = {
      "cicc",   "ptxas",      "cudafe++", "cc1plus", "cc1",
      "cc1obj", "cc1objplus", "lto1",     "f951",    "gnat1"};
  if (OneOf(bare, kPlainTools)) {
    return MakeTool(StartsWith(bare, "cc1") ? Frontend(bare, argv) : bare, ToolSource(argv));
  }
  if (bare == "nvlink") return MakeTool("nvlink", std::string(ValueAfter(argv, "-o")));
  constexpr std::array<std::string_view, 8> kLinkers = {"ld",  "ld.bfd", "ld.gold", "ld.lld",
                                                        "lld", "mold",   "ld.mold", "gold"};
  for (std::string_view linker : kLinkers) {
    if (IsProgram(bare, linker)) return MakeTool("ld", std::string(ValueAfter(argv, "-o")));
  }
  if (IsProgram(bare, "as")) return MakeTool("as", FirstSource(argv));
  if (bare == "rustc" || bare == "clippy-driver") return MakeTool("rustc", FirstSource(argv));

  // Drivers.
  if (bare == "nvcc") {
    const bool links = !Has(argv, "-c") && !Has(argv, "--compile") && !Has(argv, "-dc") &&
                       !Has(argv, "--device-c") && !Has(argv, "-ptx") && !Has(argv, "-cubin") &&
                       !Has(argv, "-fatbin") && !Has(argv, "-dw");
    Command command{Role::kDriver, "nvcc", FirstSource(argv), 1};
    if (links && command.source.empty()) {
      command.name = "ld";
      command.source = std::string(ValueAfter(argv, "-o"));
      return command;
    }
    command.fan_out = NvccFanOut(argv);
    return command;
  }
  if (IsProgram(bare, "clang") || IsProgram(bare, "clang++")) {
    // clang compiles in the driver's own process when it has one thing to do.
    if (Has(argv, "-cc1") || Has(argv, "-c") || Has(argv, "-S")) {
      return MakeTool(Frontend("clang", argv), FirstSource(argv));
    }
    return CompilerDriver(argv);
  }
  constexpr std::array<std::string_view, 7> kCompilers = {"g++",      "gcc", "c++", "cc",
                                                          "gfortran", "c99", "c89"};
  for (std::string_view compiler : kCompilers) {
    if (IsProgram(bare, compiler)) return CompilerDriver(argv);
  }
  if (bare == "collect2" || bare == "lto-wrapper") {
    return Command{Role::kDriver, "ld", std::string(ValueAfter(argv, "-o")), 1};
  }

  // Clients.
  if (bare == "ninja" || bare == "ninja-build") return Command{Role::kClient, "ninja", {}, 1};
  if (bare == "samu") return Command{Role::kClient, "samu", {}, 1};
  if (bare == "make" || bare == "gmake" || bare == "gnumake") {
    return Command{Role::kClient, "make", {}, 1};
  }
  if (bare == "cargo") return Command{Role::kClient, "cargo", {}, 1};
  return {};
}

constexpr uint64_t kFnvOffset = 14695981039346656037U;
constexpr uint64_t kFnvPrime = 1099511628211U;

void Hash(std::string_view text, uint64_t& hash) {
  for (char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= kFnvPrime;
  }
  hash *= kFnvPrime;  // so that "-a b" and "-ab" differ
}

}  // namespace

Command Recognise(std::string_view exe, std::span<const std::string> argv) {
  return RecogniseAt(exe, argv, 0);
}

Command RecogniseLine(std::string_view line) {
  return RecogniseLineAt(line, 0);
}

uint64_t FlagsHash(std::span<const std::string> argv) {
  uint64_t hash = kFnvOffset;
  for (size_t i = 1; i < argv.size(); ++i) {
    const std::string& word = argv[i];
    if (OneOf(word, kPathOptions)) {
      ++i;  // the value is a path
    } else if (OneOf(word, kValueOptions)) {
      Hash(word, hash);
      if (i + 1 < argv.size()) Hash(argv[++i], hash);
    } else if (word.size() > 1 && word[0] == '-' && word.find('/') == std::string::npos &&
               !StartsWith(word, "-frandom-seed") && !StartsWith(word, "-o")) {
      Hash(word, hash);
    }
  }
  return hash;
}

}  // namespace headroom::policy
