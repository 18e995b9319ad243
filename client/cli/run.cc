#include "client/cli/run.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "client/cli/careful_lane.h"
#include "client/cli/command.h"
#include "client/cli/curves.h"
#include "client/cli/environment.h"
#include "client/cli/heartbeat.h"
#include "client/cli/make_version.h"
#include "client/cli/parallel.h"
#include "client/cli/paths.h"
#include "client/cli/say.h"
#include "client/cli/session.h"
#include "client/cli/summary.h"
#include "client/cli/telling.h"
#include "client/cli/tool_version.h"
#include "server/sys/cores.h"
#include "server/sys/fifo.h"
#include "server/sys/process.h"

namespace headroom::cli {
namespace {

namespace asio = boost::asio;

// Above the numbers that shells (10 and up) and configure scripts (3 to 9) use for themselves, and
// below FD_SETSIZE, which old makes' select(2) needs.
constexpr int kInheritedFd = 100;

[[noreturn]] void Fail(int code, const std::string& text) {
  Say(text);
  _exit(code);
}

std::string CommandError(const std::string& name, const char* what) {
  return absl::StrCat("'", name, "': ", what);
}

sys::UniqueFd OpenForBuild(const char* option, const std::string& path) {
  sys::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600));
  // It names sources: also where the file was there before, nobody else may read it.
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 ||
      (S_ISREG(status.st_mode) && fchmod(file.get(), 0600) != 0))
    Fail(kExitRunFailed, absl::StrCat(option, ": can't write ", path, ": ", std::strerror(errno)));
  return file;
}

v1::AttachRequest AttachFor(const RunOptions& options, std::optional<uint32_t> jobs) {
  v1::AttachRequest attach;
  attach.mutable_root()->set_pid(getpid());
  if (const auto self = sys::ReadProcessId(sys::Roots(), getpid()))
    attach.mutable_root()->set_start(self->start_ticks);
  if (jobs) attach.set_jobs(*jobs);
  if (options.reserve) {
    if (const auto* bytes = std::get_if<policy::Bytes>(&*options.reserve)) {
      attach.mutable_reserve()->set_bytes(static_cast<uint64_t>(bytes->count));
    } else {
      attach.mutable_reserve()->set_permyriad(
          static_cast<uint32_t>(std::get<policy::Permyriad>(*options.reserve).count));
    }
  }
  attach.set_gate(options.gate);
  std::error_code ignored;
  attach.set_cwd(std::filesystem::current_path(ignored).native());
  // What has no place in a frame (1 MiB) is cut; the daemon only shows it.
  size_t bytes = 0;
  for (const std::string& word : options.command) {
    bytes += word.size();
    if (bytes > 64 << 10) break;
    attach.add_argv(word);
  }
  attach.set_without_prediction(options.without_prediction);
  if (options.spoiled_peak) attach.set_spoiled_peak(*options.spoiled_peak);
  return attach;
}

// What became of the attempt to get a lane.
struct Lane {
  std::string dir;
  unsigned cores = 1;
  std::unique_ptr<Session> session;      // of a daemon
  std::unique_ptr<CarefulLane> careful;  // or without one
  std::unique_ptr<sys::Fifo> fifo;       // held open: the tokens outlive a daemon
};

Lane CarefulFallback(const RunOptions& options, const Places& places, unsigned cores,
                     const absl::Status& why) {
  const unsigned jobs =
      std::min(CarefulJobs(cores, AvailableBytes()), options.jobs.value_or(cores));
  std::vector<std::string> folders = places.own;
  if (const char* value = getenv("TMPDIR"); value != nullptr && value[0] == '/')
    folders.emplace_back(value);
  std::error_code ignored;
  folders.insert(folders.end(),
                 {"/tmp", "/var/tmp", "/dev/shm", std::filesystem::current_path(ignored).native()});
  std::erase_if(folders, [](const std::string& folder) { return !CanBeInMakeflags(folder); });
  auto careful = CarefulLane::Create(folders, jobs);
  if (!careful.ok())
    Fail(kExitRunFailed, absl::StrCat("no headroomd (", absl::string_view(why.message()),
                                      "), and nothing else can hold the build back: ",
                                      absl::string_view(careful.status().message())));
  Say(absl::StrCat("no headroomd: ", absl::string_view(why.message())));
  Say(absl::StrCat("going on without it, with ", jobs, jobs == 1 ? " job" : " jobs",
                   " at once (at most one for each 4 GiB of available memory)"));
  Lane lane;
  lane.cores = jobs;
  lane.careful = std::make_unique<CarefulLane>(*std::move(careful));
  lane.dir = lane.careful->dir();
  return lane;
}

Lane GetLane(asio::io_context& io, const RunOptions& options, const Places& places,
             const Environment& env, std::optional<uint32_t> jobs, unsigned cores) {
  Lane lane;
  // A daemon that runs for others keeps its own.
  if (!options.history) setenv("HEADROOM_HISTORY", "off", 1);
  lane.session = std::make_unique<Session>(
      io, Session::Options{places, geteuid(), FindDaemon(OwnFolder(), env),
                           AttachFor(options, jobs), [](const std::string& text) { Say(text); }});
  const auto attached = lane.session->Open();
  absl::Status wrong = attached.status();
  if (attached.ok()) {
    auto fifo = sys::Fifo::Open(attached->lane_dir() + "/fifo");
    if (fifo.ok()) {
      lane.fifo = std::make_unique<sys::Fifo>(*std::move(fifo));
      lane.dir = attached->lane_dir();
      lane.cores = std::max(1u, attached->cores());
      return lane;
    }
    wrong = fifo.status();
  }
  // The daemon refuses what was asked for: that is the user's to mend. (Any other error of its own,
  // such as a full disk, is no reason not to build.)
  if (lane.session->refused() &&
      (absl::IsInvalidArgument(wrong) || absl::IsPermissionDenied(wrong)))
    Fail(kExitRunFailed, std::string(wrong.message()));
  return CarefulFallback(options, places, cores, wrong);
}

// What is left when the build has ended.
struct Records {
  int trace = -1;   // where to; -1: not wanted
  int curves = -1;  // the same
  std::string lane;
};

// Of the lane, out of the daemon's trace: by a file that nobody else sees.
asio::awaitable<void> SaveCurves(Session& session, int to, std::string lane) {
  const sys::UniqueFd trace(memfd_create("headroom-trace", MFD_CLOEXEC));
  absl::Status saved = trace ? co_await session.SaveTrace(trace.get())
                             : absl::UnavailableError(std::strerror(errno));
  if (saved.ok()) saved = WriteCurves(trace.get(), to, lane);
  if (!saved.ok()) Say(absl::StrCat("--curves: not saved: ", absl::string_view(saved.message())));
}

asio::awaitable<void> Build(Command& command, Session* session, HeartbeatLoop* heartbeat,
                            Records records, int& status,
                            std::chrono::steady_clock::time_point& ended,
                            std::optional<v1::LaneSummary>& summary) {
  status = co_await command.Wait();
  ended = std::chrono::steady_clock::now();
  if (heartbeat != nullptr) heartbeat->Stop();
  if (session == nullptr) {
    if (records.curves >= 0) Say("--curves: not saved: there was no headroomd to see the build");
    co_return;
  }
  session->Stop();
  summary = co_await session->Close(ExitCodeOf(status));
  if (records.trace >= 0) {
    const absl::Status saved = co_await session->SaveTrace(records.trace);
    if (!saved.ok()) Say(absl::StrCat("--trace: not saved: ", absl::string_view(saved.message())));
  }
  if (records.curves >= 0) co_await SaveCurves(*session, records.curves, records.lane);
}

}  // namespace

void Run(const RunOptions& options) {
  const Environment env = ReadEnvironment(environ);
  const auto places = FindPlaces(env, geteuid());
  if (!places.ok()) Fail(kExitRunFailed, std::string(places.status().message()));

  const std::string& name = options.command.front();
  const Found found = FindProgram(name, env);
  switch (found.kind) {
    case Found::Kind::kExecutable:
      break;
    case Found::Kind::kNotExecutable:
      Fail(kExitNotExecutable,
           CommandError(name, "can't be executed (permission denied, or a folder)"));
    case Found::Kind::kNotFound:
      Fail(kExitNotFound,
           CommandError(
               name, name.find('/') == std::string::npos ? "not found in PATH" : "no such file"));
  }
  sys::UniqueFd trace;
  if (!options.trace_file.empty()) trace = OpenForBuild("--trace", options.trace_file);
  sys::UniqueFd curves;
  if (!options.curves_file.empty()) curves = OpenForBuild("--curves", options.curves_file);

  const auto cores = static_cast<unsigned>(sys::ReadCores(sys::Roots()).Count());
  std::optional<uint32_t> jobs = options.jobs;
  if (const auto cap = CapFromEnvironment(env); cap && !jobs) {
    Say(absl::StrCat("MAKEFLAGS says -j", *cap,
                     ": kept as a cap; without it Headroom alone decides"));
    if (static_cast<unsigned>(*cap) < cores) jobs = static_cast<uint32_t>(*cap);
  }

  asio::io_context io(1);
  Lane lane = GetLane(io, options, *places, env, jobs, cores);

  TellingFacts facts;
  facts.command = name;
  facts.command_make = ProbeMake(found.path);
  if (const Found make = FindProgram("make", env); make.kind == Found::Kind::kExecutable)
    facts.path_make = ProbeMake(make.path);
  LaneFacts lane_facts;
  lane_facts.dir = lane.dir;
  lane_facts.cores = lane.cores;
  lane_facts.preload = FindPreload(OwnFolder());
  // Without a daemon a gated tool goes by the lane's own rule.
  lane_facts.gate = options.gate && (lane.careful || HasGate(lane.dir));
  facts.adapter = !lane_facts.preload.empty();
  const Telling telling = TellCommand(facts);
  lane_facts.style = telling.style;
  if (!telling.note.empty()) Say(telling.note);
  const auto own_gate = env.find("HEADROOM_GATE");
  const bool gated = lane_facts.gate && !lane_facts.preload.empty() &&
                     (own_gate == env.end() || own_gate->second != "0");
  if (const std::string note = NoteOnJobs(name, std::span(options.command).subspan(1),
                                          facts.command_make.has_value(), gated);
      !note.empty())
    Say(note);

  Command::Options command_options;
  sys::UniqueFd handed_on;
  if (telling.style == JobserverStyle::kDescriptors ||
      telling.style == JobserverStyle::kOldDescriptors) {
    // Opened anew: make sets O_NONBLOCK, which must not reach other holders.
    const sys::UniqueFd opened(open((lane.dir + "/fifo").c_str(), O_RDWR | O_CLOEXEC));
    handed_on.Reset(fcntl(opened.get(), F_DUPFD_CLOEXEC, kInheritedFd));
    // A small RLIMIT_NOFILE.
    if (!handed_on) handed_on.Reset(fcntl(opened.get(), F_DUPFD_CLOEXEC, 3));
    if (!handed_on)
      Fail(kExitRunFailed, absl::StrCat("can't open ", lane.dir, "/fifo: ", std::strerror(errno)));
    lane_facts.fd = handed_on.get();
    command_options.inherit.push_back(handed_on.get());
  }
  for (const std::string& note : NotesOnCaps(env)) Say(note);
  lane_facts.parallel =
      PlanParallel({gated, lane.careful != nullptr, jobs.has_value(), lane.cores,
                    telling.style == JobserverStyle::kFifo, VersionInPath("ninja", env),
                    gated ? std::nullopt : VersionInPath("nvcc", env)});
  const LaneEnvironment plan = PlanEnvironment(env, lane_facts);
  for (const std::string& note : plan.notes) Say(note);
  for (const auto& [variable, value] : Apply(env, plan.changes))
    command_options.environment.push_back(absl::StrCat(variable, "=", value));
  command_options.program = found.path;
  command_options.argv = options.command;

  Command command(io);
  const auto began = std::chrono::steady_clock::now();
  const absl::Status started = command.Start(command_options);
  if (!started.ok()) {
    lane.careful.reset();
    const std::string text(started.message());
    if (absl::IsNotFound(started)) Fail(kExitNotFound, text);
    if (absl::IsPermissionDenied(started)) Fail(kExitNotExecutable, text);
    Fail(kExitRunFailed, text);
  }
  int status = 0;
  auto ended = began;
  std::optional<v1::LaneSummary> summary;
  std::unique_ptr<HeartbeatLoop> heartbeat;
  if (lane.session && gated) {
    heartbeat = std::make_unique<HeartbeatLoop>(
        io, HeartbeatLoop::Options{[&] { return lane.session->runtime_dir(); }, geteuid(), lane.dir,
                                   [](const std::string& text) { Say(text); }});
    asio::co_spawn(io, heartbeat->Run(), asio::detached);
  }
  if (lane.session) asio::co_spawn(io, lane.session->Keep(), asio::detached);
  asio::co_spawn(io,
                 Build(command, lane.session.get(), heartbeat.get(),
                       {trace.get(), curves.get(), std::filesystem::path(lane.dir).filename()},
                       status, ended, summary),
                 asio::detached);
  io.run();
  for (const std::string& line : SummaryLines(ended - began, summary)) Say(line);
  lane.careful.reset();
  EndLike(status);
}

}  // namespace headroom::cli
