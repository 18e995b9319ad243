#include "server/daemon/hints.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/daemon/command_line.h"
#include "server/policy/tool.h"
#include "server/sys/file.h"

namespace headroom::daemon {
namespace {

using Scope = std::map<std::string, std::string, std::less<>>;

bool IsNameChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// Lexical part of ninja's manifest format (ninja's manual, "Ninja file reference").
class Parser {
 public:
  Parser(const HintSource& source, const HintLimits& limits) : source_(source), limits_(limits) {}

  std::vector<policy::LaneHint::Edges> Run(const std::string& file) {
    Scope scope;
    File(file, scope, 0);
    return std::move(edges_);
  }

 private:
  using Edges = policy::LaneHint::Edges;

  // Logical lines: "$\n" joins, comments and empty lines are left out.
  static bool NextLine(std::string_view& text, std::string& line) {
    while (!text.empty()) {
      line.clear();
      bool comment = false;
      bool first = true;
      size_t i = 0;
      for (; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\n') {
          ++i;
          break;
        }
        if (first && c != ' ') {
          comment = c == '#';
          first = false;
        }
        if (c == '$' && !comment && i + 1 < text.size()) {
          const bool carriage = text[i + 1] == '\r' && i + 2 < text.size() && text[i + 2] == '\n';
          if (text[i + 1] == '\n' || carriage) {
            i += carriage ? 2 : 1;
            while (i + 1 < text.size() && text[i + 1] == ' ') ++i;
            continue;
          }
          line += c;
          line += text[++i];
          continue;
        }
        if (c != '\r') line += c;
      }
      text.remove_prefix(i);
      if (!comment && line.find_first_not_of(' ') != std::string::npos) return true;
    }
    return false;
  }

  // `look` gives a variable's value.
  template <typename Look>
  std::string Expand(std::string_view text, const Look& look) const {
    std::string out;
    for (size_t i = 0; i < text.size() && out.size() < limits_.command; ++i) {
      if (text[i] != '$' || i + 1 >= text.size()) {
        out += text[i];
        continue;
      }
      const char next = text[++i];
      if (next == '$' || next == ' ' || next == ':') {
        out += next;
      } else if (next == '{') {
        const size_t end = text.find('}', i);
        if (end == std::string_view::npos) break;
        out += look(text.substr(i + 1, end - i - 1));
        i = end;
      } else {
        size_t end = i;
        // Without braces a name has no dots.
        while (end < text.size() && text[end] != '.' && IsNameChar(text[end])) ++end;
        out += look(text.substr(i, end - i));
        i = end == i ? i : end - 1;
      }
    }
    if (out.size() > limits_.command) out.resize(limits_.command);
    return out;
  }

  std::string ExpandIn(std::string_view text, const Scope& scope) const {
    return Expand(text, [&](std::string_view name) -> std::string {
      const auto at = scope.find(name);
      return at == scope.end() ? std::string() : at->second;
    });
  }

  // "  name = value" → the two, the value not expanded.
  static std::optional<std::pair<std::string, std::string>> Binding(std::string_view line) {
    const size_t start = line.find_first_not_of(' ');
    if (start == std::string_view::npos) return std::nullopt;
    size_t end = start;
    while (end < line.size() && IsNameChar(line[end])) ++end;
    size_t equals = line.find_first_not_of(' ', end);
    if (end == start || equals == std::string_view::npos || line[equals] != '=') {
      return std::nullopt;
    }
    const size_t value = line.find_first_not_of(' ', equals + 1);
    return std::pair(
        std::string(line.substr(start, end - start)),
        value == std::string_view::npos ? std::string() : std::string(line.substr(value)));
  }

  // Paths up to ':' or '|' or the end; escapes kept for Expand.
  static std::vector<std::string> Paths(std::string_view& text) {
    std::vector<std::string> paths;
    std::string path;
    size_t i = 0;
    for (; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '$' && i + 1 < text.size()) {
        path += c;
        path += text[++i];
      } else if (c == ' ') {
        if (!path.empty()) paths.push_back(std::exchange(path, {}));
      } else if (c == ':' || c == '|') {
        break;
      } else {
        path += c;
      }
    }
    if (!path.empty()) paths.push_back(std::move(path));
    text.remove_prefix(i);
    return paths;
  }

  static bool TakeWord(std::string_view& line, std::string_view word) {
    if (!line.starts_with(word) || line.size() <= word.size() || line[word.size()] != ' ') {
      return false;
    }
    line.remove_prefix(word.size());
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    return true;
  }

  void File(const std::string& path, Scope& scope, int depth) {
    if (depth > limits_.depth || files_ >= limits_.files || bytes_ >= limits_.bytes) return;
    ++files_;
    const std::optional<std::string> read = source_.read(path, limits_.bytes - bytes_);
    if (!read) return;
    bytes_ += read->size();
    std::string_view text = *read;
    std::string line;
    bool more = NextLine(text, line);
    while (more && edge_count_ < limits_.edges) {
      std::string_view rest = line;
      if (TakeWord(rest, "rule")) {
        const std::string name(rest.substr(0, rest.find(' ')));
        std::string command;
        while ((more = NextLine(text, line)) && line[0] == ' ') {
          if (auto binding = Binding(line); binding && binding->first == "command") {
            command = std::move(binding->second);
          }
        }
        if (rules_.size() < kMostRules) rules_[name] = std::move(command);
        continue;
      }
      if (TakeWord(rest, "build")) {
        const std::string statement(rest);
        Scope own;
        while ((more = NextLine(text, line)) && line[0] == ' ') {
          if (auto binding = Binding(line); binding && own.size() < kMostBindings) {
            own[binding->first] = ExpandIn(binding->second, scope);
          }
        }
        Edge(statement, own, scope);
        continue;
      }
      if (TakeWord(rest, "include")) {
        File(ExpandIn(rest, scope), scope, depth + 1);
      } else if (TakeWord(rest, "subninja")) {
        Scope below = scope;
        File(ExpandIn(rest, scope), below, depth + 1);
      } else if (auto binding = Binding(rest); binding && line[0] != ' ') {
        if (scope.size() < kMostBindings) {
          scope[binding->first] = ExpandIn(binding->second, scope);
        }
      }
      more = NextLine(text, line);
    }
  }

  void Edge(std::string_view text, const Scope& own, const Scope& scope) {
    const std::vector<std::string> outputs = Paths(text);
    while (!text.empty() && text[0] == '|') {  // implicit outputs
      text.remove_prefix(1);
      Paths(text);
    }
    if (outputs.empty() || text.empty() || text[0] != ':') return;
    text.remove_prefix(1);
    std::vector<std::string> inputs = Paths(text);
    if (inputs.empty()) return;
    const std::string rule = inputs.front();
    inputs.erase(inputs.begin());
    if (rule == "phony") return;
    const auto command = rules_.find(rule);
    if (command == rules_.end()) return;
    ++edge_count_;
    const auto expand = [&](const std::string& value) { return ExpandIn(value, scope); };
    const std::string out = expand(outputs.front());
    if (source_.exists(out)) return;

    const std::string in = inputs.empty() ? std::string() : expand(inputs.front());
    const std::string line = Expand(command->second, [&](std::string_view name) -> std::string {
      // More than one input changes nothing of what a command is.
      if (name == "in" || name == "in_newline") return in;
      if (name == "out") return out;
      if (const auto at = own.find(name); at != own.end()) return at->second;
      if (const auto at = scope.find(name); at != scope.end()) return at->second;
      return {};
    });
    const policy::Command known = policy::RecogniseLine(line);
    const std::string driver = DriverOf(known);
    const int fan_out = driver == "other" ? 1 : std::max(1, known.fan_out);
    for (Edges& edges : edges_) {
      if (edges.driver == driver && edges.fan_out == fan_out) {
        ++edges.count;
        return;
      }
    }
    if (edges_.size() < kMostKinds) edges_.push_back({driver, 1, fan_out});
  }

  static constexpr size_t kMostRules = 10000;
  static constexpr size_t kMostBindings = 10000;
  static constexpr size_t kMostKinds = 64;

  const HintSource& source_;
  const HintLimits& limits_;
  std::map<std::string, std::string, std::less<>> rules_;
  std::vector<Edges> edges_;
  int files_ = 0;
  size_t bytes_ = 0;
  int edge_count_ = 0;
};

}  // namespace

std::vector<policy::LaneHint::Edges> ParseNinja(const std::string& file, const HintSource& source,
                                                const HintLimits& limits) {
  return Parser(source, limits).Run(file);
}

std::vector<policy::LaneHint::Edges> ReadNinjaHints(const std::string& proc_root, int pid,
                                                    const std::vector<std::string>& argv) {
  const std::string cwd_path = absl::StrCat(proc_root, "/", pid, "/cwd");
  const sys::UniqueFd cwd(open(cwd_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!cwd) return {};
  std::string file = "build.ninja";
  for (size_t i = 1; i < argv.size(); ++i) {
    // ninja enters the folder of -C before it reads anything: cwd is that folder by now.
    if (argv[i] == "-f" && i + 1 < argv.size()) {
      file = argv[i + 1];
    } else if (argv[i].size() > 2 && argv[i].starts_with("-f")) {
      file = argv[i].substr(2);
    }
  }
  HintSource source;
  source.read = [&](const std::string& path, size_t limit) -> std::optional<std::string> {
    // Not blocking on a fifo that somebody put there.
    const sys::UniqueFd fd(
        openat(cwd.get(), path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    struct stat info {};
    if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
    std::string text(std::min(limit, static_cast<size_t>(std::max<off_t>(info.st_size, 0))), '\0');
    size_t have = 0;
    while (have < text.size()) {
      const ssize_t n = read(fd.get(), text.data() + have, text.size() - have);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      have += static_cast<size_t>(n);
    }
    text.resize(have);
    return text;
  };
  source.exists = [&](const std::string& path) {
    struct stat info {};
    return fstatat(cwd.get(), path.c_str(), &info, 0) == 0;
  };
  return ParseNinja(file, source, HintLimits{});
}

}  // namespace headroom::daemon
