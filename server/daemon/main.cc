// headroomd: the daemon's command line. See docs/hacking.md for what it is made of.
//
// Exit codes: 0 ended in order, or the configuration is good; 1 it can't serve (the message says
// what is in the way); 2 wrong command line or configuration; 3 another daemon serves here already.
#include <fcntl.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/daemon/config.h"
#include "server/daemon/daemon.h"
#include "server/history/place.h"

namespace headroom::daemon {
namespace {

constexpr int kCantServe = 1;
constexpr int kBadUsage = 2;
constexpr int kAlreadyRunning = 3;

struct Arguments {
  std::string config;
  std::string runtime_dir;
  std::string state_dir;
  bool check_config = false;
  bool private_daemon = false;
  bool version = false;
  bool without_prediction = false;
  int memory_scale = 1;
  int cores = 0;
};

void Complain(const std::string& text) {
  fprintf(stderr, "headroomd: %s\n", text.c_str());
}

// Below systemd every line gets its time and level from the journal.
void SetUpLog(const std::string& level) {
  auto logger = spdlog::stderr_logger_st("headroomd");
  if (getenv("JOURNAL_STREAM") != nullptr) {
    logger->set_pattern("%v");
  } else {
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e headroomd[%P] %l: %v");
  }
  spdlog::set_default_logger(std::move(logger));
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Jobserver daemon that follows memory. Serves the builds of one user, or of all users as "
      "root; see headroom(1).",
      "headroomd");
  app.add_option("--config", arguments.config, "Configuration file")->type_name("FILE");
  app.add_flag("--check-config", arguments.check_config,
               "Say whether the configuration file is good, and end");
  app.add_option("--runtime-dir", arguments.runtime_dir, "Where lanes, lock and socket are")
      ->type_name("DIR");
  app.add_option("--state-dir", arguments.state_dir, "Where traces are")->type_name("DIR");
  app.add_flag("--private", arguments.private_daemon,
               "End with the last lane (as `headroom run` starts it)");
  app.add_flag("--version", arguments.version, "Say the version, and end");
  // For tests of tokens: how many there are then depends on nothing else that the machine does.
  app.add_flag("--test-no-prediction", arguments.without_prediction)->group("");
  // For builds on large machines acted out by small stand-ins: see lens.h. At 1024 one page is 4
  // MB.
  app.add_option("--test-memory-scale", arguments.memory_scale)
      ->check(CLI::Range(2, 1024))
      ->group("");
  app.add_option("--test-cores", arguments.cores)->check(CLI::Range(1, 4096))->group("");
  bool foreground = true;
  app.add_flag("--foreground", foreground,
               "Stay in the foreground (the default, and all there is)");
  app.footer(
      "Exit codes: 0 ended in order; 1 can't serve; 2 wrong command line or configuration; 3 "
      "another daemon serves already.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    Complain(absl::StrCat(error.what(), "; see headroomd --help"));
    return kBadUsage;
  }
  if (arguments.version) {
    printf("headroomd %s\n", HEADROOM_VERSION);
    return 0;
  }
  const Surroundings around = Surroundings::FromEnvironment();
  const bool named = !arguments.config.empty();
  const std::string config_path = named ? arguments.config : DefaultConfigPath(around);
  absl::StatusOr<Config> config = LoadConfig(config_path);
  if (absl::IsNotFound(config.status()) && !named) config = Config{};
  if (!config.ok()) {
    Complain(std::string(config.status().message()));
    return kBadUsage;
  }
  if (arguments.check_config) {
    printf("%s is good\n", config_path.c_str());
    return 0;
  }
  SetUpLog(config->log_level);

  DaemonOptions options;
  options.config = *config;
  options.config_path = config_path;
  options.private_daemon = arguments.private_daemon;
  options.without_prediction = arguments.without_prediction;
  options.memory_scale = arguments.memory_scale;
  options.cores = arguments.cores;
  options.runtime_dir =
      arguments.runtime_dir.empty() ? RuntimeDir(*config, around) : arguments.runtime_dir;
  if (!arguments.state_dir.empty()) {
    options.trace_dir = arguments.state_dir + "/trace";
  } else if (!arguments.runtime_dir.empty() && config->trace_dir.empty()) {
    // A daemon with a runtime folder of its own (a private or a test's one) keeps its traces there.
    options.trace_dir = arguments.runtime_dir + "/trace";
  } else {
    options.trace_dir = TraceDir(*config, around);
  }
  history::Surroundings places = history::Surroundings::FromEnvironment();
  if (!arguments.state_dir.empty()) {
    places.state = std::filesystem::absolute(arguments.state_dir).native();
  } else if (!arguments.runtime_dir.empty() && !arguments.private_daemon) {
    // As with traces. A private one, though, is started anew for each build: it would never know
    // anything.
    places.runtime_dir = std::filesystem::absolute(arguments.runtime_dir).native();
  }
  if (config->history_enabled) {
    absl::StatusOr<std::string> history = history::HistoryPath(places);
    if (history.ok()) {
      options.history_path = *std::move(history);
    } else {
      spdlog::warn("{}; builds go on, without what earlier ones have taught",
                   std::string(history.status().message()));
    }
  }
  umask(077);
  // A write to a peer that is gone is an error to be handled, never the daemon's end.
  signal(SIGPIPE, SIG_IGN);
  // ^C in the terminal of `headroom run` is for the build. Fails for a group's leader, which has a
  // terminal's attention on purpose.
  if (arguments.private_daemon) setsid();

  boost::asio::io_context io(1);
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(io, options);
  if (!daemon.ok()) {
    Complain(std::string(daemon.status().message()));
    return absl::IsAlreadyExists(daemon.status()) ? kAlreadyRunning : kCantServe;
  }
  (*daemon)->Run();
  daemon->reset();
  return 0;
}

}  // namespace
}  // namespace headroom::daemon

int main(int argc, char** argv) {
  return headroom::daemon::Main(argc, argv);
}
