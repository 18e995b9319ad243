#include "client/cli/commands.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/signal_set.hpp>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <system_error>

#include "client/cli/connection.h"
#include "client/cli/doctor.h"
#include "client/cli/doctor_facts.h"
#include "client/cli/environment.h"
#include "client/cli/explain.h"
#include "client/cli/make_version.h"
#include "client/cli/parallel.h"
#include "client/cli/paths.h"
#include "client/cli/say.h"
#include "client/cli/status.h"
#include "client/cli/telling.h"
#include "client/cli/tool_version.h"

namespace headroom::cli {
namespace {

namespace asio = boost::asio;

int Failed(const absl::Status& status) {
  Say(status);
  return kFailure;
}

// Columns of the terminal on stdout; 0: it is none.
size_t TerminalWidth() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string Render(const v1::Status& status, const StatusOptions& options) {
  if (options.json) return StatusJson(status, options.watch ? -1 : 2) + "\n";
  return StatusTable(status, TerminalWidth());
}

// A lane's number: given as such, or looked up by its name.
absl::StatusOr<uint32_t> FindLane(const std::string& lane) {
  if (lane.empty()) return 0u;
  uint32_t number = 0;
  const char* const end = lane.data() + lane.size();
  const auto [at, error] = std::from_chars(lane.data(), end, number);
  if (error == std::errc() && at == end && number != 0) return number;
  v1::Request request;
  request.mutable_status();
  const auto response = Ask(request);
  if (!response.ok()) return response.status();
  std::string names;
  for (const v1::Lane& candidate : response->status().lanes()) {
    if (candidate.name() == lane) return candidate.id();
    absl::StrAppend(&names, names.empty() ? "" : ", ", candidate.name());
  }
  return absl::NotFoundError(absl::StrCat("--lane: there is no lane '", lane, "'; there ",
                                          names.empty() ? "are none now" : "are: ", names));
}

void PutReserve(const policy::Size& size, v1::Reserve& reserve) {
  if (const auto* bytes = std::get_if<policy::Bytes>(&size)) {
    reserve.set_bytes(static_cast<uint64_t>(bytes->count));
  } else {
    reserve.set_permyriad(static_cast<uint32_t>(std::get<policy::Permyriad>(size).count));
  }
}

int PrintChanges(const std::vector<Change>& changes, ShellFormat format) {
  std::string text;
  for (const Change& change : changes) {
    if (!change.value) {
      text += UnsetLine(format, change.name);
      continue;
    }
    const auto line = SetLine(format, change.name, *change.value);
    if (!line.ok()) return Failed(line.status());
    text += *line;
  }
  return Print(text) ? kSuccess : kFailure;
}

// The words that make a container's processes members of the lane: its folder and the library,
// mounted where they are on the host, and the environment.
int PrintContainer(const LaneFacts& lane, const std::vector<Change>& changes) {
  std::string text = absl::StrCat("--volume ", QuoteSh(absl::StrCat(lane.dir, ":", lane.dir)), " ");
  if (!lane.preload.empty())
    absl::StrAppend(&text, "--volume ",
                    QuoteSh(absl::StrCat(lane.preload, ":", lane.preload, ":ro")), " ");
  for (const Change& change : changes) {
    if (!change.value) continue;
    const auto words = SetLine(ShellFormat::kDocker, change.name, *change.value);
    if (!words.ok()) return Failed(words.status());
    text += *words;
  }
  if (geteuid() != 0)
    Say(absl::StrCat("the lane is user ", geteuid(),
                     "'s: the container's processes must be too "
                     "(docker run --user ",
                     geteuid(), "; podman: --userns keep-id)"));
  text.back() = '\n';
  return Print(text) ? kSuccess : kFailure;
}

// The screen as it was comes back at the end, also at ^C.
class FullScreen {
 public:
  explicit FullScreen(bool wanted) : on_(wanted && isatty(STDOUT_FILENO) != 0) {
    if (on_) Print("\x1b[?1049h\x1b[?25l");
  }
  ~FullScreen() {
    if (on_) Print("\x1b[?25h\x1b[?1049l");
  }
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;
  // Clears as it writes, so that nothing flickers.
  std::string Frame(const std::string& text) const {
    if (!on_) return text;
    std::string frame = "\x1b[H";
    for (const char c : text) frame += c == '\n' ? "\x1b[K\n" : std::string(1, c);
    return frame + "\x1b[J";
  }

 private:
  bool on_;
};

asio::awaitable<absl::Status> Watch(Connection& connection, const StatusOptions& options) {
  v1::Request request;
  request.mutable_watch()->set_interval_ms(options.interval_ms);
  absl::Status sent = co_await connection.Send(request);
  if (!sent.ok()) co_return sent;
  const FullScreen screen(options.full_screen);
  bool first = true;
  while (true) {
    const auto response =
        co_await connection.Receive(kAnswerTime + std::chrono::milliseconds(options.interval_ms));
    if (!response.ok()) co_return response.status();
    if (response->has_error()) co_return ToStatus(response->error());
    std::string text = Render(response->status(), options);
    if (!first && !options.json && !options.full_screen) text.insert(0, "\n");
    first = false;
    if (!Print(screen.Frame(text))) co_return absl::OkStatus();  // nobody reads any more
  }
}

}  // namespace

int ShowEnv(const EnvOptions& options) {
  const Environment env = ReadEnvironment(environ);
  if (options.unset) {
    if (options.format != ShellFormat::kSystemd)
      return PrintChanges(UndoEnvironment(env), options.format);
    std::string text;
    for (const char* name :
         {"MAKEFLAGS", "CARGO_MAKEFLAGS", "LD_PRELOAD", "ASAN_OPTIONS", "HEADROOM_LANE",
          "HEADROOM_CORES", "HEADROOM_GATE", "MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL",
          "NVCC_APPEND_FLAGS", "HEADROOM_PARALLEL"})
      text += UnsetLine(options.format, name);
    return Print(text) ? kSuccess : kFailure;
  }
  v1::Request request;
  request.mutable_env();
  const auto response = Ask(request);
  if (!response.ok()) return Failed(response.status());
  if (!response->has_environment())
    return Failed(
        absl::InternalError("the daemon's answer is no environment; is it of another "
                            "version? Restart headroomd"));
  LaneFacts facts;
  facts.dir = response->environment().lane_dir();
  facts.cores = std::max(1u, response->environment().cores());
  // systemd's files would take "$LIB" for a variable, and a container has its own idea of it.
  const bool for_shell = options.format == ShellFormat::kSh || options.format == ShellFormat::kFish;
  facts.preload = FindPreload(OwnFolder(), for_shell);
  // One file to mount: its name on the host, without detours.
  if (std::error_code error; options.format == ShellFormat::kDocker && !facts.preload.empty()) {
    const auto real = std::filesystem::canonical(facts.preload, error);
    facts.preload = error ? "" : real.native();
  }
  facts.gate = options.gate && HasGate(facts.dir);
  TellingFacts telling_facts;
  telling_facts.adapter = !facts.preload.empty();
  if (const Found make = FindProgram("make", env); make.kind == Found::Kind::kExecutable)
    telling_facts.path_make = ProbeMake(make.path);
  const Telling telling = TellShell(telling_facts);
  facts.style = telling.style;
  if (!telling.note.empty()) Say(telling.note);
  ParallelFacts parallel;
  parallel.gated = facts.gate && !facts.preload.empty();
  parallel.jobs = facts.cores;
  parallel.fifo = facts.style == JobserverStyle::kFifo;
  // What a container has is not known here.
  if (options.format != ShellFormat::kDocker) {
    parallel.ninja = VersionInPath("ninja", env);
    parallel.nvcc = VersionInPath("nvcc", env);
  }
  facts.parallel = PlanParallel(parallel);

  // A file for services or containers says nothing of what this shell happens to have.
  const LaneEnvironment plan =
      for_shell ? PlanExport(env, facts) : PlanEnvironment(Environment(), facts);
  for (const std::string& note : plan.notes) Say(note);
  if (for_shell) {
    if (const auto cap = CapFromEnvironment(Apply(env, UndoEnvironment(env))))
      Say(absl::StrCat("MAKEFLAGS says -j", *cap,
                       ": a shared lane has no such cap; 'headroom run' keeps it for one build"));
    for (const std::string& note : NotesOnCaps(Apply(env, UndoEnvironment(env)))) Say(note);
  }
  if (options.format == ShellFormat::kDocker) return PrintContainer(facts, plan.changes);
  return PrintChanges(plan.changes, options.format);
}

int ShowStatus(const StatusOptions& options) {
  if (!options.watch) {
    v1::Request request;
    request.mutable_status();
    const auto response = Ask(request);
    if (!response.ok()) return Failed(response.status());
    return Print(Render(response->status(), options)) ? kSuccess : kFailure;
  }
  const auto places = FindPlaces(ReadEnvironment(environ), geteuid());
  if (!places.ok()) return Failed(places.status());
  asio::io_context io;
  auto reached = ReachOrExplain(io, *places, geteuid());
  if (!reached.ok()) return Failed(reached.status());
  asio::signal_set interrupts(io, SIGINT, SIGTERM, SIGHUP);
  int signal = 0;
  interrupts.async_wait([&](const boost::system::error_code& error, int number) {
    if (error) return;
    signal = number;
    reached->connection->Cancel();
  });
  absl::Status end;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        end = co_await Watch(*reached->connection, options);
        interrupts.cancel();
      },
      asio::detached);
  io.run();
  if (signal != 0) return 128 + signal;
  return end.ok() ? kSuccess : Failed(end);
}

int ShowExplanation(const ExplainOptions& options) {
  const auto lane = FindLane(options.lane);
  if (!lane.ok()) return Failed(lane.status());
  v1::Request request;
  request.mutable_explain()->set_last(options.last);
  request.mutable_explain()->set_lane(*lane);
  const auto response = Ask(request);
  if (!response.ok()) return Failed(response.status());
  std::string text;
  for (const v1::Decision& decision : response->explanation().decisions())
    text += (options.json ? DecisionJson(decision) : Sentence(decision)) + "\n";
  if (text.empty() && !options.json) Say("no decisions yet");
  return Print(text) ? kSuccess : kFailure;
}

int Set(const SetOptions& options) {
  const auto lane = FindLane(options.lane);
  if (!lane.ok()) return Failed(lane.status());
  v1::Request request;
  v1::SetRequest& set = *request.mutable_set();
  set.set_lane(*lane);
  if (options.jobs) set.set_jobs(*options.jobs);
  if (options.reserve) PutReserve(*options.reserve, *set.mutable_reserve());
  const auto response = Ask(request);
  return response.ok() ? kSuccess : Failed(response.status());
}

int Doctor(const DoctorOptions& options) {
  std::error_code error;
  const auto folder = std::filesystem::canonical(options.folder, error);
  if (error || !std::filesystem::is_directory(folder, error)) {
    Say(absl::StrCat("doctor: '", options.folder, "' is no folder; name a build folder, or none"));
    return kUsageError;
  }
  const std::vector<Finding> findings =
      Diagnose(CollectFacts(ReadEnvironment(environ), folder.native()));
  if (!Print(options.json ? FindingsJson(findings) : FindingsText(findings))) return kUsageError;
  return NeedsDoing(findings) ? kFailure : kSuccess;
}

int Reload() {
  v1::Request request;
  request.mutable_reload();
  const auto response = Ask(request);
  return response.ok() ? kSuccess : Failed(response.status());
}

}  // namespace headroom::cli
