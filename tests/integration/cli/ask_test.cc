// The commands that ask a daemon: env, status, top, explain, set, reload.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/cli/fake_daemon.h"
#include "tests/integration/cli/terminal.h"
#include "tests/support/testing.h"

namespace headroom::testing {
namespace {

const std::string kHeadroom = HEADROOM_BIN_DIR "/headroom";
using Words = std::vector<std::string>;

ProgramOptions Headroom(const fs::path& dir, const Words& words) {
  ProgramOptions options;
  options.argv = {kHeadroom};
  options.argv.insert(options.argv.end(), words.begin(), words.end());
  options.env = {{"HEADROOM_RUNTIME_DIR", dir.string()},
                 {"MAKEFLAGS", std::nullopt},
                 {"HEADROOM_LANE", std::nullopt}};
  return options;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// PATH with one `make` of our choice in front.
std::string PathWith(const fs::path& folder, const fs::path& make) {
  fs::create_directories(folder);
  fs::remove(folder / "make");
  fs::create_symlink(make, folder / "make");
  return folder.string() + ":" + getenv("PATH");
}

TEST_CASE("No daemon: one line with what to do, exit code 1") {
  const TempDir dir;
  for (const Words& words : std::vector<Words>{{"env"},
                                               {"status"},
                                               {"status", "--json"},
                                               {"status", "--watch"},
                                               {"top"},
                                               {"explain"},
                                               {"explain", "--lane", "x"},
                                               {"set", "--jobs", "4"},
                                               {"reload"}}) {
    const ProgramResult result = Run(Headroom(dir.path(), words));
    INFO(words[0] << ": " << result.err);
    CHECK(result.exit_code == 1);
    CHECK(result.out.empty());
    CHECK(Contains(result.err, "headroom: no headroomd runs"));
    CHECK(Contains(result.err, dir.path().string()));
    CHECK(Contains(result.err, "headroom run"));
  }
  ProgramOptions wrong = Headroom("relative", {"status"});
  CHECK(Contains(Run(wrong).err, "HEADROOM_RUNTIME_DIR"));
}

TEST_CASE("A daemon that hangs, or is none, does not hang us") {
  {
    const TempDir dir;
    const RudeServer server(dir.path(), "");
    const ProgramResult result = Run(Headroom(dir.path(), {"status"}), std::chrono::seconds(20));
    CHECK(result.exit_code == 1);
    CHECK(Contains(result.err, "hangs"));
  }
  const TempDir dir;
  const RudeServer server(dir.path(), std::string(64, '\xff'));
  CHECK(Run(Headroom(dir.path(), {"status"}), std::chrono::seconds(20)).exit_code == 1);
}

TEST_CASE("env: what a shell evaluates makes it a member of the shared lane, and back") {
  const auto modern = VenvTool("make");
  if (!modern) {
    std::puts("SKIPPED: build/venv has no make 4.4");
    return;
  }
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  const std::string path = PathWith(dir / "path", *modern);
  const std::string command = kHeadroom + " env";
  ProgramOptions options = Headroom(dir.path(), {});
  options.env["PATH"] = path;
  options.env["MAKEFLAGS"] = "k -- V='1 2'";
  // Set, set again, and unset: the same as before.
  options.argv = {"sh", "-c",
                  "before=$(env | sort | grep -v ^_=)\n"
                  "eval \"$(" +
                      command +
                      ")\"; echo \"1 $MAKEFLAGS\"; echo \"lane $HEADROOM_LANE\"\n"
                      "eval \"$(" +
                      command +
                      ")\"; echo \"2 $MAKEFLAGS\"\n"
                      "eval \"$(" +
                      command +
                      " --unset)\"; echo \"3 $MAKEFLAGS\"\n"
                      "after=$(env | sort | grep -v ^_=)\n"
                      "[ \"$before\" = \"$after\" ] && echo same || { echo \"$before\"; echo --; "
                      "echo \"$after\"; }"};
  const ProgramResult result = Run(options);
  INFO(result.out << result.err);
  const std::string ours =
      "k -j4 --jobserver-auth=fifo:" + daemon.lane_dir() + "/fifo -- V='1 2'\n";
  CHECK(Contains(result.out, "1 " + ours));
  CHECK(Contains(result.out, "2 " + ours));
  CHECK(Contains(result.out, "3 k -- V='1 2'\n"));
  CHECK(Contains(result.out, "lane " + daemon.lane_dir() + "\n"));
  CHECK(Contains(result.out, "same\n"));

  // Not quoted, as people forget to.
  options.argv = {"sh", "-c", "eval $(" + command + "); echo \"$HEADROOM_LANE\""};
  CHECK(Contains(Run(options).out, daemon.lane_dir()));
}

TEST_CASE("env: a make that would stop at a fifo: is left alone, and said") {
  const auto make = FindProgram("make");
  REQUIRE(make);
  if (!Contains(Run({make->string(), "--version"}).out, "GNU Make 4.3")) {
    std::puts("SKIPPED: make of this system is not 4.3");
    return;
  }
  if (fs::exists(fs::path(HEADROOM_LIB_DIR) / "libheadroom.so")) {
    std::puts("SKIPPED: the preload library is there, and helps such a make");
    return;
  }
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  WriteFile(dir / "Makefile", "all:\n\t@echo built\n");
  ProgramOptions options = Headroom(dir.path(), {});
  options.cwd = dir.path();
  options.argv = {"sh", "-c", "eval \"$(" + kHeadroom + " env)\"; make -s; echo \"[$MAKEFLAGS]\""};
  const ProgramResult result = Run(options);
  INFO(result.out << result.err);
  CHECK(Contains(result.out, "built\n[]\n"));
  CHECK(Contains(result.err, make->string()));
  CHECK(Contains(result.err, "headroom run"));
}

TEST_CASE("env: fish and systemd") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  const ProgramResult fish = Run(Headroom(dir.path(), {"env", "--format", "fish"}));
  CHECK(Contains(fish.out, "set -gx HEADROOM_LANE '" + daemon.lane_dir() + "';\n"));
  // A file for services holds nothing of this shell's.
  ProgramOptions options = Headroom(dir.path(), {"env", "--format", "systemd"});
  options.env["MAKEFLAGS"] = "k -- V=1";
  const ProgramResult systemd = Run(options);
  CHECK(Contains(systemd.out, "HEADROOM_LANE=\"" + daemon.lane_dir() + "\"\n"));
  CHECK(!Contains(systemd.out, "V=1"));
  CHECK(!Contains(systemd.out, "SAVED"));
  // --unset asks no daemon.
  const TempDir empty;
  const ProgramResult unset =
      Run(Headroom(empty.path(), {"env", "--format", "systemd", "--unset"}));
  CHECK(unset.exit_code == 0);
  CHECK(Contains(unset.out, "MAKEFLAGS=\n"));
  CHECK(Run(Headroom(empty.path(), {"env", "--unset"})).exit_code == 0);
}

TEST_CASE("env: docker's words name the lane's folder and the library") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  ProgramOptions options = Headroom(dir.path(), {"env", "--format", "docker"});
  options.env["MAKEFLAGS"] = "k -- V=1";
  const ProgramResult result = Run(options);
  REQUIRE(result.exit_code == 0);
  // As a shell reads them: one word a line.
  ProgramOptions shell = Headroom(dir.path(), {});
  shell.argv = {"sh", "-c", "eval \"printf '%s\\n' $1\"", "sh", result.out};
  const std::string words = Run(shell).out;
  INFO(words);
  const std::string lane = daemon.lane_dir();
  CHECK(Contains(words, "--volume\n" + lane + ":" + lane + "\n"));
  CHECK(Contains(words, "--env\nHEADROOM_LANE=" + lane + "\n"));
  CHECK(!Contains(words, "V=1"));
  CHECK(!Contains(words, "SAVED"));
  const fs::path library = fs::path(HEADROOM_LIB_DIR) / "libheadroom.so";
  if (fs::exists(library)) {
    const std::string real = fs::canonical(library).string();
    CHECK(Contains(words, "--volume\n" + real + ":" + real + ":ro\n"));
    CHECK(Contains(words, "--env\nLD_PRELOAD=" + real + "\n"));
    CHECK(Contains(words, "--env\nMAKEFLAGS= -j4 --jobserver-auth=fifo:" + lane + "/fifo\n"));
  }
}

TEST_CASE("status and explain show what the daemon says") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  daemon.Answer([](Answers& answers) {
    answers.status.set_version("9.9.9");
    answers.status.mutable_memory()->set_total(7 * kGiB);
    answers.status.mutable_pool()->set_target(15);
    answers.status.add_lanes()->set_id(3);
    answers.status.mutable_lanes(0)->set_name("run-1-1");
    v1::Decision& decision = *answers.explanation.add_decisions();
    decision.set_action("mint");
    decision.set_count(2);
    decision.set_lane_name("run-1-1");
    decision.set_reason("floor");
  });

  const ProgramResult table = Run(Headroom(dir.path(), {"status"}));
  CHECK(table.exit_code == 0);
  CHECK(Contains(table.out, "9.9.9"));
  CHECK(Contains(table.out, "7.0 GiB"));
  const auto json = nlohmann::json::parse(Run(Headroom(dir.path(), {"status", "--json"})).out);
  CHECK(json["version"] == "9.9.9");
  CHECK(json["memory"]["total"] == 7 * kGiB);
  CHECK(json["pool"]["target"] == 15);

  const ProgramResult text = Run(Headroom(dir.path(), {"explain"}));
  CHECK(Contains(text.out, "minted 2 tokens for run-1-1: nothing else of the lane runs"));
  const ProgramResult line =
      Run(Headroom(dir.path(), {"explain", "--json", "--last", "7", "--lane", "run-1-1"}));
  CHECK(nlohmann::json::parse(line.out)["count"] == 2);
  const Asked asked = daemon.asked();
  REQUIRE(asked.explained.size() == 2);
  CHECK(asked.explained[0].last() == 20);
  CHECK(asked.explained[1].last() == 7);
  CHECK(asked.explained[1].lane() == 3);
  const ProgramResult unknown = Run(Headroom(dir.path(), {"explain", "--lane", "run-2-2"}));
  CHECK(unknown.exit_code == 1);
  CHECK(Contains(unknown.err, "'run-2-2'"));
  CHECK(Contains(unknown.err, "run-1-1"));
}

TEST_CASE("status --watch goes on until it is told to end, or nobody reads") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  daemon.Answer([](Answers& answers) { answers.status.set_version("9.9.9"); });
  Program program(Headroom(dir.path(), {"status", "--watch", "--json", "--interval", "100"}));
  const auto lines = [&] {
    std::istringstream text(program.Out());
    int count = 0;
    for (std::string line; std::getline(text, line); ++count)
      if (nlohmann::json::parse(line)["version"] != "9.9.9") return -1;
    return count;
  };
  CHECK(WaitUntil([&] { return lines() >= 3; }));
  program.Signal(SIGINT);
  CHECK(program.Wait().exit_code == 130);
  ProgramOptions piped = Headroom(dir.path(), {});
  piped.argv = {"sh", "-c", kHeadroom + " status --watch --json --interval 100 | head -2"};
  const ProgramResult result = Run(piped, std::chrono::seconds(20));
  CHECK(!result.timed_out);
}

TEST_CASE("top takes the screen and gives it back") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  daemon.Answer([](Answers& answers) { answers.status.set_version("9.9.9"); });
  Terminal terminal;
  terminal.Type("export HEADROOM_RUNTIME_DIR=" + dir.path().string() + "\n");
  REQUIRE(terminal.Expect("prompt> "));
  terminal.Type(kHeadroom + " top --interval 100\n");
  CHECK(terminal.Expect("\x1b[?1049h"));
  CHECK(terminal.Expect("9.9.9"));
  CHECK(terminal.Expect("9.9.9"));
  terminal.Type("\x03");
  CHECK(terminal.Expect("\x1b[?1049l"));
  CHECK(terminal.Expect("prompt> "));
}

TEST_CASE("set and reload") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  daemon.Answer([](Answers& answers) {
    answers.status.add_lanes()->set_id(3);
    answers.status.mutable_lanes(0)->set_name("run-1-1");
  });
  CHECK(Run(Headroom(dir.path(), {"set", "--jobs", "5", "--lane", "run-1-1"})).exit_code == 0);
  CHECK(Run(Headroom(dir.path(), {"set", "--reserve", "3%"})).exit_code == 0);
  CHECK(Run(Headroom(dir.path(), {"reload"})).exit_code == 0);
  const Asked asked = daemon.asked();
  REQUIRE(asked.set.size() == 2);
  CHECK(asked.set[0].lane() == 3);
  CHECK(asked.set[0].jobs() == 5);
  CHECK(!asked.set[0].has_reserve());
  CHECK(asked.set[1].lane() == 0);
  CHECK(asked.set[1].reserve().permyriad() == 300);
  CHECK(asked.reloaded == 1);
  // Who may not reload is told so by the server.
  if (geteuid() == 0) {
    chmod(dir.path().c_str(), 0755);
    ProgramOptions other = Headroom(dir.path(), {"reload"});
    other.uid = 4711;
    const ProgramResult result = Run(other);
    CHECK(result.exit_code == 1);
    CHECK(Contains(result.err, "4711"));
  }
}

TEST_CASE("doctor: findings as JSON, and an exit code that says whether to do something") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  ProgramOptions options = Headroom(dir.path(), {"doctor", "--json", dir.path().string()});
  options.env["MAX_JOBS"] = "4";
  const ProgramResult capped = Run(options);
  INFO(capped.out << capped.err);
  CHECK(capped.exit_code == 1);
  const auto json = nlohmann::json::parse(capped.out);
  CHECK(json["needs_doing"] == true);
  std::string ids;
  for (const auto& finding : json["findings"]) ids += finding["id"].get<std::string>() + " ";
  CHECK(Contains(ids, "jobs-cap "));
  CHECK(Contains(ids, "memory "));
  CHECK(Contains(ids, "gate "));
  CHECK(Contains(ids, "daemon "));
  // As a person reads it.
  options.argv = {kHeadroom, "doctor"};
  options.cwd = dir.path();
  CHECK(Contains(Run(options).out, "MAX_JOBS=4\n"));
  CHECK(Run(Headroom(dir.path(), {"doctor", "/no/such/folder"})).exit_code == 2);
}

TEST_CASE("A closed stdout is an error, not a crash") {
  const TempDir dir;
  FakeDaemon daemon(dir.path());
  ProgramOptions options = Headroom(dir.path(), {});
  options.argv = {"sh", "-c", kHeadroom + " status >&-; echo code $?"};
  CHECK(Contains(Run(options).out, "code 1"));
  options.argv = {"sh", "-c", kHeadroom + " --version >/dev/full; echo code $?"};
  CHECK(Contains(Run(options).out, "code 1"));
}

}  // namespace
}  // namespace headroom::testing
