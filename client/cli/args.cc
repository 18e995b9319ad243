#include "client/cli/args.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

namespace headroom::cli {
namespace {

using Words = std::vector<std::string>;

constexpr char kHelp[] =
    R"(headroom - builds that never run out of memory, as fast as the machine allows

usage: headroom COMMAND [OPTION...]      (headroom COMMAND --help tells more)

  run [OPTION...] [--] CMD...   run a build in a lane of its own; needs no set-up
  env                           print the environment for builds of this shell
  status                        memory, tokens, lanes and jobs, now
  top                           the same, over and over
  explain                       the daemon's last decisions, each with its reason
  doctor                        what here keeps builds from being fast and safe, and the remedy
  history                       what builds have taught: list, show, export, import, forget
  plan                          what a build would do on another machine
  set                           change a running lane or the daemon
  reload                        let the daemon read its configuration again

  --help, --version

Most of the time all that is needed is:  headroom run -- make      (ninja, cmake --build, pip, ...)

environment
  HEADROOM_RUNTIME_DIR   where the daemon's socket is; default: /run/headroom, then
                         $XDG_RUNTIME_DIR/headroom, then /tmp/headroom-UID
  HEADROOM_HISTORY       the file of what builds have taught, or "off"

exit codes
  0 done   1 no daemon answers, or it could not do it   2 wrong usage
  doctor: 0 nothing needs doing, 1 something does
  run: CMD's own (a signal of CMD's ends headroom too); 125 headroom itself failed or was used
  wrongly, 126 CMD can't be executed, 127 CMD not found
)";

// What is wrong with the words, without "headroom: ".
struct Wrong {
  std::string text;
};

uint32_t ParseNumber(const std::string& option, const std::string& text, uint32_t least,
                     uint32_t most) {
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || at != end || number < least || number > most)
    throw Wrong{absl::StrCat(option, ": '", text, "' is not a number from ", least, " to ", most)};
  return number;
}

policy::Size ParseSizeOption(const std::string& option, const std::string& text) {
  const auto size = policy::ParseSize(text);
  if (!size)
    throw Wrong{
        absl::StrCat(option, ": '", text, "' is not a size; give ",
                     absl::string_view(policy::kSizeGrammar.data(), policy::kSizeGrammar.size()))};
  return *size;
}

// As config.h has it for jobs.max.
constexpr uint32_t kMostJobs = 4096;

// CLI11 writes a usage line of its own, which can't tell of CMD.
class Help : public CLI::Formatter {
 public:
  explicit Help(std::string usage) : usage_(std::move(usage)) { column_width(22); }
  // Usage first; CLI11 begins with the description.
  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode mode) const override {
    return absl::StrCat("usage: ", usage_, "\n\n", app->get_description(), "\n",
                        make_groups(app, mode), app->get_footer().empty() ? "" : "\n",
                        app->get_footer(), app->get_footer().empty() ? "" : "\n");
  }

 private:
  std::string usage_;
};

std::unique_ptr<CLI::App> MakeApp(const std::string& name, const std::string& usage,
                                  const char* description) {
  auto app = std::make_unique<CLI::App>(description);
  app->set_help_flag("--help,-h", "print this");
  app->allow_windows_style_options(false);
  app->formatter(std::make_shared<Help>(absl::StrCat("headroom ", name, " ", usage)));
  return app;
}

// Throws Finish where help is wanted, Wrong, or what CLI11 finds wrong.
void Parse(CLI::App& app, Words words) {
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    throw Finish{app.help(), kSuccess};
  } catch (const CLI::ExtrasError&) {
    const std::string extra = app.remaining().empty() ? "" : app.remaining().front();
    throw Wrong{absl::StrCat(extra.substr(0, 1) == "-" ? "unknown option '" : "did not expect '",
                             extra, "'")};
  }
}

// Where CMD begins among the words of `run`: behind "--", else at the first word that is neither an
// option nor an option's value.
size_t FindCommand(const CLI::App& app, const Words& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return i;
    if (word.size() < 2 || word[0] != '-') return i;
    const CLI::Option* option = app.get_option_no_throw(word);
    if (option != nullptr && option->get_items_expected_max() > 0) ++i;
  }
  return words.size();
}

Arguments ParseRun(const Words& words) {
  const auto app = MakeApp(
      "run", "[OPTION...] [--] CMD [ARGUMENT...]",
      "Runs CMD, a build, in a lane of its own: its jobs follow the memory that is there, and its\n"
      "compilers wait until theirs is. A daemon that runs is used; else a private one is started.");
  RunOptions options;
  std::string jobs, reserve, spoiled;
  bool no_gate = false;
  app->add_option("--jobs", jobs, "most jobs at once; default: the cores; may be more than them")
      ->option_text("N");
  app->add_option("--reserve", reserve,
                  "memory that is never planned with: a number with K, M, G (1024) or %")
      ->option_text("SIZE");
  app->add_flag("--no-gate", no_gate, "hold no compilers at their start: only tokens");
  bool no_history = false;
  app->add_flag("--no-history", no_history,
                "with a private daemon: plan as if for the first time, and keep nothing");
  app->add_option("--trace", options.trace_file,
                  "save the daemon's trace to FILE (0600) at the end")
      ->option_text("FILE");
  app->add_option("--curves", options.curves_file,
                  "save the compilers' memory curves to FILE (0600) at the end, for headroom plan")
      ->option_text("FILE");
  app->add_flag("--test-no-prediction", options.without_prediction)->group("");
  app->add_option("--test-spoiled-peak", spoiled)->group("");
  app->footer(
      "CMD keeps its terminal, its signals and its exit code. Headroom's own lines go to stderr "
      "and\n"
      "begin with 'headroom: '. Exit codes: CMD's; 125, 126, 127 as env(1) has them.");

  const size_t at = FindCommand(*app, words);
  Parse(*app, Words(words.begin(), words.begin() + static_cast<ptrdiff_t>(at)));
  const size_t begin = at < words.size() && words[at] == "--" ? at + 1 : at;
  options.command.assign(words.begin() + static_cast<ptrdiff_t>(begin), words.end());
  if (options.command.empty())
    throw Wrong{"what is to be run? headroom run [OPTION...] [--] CMD..."};
  options.gate = !no_gate;
  options.history = !no_history;
  if (app->count("--jobs") > 0) options.jobs = ParseNumber("--jobs", jobs, 1, kMostJobs);
  if (app->count("--reserve") > 0) options.reserve = ParseSizeOption("--reserve", reserve);
  if (app->count("--trace") > 0 && options.trace_file.empty())
    throw Wrong{"--trace: '' is no file name"};
  if (app->count("--curves") > 0 && options.curves_file.empty())
    throw Wrong{"--curves: '' is no file name"};
  if (app->count("--test-spoiled-peak") > 0) {
    const auto size = ParseSizeOption("--test-spoiled-peak", spoiled);
    const auto* bytes = std::get_if<policy::Bytes>(&size);
    if (bytes == nullptr) throw Wrong{"--test-spoiled-peak: a percentage of what?"};
    options.spoiled_peak = static_cast<uint64_t>(bytes->count);
  }
  return options;
}

Arguments ParseEnv(const Words& words) {
  const auto app = MakeApp(
      "env", "[OPTION...]",
      "Prints the environment that makes builds of this user share a lane of the running daemon:\n"
      "  eval \"$(headroom env)\"                        in sh, bash, zsh\n"
      "  headroom env --format fish | source           in fish\n"
      "  headroom env --format systemd > FILE          for EnvironmentFile=, environment.d\n"
      "  eval \"docker run $(headroom env --format docker) IMAGE CMD\"     also podman");
  EnvOptions options;
  std::string format = "sh";
  bool no_gate = false;
  app->add_option("--format", format, "sh (default), fish, systemd or docker")
      ->option_text("FORMAT");
  app->add_flag("--unset", options.unset, "print what takes it back; asks no daemon");
  app->add_flag("--no-gate", no_gate, "hold no compilers at their start: only tokens");
  Parse(*app, words);
  options.gate = !no_gate;
  const std::map<std::string, ShellFormat> formats = {{"sh", ShellFormat::kSh},
                                                      {"fish", ShellFormat::kFish},
                                                      {"systemd", ShellFormat::kSystemd},
                                                      {"docker", ShellFormat::kDocker}};
  const auto found = formats.find(format);
  if (found == formats.end())
    throw Wrong{absl::StrCat("--format: '", format, "' is not one of sh, fish, systemd, docker")};
  options.format = found->second;
  return options;
}

Arguments ParseStatus(const Words& words, bool top) {
  const auto app =
      top ? MakeApp("top", "[OPTION...]", "Shows memory, tokens, lanes and jobs until ^C.")
          : MakeApp("status", "[OPTION...]", "Shows memory, tokens, lanes and jobs.");
  StatusOptions options;
  options.watch = options.full_screen = top;
  std::string interval;
  if (!top) {
    app->add_flag("--json", options.json,
                  "as JSON, sizes in bytes; with --watch one document a line");
    app->add_flag("--watch", options.watch, "again and again, until ^C");
  }
  app->add_option("--interval", interval, "milliseconds between two looks; default 1000")
      ->option_text("MS");
  Parse(*app, words);
  if (app->count("--interval") > 0)
    options.interval_ms = ParseNumber("--interval", interval, 100, 3'600'000);
  return options;
}

Arguments ParseExplain(const Words& words) {
  const auto app =
      MakeApp("explain", "[OPTION...]",
              "Tells the daemon's last decisions, oldest first, each with what led to it.");
  ExplainOptions options;
  std::string last;
  app->add_option("--last", last, "how many; default 20")->option_text("N");
  app->add_option("--lane", options.lane, "of this lane only: its number or name, see status")
      ->option_text("LANE");
  app->add_flag("--json", options.json, "as JSON, one decision a line");
  Parse(*app, words);
  if (app->count("--last") > 0) options.last = ParseNumber("--last", last, 1, 100'000);
  return options;
}

Arguments ParseSet(const Words& words) {
  const auto app = MakeApp("set", "[OPTION...]",
                           "Changes a running lane, or the whole daemon (its owner only).");
  SetOptions options;
  std::string jobs, reserve;
  app->add_option("--lane", options.lane,
                  "the lane: its number or name, see status; default: the daemon")
      ->option_text("LANE");
  app->add_option("--jobs", jobs, "most jobs at once; 0: back to the default")->option_text("N");
  app->add_option("--reserve", reserve,
                  "memory that is never planned with: a number with K, M, G (1024) or %")
      ->option_text("SIZE");
  Parse(*app, words);
  if (app->count("--jobs") > 0) options.jobs = ParseNumber("--jobs", jobs, 0, kMostJobs);
  if (app->count("--reserve") > 0) options.reserve = ParseSizeOption("--reserve", reserve);
  if (!options.jobs && !options.reserve) throw Wrong{"what is to be set? give --jobs or --reserve"};
  return options;
}

Arguments ParseReload(const Words& words) {
  const auto app = MakeApp("reload", "", "Lets the daemon read its configuration file again.");
  Parse(*app, words);
  return ReloadOptions{};
}

Arguments ParseDoctor(const Words& words) {
  const auto app = MakeApp(
      "doctor", "[OPTION...] [FOLDER]",
      "Looks at this machine, this environment and a build folder (default: where it is called),\n"
      "and says what keeps builds from being fast and safe, with the remedy. Changes nothing.\n"
      "Exit code 0: nothing needs doing; 1: something does.");
  DoctorOptions options;
  app->add_flag("--json", options.json, "as JSON");
  app->add_option("FOLDER", options.folder, "the build folder, or that of a setup.py");
  Parse(*app, words);
  return options;
}

Arguments ParseHistory(const Words& words) {
  using Action = HistoryOptions::Action;
  const auto app = MakeApp(
      "history", "list|show NAME|export [FILE]|import FILE|forget NAME|forget --all",
      "What builds have taught of their compilers' memory and time, by class: a tool, a tool\n"
      "on a family of sources, one source, a driver's jobs. Later builds are planned with it.");
  HistoryOptions options;
  std::string action;
  app->add_option("ACTION", action, "list, show, export, import or forget");
  app->add_option("NAME", options.name,
                  "show, forget: a class, as list names it; export, import: a file, - for the "
                  "standard streams");
  app->add_flag("--all", options.all, "forget: everything");
  app->add_flag("--json", options.json, "list, show: as JSON, sizes in bytes");
  Parse(*app, words);
  const std::map<std::string, Action> actions = {{"list", Action::kList},
                                                 {"show", Action::kShow},
                                                 {"export", Action::kExport},
                                                 {"import", Action::kImport},
                                                 {"forget", Action::kForget}};
  const auto found = actions.find(action);
  if (found == actions.end())
    throw Wrong{absl::StrCat("'", action, "' is not one of list, show, export, import, forget")};
  options.action = found->second;
  const bool named = app->count("NAME") > 0;
  if (options.action == Action::kExport && !named) options.name = "-";
  if (options.action == Action::kList && named)
    throw Wrong{absl::StrCat("did not expect '", options.name, "'; show tells of one class")};
  if (options.action == Action::kShow && !named) throw Wrong{"show: which class? list names all"};
  if (options.action == Action::kImport && !named) throw Wrong{"import: which file?"};
  if (options.action == Action::kForget && named == options.all)
    throw Wrong{"forget: give the name of a class, or --all"};
  if (options.action != Action::kForget && options.all) throw Wrong{"--all is for forget"};
  if (options.action != Action::kList && options.action != Action::kShow && options.json)
    throw Wrong{"--json is for list and show; export is JSON always"};
  return options;
}

Arguments ParsePlan(const Words& words) {
  const auto app = MakeApp(
      "plan", "[OPTION...] CURVES",
      "Says what a build would do on a machine: under headroom run, and with fixed -j. CURVES is "
      "a\n"
      "file that headroom run --curves wrote. Simulated: it takes some seconds, and no daemon.");
  PlanOptions options;
  std::string cores, mem, archs, threads;
  app->add_option("--cores", cores, "of the machine; default: this one's")->option_text("N");
  app->add_option("--mem", mem, "its memory in GB (10^9 bytes); default: this one's")
      ->option_text("GB");
  app->add_option("--archs", archs, "archs that nvcc builds for; default: those in CURVES")
      ->option_text("N");
  app->add_option("--threads", threads, "nvcc --threads; default: as in CURVES")->option_text("N");
  app->add_flag("--json", options.json, "as JSON, sizes in bytes");
  app->add_option("CURVES", options.curves, "the file");
  Parse(*app, words);
  if (options.curves.empty()) throw Wrong{"which curves? headroom plan [OPTION...] CURVES"};
  const auto number = [&app](const char* name, const std::string& text, uint32_t most) {
    return app->count(name) > 0 ? static_cast<int>(ParseNumber(name, text, 1, most)) : 0;
  };
  options.cores = number("--cores", cores, 65'536);
  options.archs = number("--archs", archs, 64);
  options.threads = number("--threads", threads, 64);
  if (app->count("--mem") > 0 &&
      (!absl::SimpleAtod(mem, &options.mem_gb) || !(options.mem_gb > 0 && options.mem_gb <= 1e6)))
    throw Wrong{absl::StrCat("--mem: '", mem, "' is not a number of GB, such as 425 or 23.5")};
  return options;
}

}  // namespace

Arguments ParseArguments(const Words& words) {
  if (words.empty())
    return Finish{absl::StrCat("headroom: a command is missing\n\n", kHelp), kUsageError};
  const std::string& name = words.front();
  if (name == "--help" || name == "-h" || name == "help") return Finish{kHelp, kSuccess};
  if (name == "--version") return Finish{"headroom " HEADROOM_VERSION "\n", kSuccess};

  static const std::map<std::string, std::function<Arguments(const Words&)>> kCommands = {
      {"run", ParseRun},
      {"env", ParseEnv},
      {"status", [](const Words& rest) { return ParseStatus(rest, false); }},
      {"top", [](const Words& rest) { return ParseStatus(rest, true); }},
      {"explain", ParseExplain},
      {"set", ParseSet},
      {"reload", ParseReload},
      {"doctor", ParseDoctor},
      {"history", ParseHistory},
      {"plan", ParsePlan},
  };
  const auto command = kCommands.find(name);
  if (command == kCommands.end())
    return Finish{absl::StrCat("headroom: '", name,
                               "' is not a command; headroom --help lists them. To run a build: "
                               "headroom run -- ",
                               name, "\n"),
                  kUsageError};
  const int usage_code = name == "run" ? kExitRunFailed : kUsageError;
  const auto wrong = [&](const std::string& text) {
    return Finish{absl::StrCat("headroom ", name, ": ", text, "; see headroom ", name, " --help\n"),
                  usage_code};
  };
  try {
    return command->second(Words(words.begin() + 1, words.end()));
  } catch (const Finish& help) {
    return help;
  } catch (const CLI::Error& error) {
    return wrong(error.what());
  } catch (const Wrong& fault) {
    return wrong(fault.text);
  }
}

}  // namespace headroom::cli
