// The daemon's configuration file, headroom.toml(5): TOML 1.0.
//
// Everything has a default; an empty or missing file is a valid configuration. What is wrong in a
// file is never guessed at: each fault is reported with file, line, key, value and remedy, and the
// daemon does not start with it (a reload keeps what it had).
//
// Parsing is pure; LoadConfig reads one file. kConfigKeys is the one list of keys: the parser,
// docs/tuning.md, the man page and the example are held against it by tests.
#ifndef HEADROOM_SERVER_DAEMON_CONFIG_H_
#define HEADROOM_SERVER_DAEMON_CONFIG_H_

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/policy/event.h"
#include "server/policy/types.h"

namespace headroom::daemon {

struct Config {
  // memory.reserve: SIZE. How much of each memory domain is never planned with. Default:
  // max(3 %, min(7 %, 512 MiB)) of the domain.
  policy::Reserve reserve;

  // jobs.max: count, 1 to 4096. Most jobs that a lane runs at once, for lanes that do not say
  // --jobs themselves. Default: the cores that the lane may use.
  std::optional<int> max_jobs;

  // sampling.fast_min, sampling.fast_max: milliseconds, 5 to 1000. Bounds of the fast tier (memory
  // that is left, growing tool processes); in between, headroom over the fill rate decides.
  std::chrono::milliseconds fast_min{10};
  std::chrono::milliseconds fast_max{250};
  // sampling.slow: milliseconds, 100 to 60000. Everything else.
  std::chrono::milliseconds slow{1000};

  // tools.extra: list of program names. Counted as memory-hungry tool processes besides the ones
  // that Headroom knows.
  std::vector<std::string> extra_tools;

  // trace.enabled: boolean. Record events and actions.
  bool trace_enabled = true;
  // trace.dir: absolute path. Where to. Empty (default): see TraceDir.
  std::string trace_dir;
  // trace.max_size: SIZE in bytes, 1M to 64G. All segments together.
  policy::Bytes trace_max = policy::MiB(64);

  // history.enabled: boolean. Keep what builds have taught, and plan the next ones with it.
  bool history_enabled = true;

  // log.level: "trace", "debug", "info", "warn", "error" or "off".
  std::string log_level = "info";

  // daemon.runtime_dir: absolute path. The lanes, the socket and the lock. Empty (default): see
  // RuntimeDir. HEADROOM_RUNTIME_DIR overrides it.
  std::string runtime_dir;

  friend bool operator==(const Config&, const Config&) = default;
};

// A key of the file, for documents and their tests.
struct ConfigKey {
  std::string_view name;           // "memory.reserve"
  std::string_view type;           // "SIZE", "count", "milliseconds", "boolean", "path", ...
  std::string_view default_value;  // in words or as written
  std::string_view meaning;        // one sentence
  bool needs_restart = false;      // a reload does not change it
};
const std::vector<ConfigKey>& ConfigKeys();

struct ConfigError {
  std::string file;
  uint32_t line = 0;  // 1 is the first; 0: the file as a whole
  std::string key;    // empty: the text is no TOML
  std::string text;   // what is wrong, with the value, and the remedy

  // "FILE:LINE: KEY: TEXT"
  std::string ToString() const;
};

struct ParsedConfig {
  Config config;                    // defaults where there are errors
  std::vector<ConfigError> errors;  // in the order of the file
};

// `file` only names the text in errors.
ParsedConfig ParseConfig(std::string_view text, const std::string& file);

// NotFound: there is no such file. InvalidArgument: the text has every error, one a line.
absl::StatusOr<Config> LoadConfig(const std::string& path);

// Names of keys that differ between the two and take effect only after a restart.
std::vector<std::string> NeedRestart(const Config& before, const Config& after);

// --- Places
// ---------------------------------------------------------------------------------------

// What the places depend on, from the environment of the daemon; injected so that tests need none.
struct Surroundings {
  uid_t uid = 0;
  std::string home;         // HOME
  std::string runtime_dir;  // HEADROOM_RUNTIME_DIR
  std::string xdg_runtime;  // XDG_RUNTIME_DIR
  std::string xdg_config;   // XDG_CONFIG_HOME
  std::string xdg_state;    // XDG_STATE_HOME
  std::string state;        // STATE_DIRECTORY, set by systemd's StateDirectory=
  static Surroundings FromEnvironment();
};

// root: /etc/headroom/headroom.toml; a user: $XDG_CONFIG_HOME/headroom/headroom.toml, else
// ~/.config/headroom/headroom.toml.
std::string DefaultConfigPath(const Surroundings& around);

// HEADROOM_RUNTIME_DIR; else the configured one; else root: /run/headroom; a user:
// $XDG_RUNTIME_DIR/headroom, else /tmp/headroom-UID.
std::string RuntimeDir(const Config& config, const Surroundings& around);

// The configured one; else below STATE_DIRECTORY; else root: /var/lib/headroom/trace; a user:
// $XDG_STATE_HOME/headroom/trace, else ~/.local/state/headroom/trace; without a home below the
// runtime folder.
std::string TraceDir(const Config& config, const Surroundings& around);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_CONFIG_H_
