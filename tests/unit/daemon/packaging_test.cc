// The units as systemd reads them, the man pages as man reads them, the completions as the shells
// do, and that they all tell of the same options.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

const std::string kPackaging = HEADROOM_SOURCE_DIR "/packaging";

struct Output {
  int code = -1;
  std::string text;
};

Output Run(const std::string& command) {
  Output output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
    output.text.append(buffer.data(), n);
  const int status = pclose(pipe);
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

bool Has(const std::string& program) {
  return Run("command -v " + program).code == 0;
}

std::string FileText(const std::string& path) {
  std::ifstream in(path);
  INFO(path);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct TempFolder {
  std::string path;
  TempFolder() {
    std::string pattern = "/tmp/headroom-packaging-XXXXXX";
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~TempFolder() { fs::remove_all(path); }
};

// The unit with programs that are there: verify looks for them.
std::string UnitAt(const std::string& template_path, const std::string& folder) {
  std::string text = FileText(template_path);
  const std::string placeholder = "@CMAKE_INSTALL_FULL_BINDIR@";
  size_t found = 0;
  for (size_t at; (at = text.find(placeholder)) != std::string::npos; ++found)
    text.replace(at, placeholder.size(), folder + "/bin");
  REQUIRE(found >= 2);
  fs::create_directories(folder + "/bin");
  for (const char* program : {"headroom", "headroomd"}) {
    if (!fs::exists(folder + "/bin/" + program))
      fs::create_symlink("/bin/true", folder + "/bin/" + program);
  }
  std::string path = folder + "/headroomd.service";
  std::ofstream(path) << text;
  return path;
}

// Lines that are settings must have a reason above them; a blank line or a section ends its reach.
std::vector<std::string> Unexplained(const std::string& text) {
  std::vector<std::string> lines;
  bool explained = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.empty() || line[0] == '[') {
      explained = false;
    } else if (line[0] == '#') {
      explained = true;
    } else if (!explained && line.find("Description=") != 0 && line.find("Documentation=") != 0 &&
               line.find("ExecStart=") != 0 && line.find("WantedBy=") != 0) {
      lines.push_back(line);
    }
  }
  return lines;
}

// The long options that a program's own parser takes, but those for tests.
std::set<std::string> OptionsOf(const std::string& source) {
  std::set<std::string> names;
  for (const std::string call : {"add_option(\"--", "add_flag(\"--"}) {
    for (size_t at = 0; (at = source.find(call, at)) != std::string::npos;) {
      at += call.size();
      const std::string name = source.substr(at, source.find_first_of("\",", at) - at);
      if (name.find("test-") != 0) names.insert(name);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("systemd finds nothing wrong with the units") {
  if (!Has("systemd-analyze")) {
    std::puts("SKIPPED: this system has no systemd-analyze");
    return;
  }
  const TempFolder temp;
  const std::string system = UnitAt(kPackaging + "/headroomd.service.in", temp.path);
  const Output system_verdict = Run("systemd-analyze verify --man=no " + system);
  INFO(system_verdict.text);
  CHECK(system_verdict.code == 0);
  CHECK(system_verdict.text.empty());

  const std::string user = UnitAt(kPackaging + "/user/headroomd.service.in", temp.path);
  const Output user_verdict =
      Run("XDG_RUNTIME_DIR=" + temp.path + " systemd-analyze --user verify --man=no " + user);
  INFO(user_verdict.text);
  CHECK(user_verdict.code == 0);
  CHECK(user_verdict.text.empty());

  // The check itself can fail.
  std::ofstream(user, std::ios::app) << "[Service]\nWachdogSec=3\n";
  CHECK_FALSE(Run("systemd-analyze verify --man=no " + user).text.empty());
}

TEST_CASE("units say what the design asks for, each setting with its reason") {
  const std::string system = FileText(kPackaging + "/headroomd.service.in");
  const std::string user = FileText(kPackaging + "/user/headroomd.service.in");
  for (const std::string& unit : {system, user}) {
    for (const char* line : {"\nType=notify\n", "\nWatchdogSec=", "\nRestart=always\n",
                             "\nRuntimeDirectory=headroom\n", "\nRuntimeDirectoryPreserve=yes\n",
                             "\nRestartPreventExitStatus=2 3\n"}) {
      INFO(line);
      CHECK(unit.find(line) != std::string::npos);
    }
  }
  const auto unexplained = Unexplained(system);
  for (const std::string& line : unexplained) CHECK(line == "");
  CHECK(Unexplained("[Service]\nNice=5\n").size() == 1);
}

TEST_CASE("man pages are read without a complaint") {
  if (!Has("groff")) {
    std::puts("SKIPPED: this system has no groff");
    return;
  }
  for (const char* page : {"headroom.1", "headroomd.8", "headroom.toml.5"}) {
    const Output text = Run("groff -mdoc -Tascii -ww -rCHECKSTYLE=0 " + kPackaging + "/man/" +
                            page + " > /dev/null");
    INFO(page << ": " << text.text);
    CHECK(text.code == 0);
    CHECK(text.text.empty());
  }
}

TEST_CASE("shells take their completions") {
  const Output bash = Run("bash -n " + kPackaging + "/completions/headroom.bash");
  INFO(bash.text);
  CHECK(bash.code == 0);
  CHECK(bash.text.empty());
  const auto complete = [](const std::string& words, int at) {
    // What bash offers behind `words`.
    return Run("bash --norc -c 'source " + kPackaging + "/completions/headroom.bash; COMP_WORDS=(" +
               words + "); COMP_CWORD=" + std::to_string(at) +
               "; _headroom; printf \"%s\\n\" \"${COMPREPLY[@]}\"'")
        .text;
  };
  CHECK(complete("headroom ru", 1) == "run\n");
  CHECK(complete("headroom status --j", 2) == "--json\n");
  CHECK(complete("headroom env --format fi", 3) == "fish\n");
  CHECK(complete("headroom run --jo", 2) == "--jobs\n");
  CHECK(complete("headroom run --jobs 4 -- tru", 5).find("true\n") != std::string::npos);
  CHECK(complete("headroom run --jobs 4 tru", 4).find("true\n") != std::string::npos);
  CHECK(complete("headroom set --lane 3 --re", 4) == "--reserve\n");

  for (const auto& [shell, file] :
       {std::pair("zsh", "_headroom"), std::pair("fish", "headroom.fish")}) {
    if (!Has(shell)) continue;  // not on the machines that build; they are checked where they are
    const Output parsed = Run(std::string(shell) + " -n " + kPackaging + "/completions/" + file);
    INFO(parsed.text);
    CHECK(parsed.code == 0);
  }
}

TEST_CASE("every option is in the man page and in every completion") {
  const std::string manual = FileText(kPackaging + "/man/headroom.1");
  const std::string daemon_manual = FileText(kPackaging + "/man/headroomd.8");
  const std::string bash = FileText(kPackaging + "/completions/headroom.bash");
  const std::string zsh = FileText(kPackaging + "/completions/_headroom");
  const std::string fish = FileText(kPackaging + "/completions/headroom.fish");
  const auto options = OptionsOf(FileText(HEADROOM_SOURCE_DIR "/client/cli/args.cc"));
  CHECK(options.size() >= 10);
  for (const std::string& name : options) {
    INFO(name);
    CHECK(manual.find("Fl -" + name) != std::string::npos);
    CHECK(bash.find("--" + name) != std::string::npos);
    CHECK(zsh.find("--" + name) != std::string::npos);
    CHECK(fish.find("-l " + name) != std::string::npos);
  }
  const auto daemon_options = OptionsOf(FileText(HEADROOM_SOURCE_DIR "/server/daemon/main.cc"));
  CHECK(daemon_options.size() >= 5);
  for (const std::string& name : daemon_options) {
    INFO(name);
    CHECK(daemon_manual.find("Fl -" + name) != std::string::npos);
    CHECK(bash.find("--" + name) != std::string::npos);
    CHECK(zsh.find("--" + name) != std::string::npos);
  }
}
