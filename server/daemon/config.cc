#include "server/daemon/config.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

#include "server/policy/size.h"

namespace headroom::daemon {
namespace {

// A configuration has some kilobytes; what is larger is another file.
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

// A value from the file, written as in the file, for errors.
std::string Written(const toml::node& node) {
  std::ostringstream text;
  node.visit([&text](const auto& value) { text << value; });
  std::string written = text.str();
  // Tables and arrays may be long.
  constexpr size_t kLongest = 60;
  std::replace(written.begin(), written.end(), '\n', ' ');
  if (written.size() > kLongest) written = written.substr(0, kLongest) + "...";
  return written;
}

// Takes a value into the configuration; a text says what is wrong with it.
using Setter = std::function<std::optional<std::string>(const toml::node&, Config&)>;

std::string Wanted(const toml::node& node, const std::string& wanted) {
  return absl::StrCat(Written(node), " is not ", wanted);
}

std::optional<std::string> SetInteger(const toml::node& node, int64_t least, int64_t most,
                                      const char* unit, const std::function<void(int64_t)>& set) {
  const auto value = node.value_exact<int64_t>();
  if (!value || *value < least || *value > most)
    return Wanted(node, absl::StrCat("a whole number of ", unit, " from ", least, " to ", most));
  set(*value);
  return std::nullopt;
}

Setter Milliseconds(std::chrono::milliseconds Config::*member, int64_t least, int64_t most) {
  return [=](const toml::node& node, Config& config) {
    return SetInteger(node, least, most, "milliseconds",
                      [&](int64_t value) { config.*member = std::chrono::milliseconds(value); });
  };
}

Setter AbsolutePath(std::string Config::*member) {
  return [=](const toml::node& node, Config& config) -> std::optional<std::string> {
    const auto value = node.value_exact<std::string>();
    // A NUL would end the path for the kernel alone.
    if (!value || (!value->empty() && value->front() != '/') ||
        value->find('\0') != std::string::npos)
      return Wanted(node, "an absolute path in quotes");
    config.*member = *value;
    return std::nullopt;
  };
}

std::optional<policy::Size> SizeOf(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return policy::ParseSize(*text);
  if (const auto bytes = node.value_exact<int64_t>())
    return policy::ParseSize(std::to_string(*bytes));
  return std::nullopt;
}

std::string Grammar() {
  return std::string(policy::kSizeGrammar);
}

std::optional<std::string> SetReserve(const toml::node& node, Config& config) {
  const auto size = SizeOf(node);
  if (!size) return Wanted(node, absl::StrCat("a SIZE in quotes: ", Grammar()));
  config.reserve = {};
  if (const auto* bytes = std::get_if<policy::Bytes>(&*size)) {
    config.reserve.bytes = *bytes;
    return std::nullopt;
  }
  // With the whole of a domain reserved nothing could be planned; half is more than anyone needs
  // and still builds.
  constexpr policy::Permyriad kMost{5000};
  if (std::get<policy::Permyriad>(*size) > kMost)
    return Wanted(node, "at most 50%: what is reserved is never planned with");
  config.reserve.share = std::get<policy::Permyriad>(*size);
  return std::nullopt;
}

std::optional<std::string> SetTraceMax(const toml::node& node, Config& config) {
  constexpr policy::Bytes kLeast = policy::MiB(1);
  constexpr policy::Bytes kMost = policy::GiB(64);
  const auto size = SizeOf(node);
  const auto* bytes = size ? std::get_if<policy::Bytes>(&*size) : nullptr;
  if (bytes == nullptr || *bytes < kLeast || *bytes > kMost)
    return Wanted(node, "a SIZE in quotes from 1M to 64G, such as \"64M\" (no percentage)");
  config.trace_max = *bytes;
  return std::nullopt;
}

std::optional<std::string> SetTools(const toml::node& node, Config& config) {
  // The kernel's comm has 15 bytes, file names 255.
  constexpr size_t kLongestName = 255;
  const char* wanted = "a list of program names in quotes, without folders, such as [\"icpc\"]";
  const toml::array* list = node.as_array();
  if (list == nullptr) return Wanted(node, wanted);
  std::vector<std::string> tools;
  for (const toml::node& item : *list) {
    const auto name = item.value_exact<std::string>();
    if (!name || name->empty() || name->size() > kLongestName ||
        name->find_first_of(std::string("/\0", 2)) != std::string::npos)
      return Wanted(item, absl::StrCat("a program's name: the key wants ", wanted));
    tools.push_back(*name);
  }
  config.extra_tools = std::move(tools);
  return std::nullopt;
}

constexpr std::array<const char*, 6> kLogLevels = {"trace", "debug", "info",
                                                   "warn",  "error", "off"};

std::optional<std::string> SetLogLevel(const toml::node& node, Config& config) {
  const auto value = node.value_exact<std::string>();
  if (!value || std::find(kLogLevels.begin(), kLogLevels.end(), *value) == kLogLevels.end())
    return Wanted(node, R"(one of "trace", "debug", "info", "warn", "error" and "off")");
  config.log_level = *value;
  return std::nullopt;
}

struct Key {
  ConfigKey about;
  Setter set;
};

const std::vector<Key>& Keys() {
  static const std::vector<Key> kKeys = {
      {{"memory.reserve", "SIZE", "max(3%, min(7%, 512M))",
        "How much of each memory domain (the host, a cgroup) is never planned with.", false},
       SetReserve},
      {{"jobs.max", "count, 1 to 4096", "the cores that a lane may use",
        "Most jobs that a lane runs at once, where the lane does not say --jobs itself.", false},
       [](const toml::node& node, Config& config) {
         return SetInteger(node, 1, 4096, "jobs",
                           [&](int64_t value) { config.max_jobs = static_cast<int>(value); });
       }},
      {{"sampling.fast_min", "milliseconds, 5 to 1000", "10",
        "Shortest period of the fast sampling (memory that is left, growing tool processes).",
        false},
       Milliseconds(&Config::fast_min, 5, 1000)},
      {{"sampling.fast_max", "milliseconds, 5 to 1000", "250",
        "Longest period of the fast sampling, while anything is built.", false},
       Milliseconds(&Config::fast_max, 5, 1000)},
      {{"sampling.slow", "milliseconds, 100 to 60000", "1000",
        "Period of all other sampling (process trees, tokens, limits).", false},
       Milliseconds(&Config::slow, 100, 60'000)},
      {{"tools.extra", "list of program names", "[]",
        "Programs that take much memory, besides the compilers and linkers that Headroom knows.",
        false},
       SetTools},
      {{"trace.enabled", "boolean", "true",
        "Record every event and action, so that an incident can be explained and replayed.", true},
       [](const toml::node& node, Config& config) -> std::optional<std::string> {
         const auto value = node.value_exact<bool>();
         if (!value) return Wanted(node, "true or false");
         config.trace_enabled = *value;
         return std::nullopt;
       }},
      {{"trace.dir", "absolute path",
        "/var/lib/headroom/trace; a user's: ~/.local/state/headroom/trace",
        "Folder of the trace's segments.", true},
       AbsolutePath(&Config::trace_dir)},
      {{"trace.max_size", "SIZE, 1M to 64G", "64M",
        "All segments of the trace together; the oldest goes first.", true},
       SetTraceMax},
      {{"history.enabled", "boolean", "true",
        "Keep what builds have taught of their compilers' memory, and plan the next ones with it.",
        true},
       [](const toml::node& node, Config& config) -> std::optional<std::string> {
         const auto value = node.value_exact<bool>();
         if (!value) return Wanted(node, "true or false");
         config.history_enabled = *value;
         return std::nullopt;
       }},
      {{"log.level", "\"trace\", \"debug\", \"info\", \"warn\", \"error\" or \"off\"", "info",
        "What the daemon writes to standard error (the journal, under systemd).", false},
       SetLogLevel},
      {{"daemon.runtime_dir", "absolute path",
        "/run/headroom; a user's: $XDG_RUNTIME_DIR/headroom, else /tmp/headroom-UID",
        "Folder of the lanes, the control socket and the lock; HEADROOM_RUNTIME_DIR overrides it.",
        true},
       AbsolutePath(&Config::runtime_dir)},
  };
  return kKeys;
}

// Levenshtein's distance: the names are short.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string UnknownKey(const std::string& name) {
  const Key* nearest = nullptr;
  // Two letters wrong is a slip, more is another word.
  size_t least = 3;
  for (const Key& key : Keys()) {
    const std::string_view full = key.about.name;
    // Also where only the section is missing or wrong.
    const std::string_view last = full.substr(full.find('.') + 1);
    const size_t dot = name.find('.');
    const std::string_view given_last =
        dot == std::string::npos ? std::string_view(name) : std::string_view(name).substr(dot + 1);
    const size_t distance = std::min(Distance(name, full), Distance(given_last, last) + 1);
    if (distance >= least) continue;
    least = distance;
    nearest = &key;
  }
  if (nearest != nullptr)
    return absl::StrCat("no such key; did you mean ", std::string(nearest->about.name), "?");
  return "no such key; headroom.toml(5) lists them all";
}

class Parser {
 public:
  explicit Parser(const std::string& file) { result_.file = file; }

  ParsedConfig Parse(std::string_view text) {
    ParsedConfig parsed;
    toml::table root;
    try {
      root = toml::parse(text, result_.file);
    } catch (const toml::parse_error& error) {
      Add(error.source().begin.line, "",
          std::string(error.description()) + "; headroom.toml is TOML 1.0, see toml.io");
      parsed.errors = std::move(errors_);
      return parsed;
    }
    Config config;
    for (const auto& [section_name, section] : root) {
      const std::string name(section_name.str());
      const toml::table* table = section.as_table();
      if (table == nullptr || !IsSection(name)) {
        Add(section_name.source().begin.line, name,
            table == nullptr ? absl::StrCat(UnknownKey(name), " (value: ", Written(section), ")")
                             : UnknownSection(name));
        continue;
      }
      for (const auto& [key_name, value] : *table)
        Take(name + "." + std::string(key_name.str()), key_name.source().begin.line, value, config);
    }
    if (errors_.empty() && config.fast_min > config.fast_max) {
      Add(LineOf(root, "fast_min"), "sampling.fast_min",
          absl::StrCat(config.fast_min.count(), " is above sampling.fast_max, ",
                       config.fast_max.count(), ": make it at most that"));
    }
    std::stable_sort(errors_.begin(), errors_.end(),
                     [](const ConfigError& a, const ConfigError& b) { return a.line < b.line; });
    if (errors_.empty()) parsed.config = std::move(config);
    parsed.errors = std::move(errors_);
    return parsed;
  }

 private:
  static bool IsSection(const std::string& name) {
    return std::any_of(Keys().begin(), Keys().end(), [&](const Key& key) {
      return key.about.name.substr(0, key.about.name.find('.')) == name;
    });
  }

  static std::string UnknownSection(const std::string& name) {
    for (const Key& key : Keys()) {
      const std::string section(key.about.name.substr(0, key.about.name.find('.')));
      if (Distance(name, section) <= 2)
        return absl::StrCat("no such section; did you mean [", section, "]?");
    }
    return "no such section; headroom.toml(5) lists them all";
  }

  static uint32_t LineOf(const toml::table& root, const char* key) {
    const toml::node* node = root["sampling"][key].node();
    if (node == nullptr) node = root["sampling"].node();
    return node == nullptr ? 0 : node->source().begin.line;
  }

  void Take(const std::string& name, uint32_t line, const toml::node& value, Config& config) {
    const auto& keys = Keys();
    const auto key = std::find_if(keys.begin(), keys.end(),
                                  [&](const Key& one) { return one.about.name == name; });
    if (key == keys.end())
      return Add(line, name, absl::StrCat(UnknownKey(name), " (value: ", Written(value), ")"));
    if (const auto wrong = key->set(value, config)) Add(line, name, *wrong);
  }

  void Add(uint32_t line, std::string key, std::string text) {
    errors_.push_back({result_.file, line, std::move(key), std::move(text)});
  }

  struct {
    std::string file;
  } result_;
  std::vector<ConfigError> errors_;
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// XDG: paths that are not absolute are to be ignored.
bool IsAbsolute(const std::string& path) {
  return !path.empty() && path.front() == '/';
}

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey> kAbout = [] {
    std::vector<ConfigKey> about;
    for (const Key& key : Keys()) about.push_back(key.about);
    return about;
  }();
  return kAbout;
}

std::string ConfigError::ToString() const {
  std::string place = file;
  if (line > 0) absl::StrAppend(&place, ":", line);
  return absl::StrCat(place, ": ", key, key.empty() ? "" : ": ", text);
}

ParsedConfig ParseConfig(std::string_view text, const std::string& file) {
  return Parser(file).Parse(text);
}

absl::StatusOr<Config> LoadConfig(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    const int error = errno;
    const std::string text = absl::StrCat("cannot read the configuration ", path, ": ",
                                          std::system_category().message(error));
    return error == ENOENT ? absl::NotFoundError(text) : absl::FailedPreconditionError(text);
  }
  std::string text;
  std::array<char, 4096> piece;
  while (in.read(piece.data(), piece.size()) || in.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
    if (text.size() > kMaxFileBytes)
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": larger than ", kMaxFileBytes, " bytes: this is no configuration of Headroom"));
  }
  if (in.bad())
    return absl::FailedPreconditionError(
        absl::StrCat("cannot read the configuration ", path, ": is it a folder?"));
  ParsedConfig parsed = ParseConfig(text, path);
  if (parsed.errors.empty()) return std::move(parsed.config);
  std::string errors;
  for (const ConfigError& error : parsed.errors)
    absl::StrAppend(&errors, errors.empty() ? "" : "\n", error.ToString());
  return absl::InvalidArgumentError(errors);
}

std::vector<std::string> NeedRestart(const Config& before, const Config& after) {
  std::vector<std::string> names;
  if (before.trace_enabled != after.trace_enabled) names.emplace_back("trace.enabled");
  if (before.trace_dir != after.trace_dir) names.emplace_back("trace.dir");
  if (before.trace_max != after.trace_max) names.emplace_back("trace.max_size");
  if (before.history_enabled != after.history_enabled) names.emplace_back("history.enabled");
  if (before.runtime_dir != after.runtime_dir) names.emplace_back("daemon.runtime_dir");
  return names;
}

Surroundings Surroundings::FromEnvironment() {
  return {.uid = geteuid(),
          .home = Environment("HOME"),
          .runtime_dir = Environment("HEADROOM_RUNTIME_DIR"),
          .xdg_runtime = Environment("XDG_RUNTIME_DIR"),
          .xdg_config = Environment("XDG_CONFIG_HOME"),
          .xdg_state = Environment("XDG_STATE_HOME"),
          .state = Environment("STATE_DIRECTORY")};
}

std::string DefaultConfigPath(const Surroundings& around) {
  if (around.uid == 0) return "/etc/headroom/headroom.toml";
  if (IsAbsolute(around.xdg_config)) return around.xdg_config + "/headroom/headroom.toml";
  return around.home + "/.config/headroom/headroom.toml";
}

std::string RuntimeDir(const Config& config, const Surroundings& around) {
  if (!around.runtime_dir.empty()) return around.runtime_dir;
  if (!config.runtime_dir.empty()) return config.runtime_dir;
  if (around.uid == 0) return "/run/headroom";
  if (IsAbsolute(around.xdg_runtime)) return around.xdg_runtime + "/headroom";
  return absl::StrCat("/tmp/headroom-", around.uid);
}

std::string TraceDir(const Config& config, const Surroundings& around) {
  if (!config.trace_dir.empty()) return config.trace_dir;
  // systemd separates several folders with colons; ours has one.
  if (IsAbsolute(around.state)) return around.state.substr(0, around.state.find(':')) + "/trace";
  // Another runtime folder than the usual one is another daemon (a test's, a container's): its
  // trace stays with it.
  if (!around.runtime_dir.empty()) return around.runtime_dir + "/trace";
  if (around.uid == 0) return "/var/lib/headroom/trace";
  if (IsAbsolute(around.xdg_state)) return around.xdg_state + "/headroom/trace";
  if (IsAbsolute(around.home)) return around.home + "/.local/state/headroom/trace";
  return RuntimeDir(config, around) + "/trace";
}

}  // namespace headroom::daemon
