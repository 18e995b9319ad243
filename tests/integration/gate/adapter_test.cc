// The adapters with real clients: makes of both kinds and gcc's lto-wrapper, on a fifo with tokens.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>
#include <string>

#include "tests/integration/gate/gate_fixture.h"

namespace headroom::testing {
namespace {

// A lane's fifo with tokens in it, held open as the daemon does.
class Fifo {
 public:
  Fifo(const fs::path& path, int tokens) : path_(path) {
    if (mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("mkfifo " + path.string());
    fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
    const std::string text(static_cast<std::size_t>(tokens), '+');
    if (write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("cannot write tokens");
    }
  }
  ~Fifo() { close(fd_); }
  Fifo(const Fifo&) = delete;
  Fifo& operator=(const Fifo&) = delete;
  int Tokens() const {
    int count = -1;
    ioctl(fd_, FIONREAD, &count);
    return count;
  }
  std::string Makeflags() const { return " -j4 --jobserver-auth=fifo:" + path_.string(); }

 private:
  fs::path path_;
  int fd_ = -1;
};

// A program of a build that got MAKEFLAGS from its environment.
ProgramOptions InBuild(const Lane& lane, const Fifo& fifo, std::vector<std::string> argv) {
  ProgramOptions options = lane.Options(std::move(argv));
  options.env["MAKEFLAGS"] = fifo.Makeflags();
  options.env["MAKELEVEL"] = std::nullopt;
  options.env["MFLAGS"] = std::nullopt;
  options.cwd = lane.path();
  return options;
}

int MostAtOnce(const fs::path& log) {
  std::istringstream lines(ReadFile(log));
  std::string line;
  int running = 0;
  int most = 0;
  while (std::getline(lines, line)) {
    running += line == "+" ? 1 : -1;
    most = std::max(most, running);
  }
  CHECK(running == 0);
  return most;
}

// NAME: `count` jobs that each say + and - in the log.
std::string Jobs(const std::string& name, int count) {
  std::string all = name + ":";
  std::string rules;
  for (int i = 0; i < count; ++i) {
    const std::string job = name + "-job" + std::to_string(i);
    all += " " + job;
    rules += job + ":\n\t@echo + >> log; sleep 0.3; echo - >> log\n";
  }
  return all + "\n" + rules;
}

std::optional<std::string> MakeOf(const std::string& version_start) {
  for (const std::optional<fs::path>& path :
       {FindProgram("make"), VenvTool("make"), VenvTool("gmake")}) {
    if (!path) continue;
    const std::string version = Run({path->string(), "--version"}).out;
    if (version.find("GNU Make " + version_start) == 0) return path->string();
  }
  return std::nullopt;
}

TEST_CASE("make 4.3: as many jobs as tokens and one, all tokens back") {
  const auto make = MakeOf("4.3");
  if (!make) {
    WARN("SKIPPED: no GNU make 4.3 here");
    return;
  }
  Lane lane;
  const Fifo fifo(lane / "fifo", 3);
  WriteFile(lane / "Makefile", Jobs("all", 10));
  SECTION("plain") {
    const ProgramResult result = Run(InBuild(lane, fifo, {*make}));
    CHECK(result.err.empty());
    CHECK(result.exit_code == 0);
    CHECK(MostAtOnce(lane / "log") == 4);
  }
  SECTION("recursive") {
    fs::create_directory(lane / "sub");
    WriteFile(lane / "top.mk",
              "all: one two\none:\n\t+$(MAKE) -s -f Makefile\ntwo:\n\t+$(MAKE) -s "
              "-f Makefile2 two\n");
    WriteFile(lane / "Makefile2", Jobs("two", 10));
    const ProgramResult result = Run(InBuild(lane, fifo, {*make, "-s", "-f", "top.mk"}));
    CHECK(result.err.empty());
    CHECK(result.exit_code == 0);
    CHECK(MostAtOnce(lane / "log") == 4);
  }
  SECTION("below Python's subprocess, which closes descriptors") {
    const auto python = FindProgram("python3");
    if (!python) {
      WARN("SKIPPED: no python3 here");
      return;
    }
    const ProgramResult result =
        Run(InBuild(lane, fifo,
                    {python->string(), "-c",
                     "import subprocess, sys; sys.exit(subprocess.call(['" + *make + "']))"}));
    CHECK(result.err.empty());
    CHECK(result.exit_code == 0);
    CHECK(MostAtOnce(lane / "log") == 4);
  }
  SECTION("a failing job: its exit code") {
    WriteFile(lane / "Makefile", Jobs("all", 3) + "all: bad\nbad:\n\t@sleep 0.1; exit 3\n");
    const ProgramResult result = Run(InBuild(lane, fifo, {*make, "-k"}));
    CHECK(result.exit_code == 2);
  }
  SECTION("without the adapter it is a fatal error") {
    ProgramOptions options = InBuild(lane, fifo, {*make});
    options.env["LD_PRELOAD"] = std::nullopt;
    CHECK(Run(options).exit_code == 2);
  }
  SECTION("gate off: the adapter works all the same") {
    ProgramOptions options = InBuild(lane, fifo, {*make});
    options.env["HEADROOM_GATE"] = "0";
    CHECK(Run(options).exit_code == 0);
  }
  SECTION("-jN of its own: as without") {
    const ProgramResult result = Run(InBuild(lane, fifo, {*make, "-j2"}));
    CHECK(result.exit_code == 0);
    CHECK(MostAtOnce(lane / "log") == 2);
  }
  CHECK(fifo.Tokens() == 3);
}

TEST_CASE("make 4.3 with a fifo that isn't there, or isn't one: nothing is changed") {
  const auto make = MakeOf("4.3");
  if (!make) {
    WARN("SKIPPED: no GNU make 4.3 here");
    return;
  }
  Lane lane;
  const Fifo fifo(lane / "fifo", 3);
  WriteFile(lane / "Makefile", "all:\n\t@echo x\n");
  WriteFile(lane / "file", "x");
  ProgramOptions options = InBuild(lane, fifo, {*make});
  for (const std::string name : {"missing", "file"}) {
    options.env["MAKEFLAGS"] = " -j4 --jobserver-auth=fifo:" + (lane / name).string();
    const ProgramResult result = Run(options);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find("invalid --jobserver-auth string 'fifo:") != std::string::npos);
  }
}

TEST_CASE("make 4.4 keeps its fifo") {
  const auto make = MakeOf("4.4");
  if (!make) {
    WARN("SKIPPED: no GNU make 4.4 here (scripts/setup installs one)");
    return;
  }
  Lane lane;
  const Fifo fifo(lane / "fifo", 3);
  WriteFile(lane / "Makefile", Jobs("all", 10) + "all: flags\nflags:\n\t@echo $$MAKEFLAGS\n");
  const ProgramResult result = Run(InBuild(lane, fifo, {*make}));
  CHECK(result.err.empty());
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("--jobserver-auth=fifo:" + (lane / "fifo").string()) != std::string::npos);
  CHECK(MostAtOnce(lane / "log") == 4);
  CHECK(fifo.Tokens() == 3);
}

TEST_CASE("gcc -flto=jobserver takes tokens of the lane") {
  const auto gcc = FindProgram("gcc");
  if (!gcc) {
    WARN("SKIPPED: no gcc here");
    return;
  }
  const std::string version = Run({"gcc", "-dumpversion"}).out;
  Lane lane;
  const Fifo fifo(lane / "fifo", 3);
  std::string main_text = "int main(void) { return 0";
  std::vector<std::string> objects;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "f" + std::to_string(i);
    WriteFile(lane / (name + ".c"), "int " + name +
                                        "(int x) { for (int i = 0; i < 9; ++i) x *= x + " +
                                        std::to_string(i) + "; return x; }\n");
    main_text += " + " + name + "(0)";
    objects.push_back(name + ".o");
  }
  std::string declarations;
  for (int i = 0; i < 4; ++i) declarations += "int f" + std::to_string(i) + "(int);\n";
  WriteFile(lane / "main.c", declarations + main_text + "; }\n");
  ProgramOptions options =
      InBuild(lane, fifo, {"gcc", "-O1", "-flto", "-c", "main.c", "f0.c", "f1.c", "f2.c", "f3.c"});
  options.env["HEADROOM_GATE"] = "0";
  if (Run(options).exit_code != 0) {
    WARN("SKIPPED: this gcc has no LTO");
    return;
  }
  options.argv = {"gcc", "-O1", "-flto=jobserver", "-flto-partition=max", "main.o"};
  options.argv.insert(options.argv.end(), objects.begin(), objects.end());
  const ProgramResult with = Run(options);
  CHECK(with.exit_code == 0);
  CHECK(with.err.empty());
  CHECK(fifo.Tokens() == 3);
  CHECK(Run({(lane / "a.out").string()}).exit_code == 0);
  // -v shows what lto-wrapper makes of it: a number of jobs of its own where it sees no jobserver.
  options.argv.insert(options.argv.begin() + 1, "-v");
  CHECK(Run(options).err.find("-fwpa=jobserver") != std::string::npos);
  CHECK(fifo.Tokens() == 3);
  if (std::stoi(version) <= 12) {
    options.env["LD_PRELOAD"] = std::nullopt;
    const std::string without = Run(options).err;
    CHECK(without.find("-fwpa=") != std::string::npos);
    CHECK(without.find("-fwpa=jobserver") == std::string::npos);
  }
}

}  // namespace
}  // namespace headroom::testing
