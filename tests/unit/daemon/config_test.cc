#include "server/daemon/config.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "server/policy/size.h"

using namespace headroom;
using daemon::Config;
using daemon::ParseConfig;

namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  INFO(path);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

// "file:line: key: text" of each error.
std::vector<std::string> Errors(const std::string& text) {
  std::vector<std::string> errors;
  for (const auto& error : ParseConfig(text, "f.toml").errors) errors.push_back(error.ToString());
  return errors;
}

daemon::Surroundings Of(uid_t uid, const char* home) {
  daemon::Surroundings around;
  around.uid = uid;
  around.home = home;
  return around;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an empty file is the default configuration") {
  const auto parsed = ParseConfig("", "f.toml");
  CHECK(parsed.errors.empty());
  CHECK(parsed.config == Config{});
  CHECK(ParseConfig("# only a comment\n[memory]\n", "f").config == Config{});
}

TEST_CASE("every key is read") {
  const auto parsed = ParseConfig(R"(
[memory]
reserve = "2.5%"
[jobs]
max = 12
[sampling]
fast_min = 20
fast_max = 40
slow = 2000
[tools]
extra = ["icpc", "my-compiler"]
[trace]
enabled = false
dir = "/var/tmp/trace"
max_size = "128M"
[history]
enabled = false
[log]
level = "debug"
[daemon]
runtime_dir = "/run/other"
)",
                                  "f.toml");
  for (const auto& error : parsed.errors) INFO(error.ToString());
  REQUIRE(parsed.errors.empty());
  const Config& config = parsed.config;
  CHECK(config.reserve.share == policy::Permyriad{250});
  CHECK_FALSE(config.reserve.bytes);
  CHECK(config.max_jobs == 12);
  CHECK(config.fast_min.count() == 20);
  CHECK(config.fast_max.count() == 40);
  CHECK(config.slow.count() == 2000);
  CHECK(config.extra_tools == std::vector<std::string>{"icpc", "my-compiler"});
  CHECK_FALSE(config.trace_enabled);
  CHECK_FALSE(config.history_enabled);
  CHECK(config.trace_dir == "/var/tmp/trace");
  CHECK(config.trace_max == policy::MiB(128));
  CHECK(config.log_level == "debug");
  CHECK(config.runtime_dir == "/run/other");
  // All keys were above: nothing is left that has its default.
  CHECK(ParseConfig("memory.reserve = \"2G\"", "f").config.reserve.bytes == policy::GiB(2));
  CHECK(ParseConfig("memory.reserve = 4096", "f").config.reserve.bytes == policy::KiB(4));
}

TEST_CASE("each fault is named with file, line, key, value and remedy") {
  struct Case {
    std::string text;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"[memory]\nreserv = \"5%\"\n",
       {"f.toml:2: memory.reserv: ", "did you mean memory.reserve?", "'5%'"}},
      {"[momory]\nreserve = 1\n", {"f.toml:1: momory: ", "did you mean [memory]?"}},
      {"[weather]\nrain = 1\n", {"f.toml:1: weather: ", "headroom.toml(5)"}},
      {"reserve = \"5%\"\n", {"f.toml:1: reserve: ", "did you mean memory.reserve?"}},
      {"[jobs]\n\nmax = 0\n",
       {"f.toml:3: jobs.max: ", "0 is not a whole number of jobs from 1 to 4096"}},
      {"[jobs]\nmax = 4097\n", {"4097"}},
      {"[jobs]\nmax = \"4\"\n", {"f.toml:2: jobs.max: ", "'4' is not"}},
      {"[jobs]\nmax = 4.0\n", {"4.0 is not"}},
      {"[jobs]\nmax = 99999999999999999999\n", {"f.toml:2: "}},
      {"[memory]\nreserve = \"5 %\"\n", {"memory.reserve: ", "'5 %'", "K, M or G"}},
      {"[memory]\nreserve = -5\n", {"-5"}},
      {"[memory]\nreserve = \"60%\"\n", {"'60%'", "at most 50%"}},
      {"[memory]\nreserve = 0.05\n", {"0.05"}},
      {"[memory]\nreserve = [1]\n", {"[ 1 ]"}},
      {"[sampling]\nfast_min = 4\n", {"4 is not a whole number of milliseconds from 5 to 1000"}},
      {"[sampling]\nfast_min = 300\n",
       {"f.toml:2: sampling.fast_min: 300 is above sampling.fast_max, 250"}},
      {"[sampling]\nslow = 99\n", {"99"}},
      {"[tools]\nextra = \"icpc\"\n", {"tools.extra: ", "a list"}},
      {"[tools]\nextra = [\"/usr/bin/icpc\"]\n", {"'/usr/bin/icpc'", "without folders"}},
      {"[tools]\nextra = [1]\n", {"1 is not a program's name"}},
      {"[trace]\nenabled = 1\n", {"1 is not true or false"}},
      {"[trace]\ndir = \"relative\"\n", {"'relative'", "absolute path"}},
      {"[trace]\nmax_size = \"5%\"\n", {"'5%'", "no percentage"}},
      {"[trace]\nmax_size = \"100K\"\n", {"'100K'", "from 1M to 64G"}},
      {"[log]\nlevel = \"loud\"\n", {"'loud'", "\"debug\""}},
      {"[log]\nlevel = 3\n", {"3 is not"}},
      {"[daemon]\nruntime_dir = \"a\\u0000b\"\n", {"daemon.runtime_dir"}},
      {"jobs = 5\n", {"f.toml:1: jobs: ", "5"}},
      {"[jobs\nmax = 5\n", {"f.toml:1: ", "TOML"}},
      {"max = = 5\n", {"f.toml:1: "}},
      {"[jobs]\nmax = 1\nmax = 2\n", {"f.toml:"}},
      {"a = \"\xff\"\n", {"f.toml"}},
      {std::string("a = 1\0\n", 7), {"f.toml"}},
  };
  for (const Case& one : cases) {
    INFO(one.text);
    const auto errors = Errors(one.text);
    REQUIRE(errors.size() == 1);
    INFO(errors[0]);
    for (const std::string& part : one.parts) {
      INFO("wants: " << part);
      CHECK(Contains(errors[0], part));
    }
    CHECK(ParseConfig(one.text, "f").config == Config{});
  }
}

TEST_CASE("all faults are told at once, in the order of the file") {
  const auto errors = Errors("[trace]\nenabled = 3\n[jobs]\nmin = 2\nmax = -1\n[zzz]\n");
  REQUIRE(errors.size() == 4);
  CHECK(Contains(errors[0], "f.toml:2: trace.enabled"));
  CHECK(Contains(errors[1], "f.toml:4: jobs.min"));
  CHECK(Contains(errors[2], "f.toml:5: jobs.max"));
  CHECK(Contains(errors[3], "f.toml:6: zzz"));
}

TEST_CASE("files are read, and what can't be read is said") {
  const std::string path = "/tmp/headroom-config-" + std::to_string(getpid()) + ".toml";
  std::ofstream(path) << "[jobs]\nmax = 3\n";
  const auto config = daemon::LoadConfig(path);
  REQUIRE(config.ok());
  CHECK(config->max_jobs == 3);
  std::ofstream(path) << "[jobs]\nmax = 0\nmin = 0\n";
  const auto bad = daemon::LoadConfig(path);
  CHECK(bad.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(Contains(std::string(bad.status().message()), path + ":2: jobs.max"));
  CHECK(Contains(std::string(bad.status().message()), "\n" + path + ":3: jobs.min"));
  std::ofstream(path) << std::string(2'000'000, '#');
  CHECK(daemon::LoadConfig(path).status().code() == absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(path);
  CHECK(daemon::LoadConfig(path).status().code() == absl::StatusCode::kNotFound);
  CHECK(Contains(std::string(daemon::LoadConfig(path).status().message()), path));
  CHECK_FALSE(daemon::LoadConfig("/tmp").ok());
}

TEST_CASE("a reload knows which keys it can't change") {
  Config before;
  Config after;
  after.reserve.bytes = policy::GiB(1);
  after.log_level = "debug";
  CHECK(daemon::NeedRestart(before, after).empty());
  after.trace_enabled = false;
  after.trace_dir = "/x";
  after.trace_max = policy::MiB(1);
  after.runtime_dir = "/y";
  after.history_enabled = false;
  const auto names = daemon::NeedRestart(before, after);
  // As the list of keys says it.
  std::set<std::string> said;
  for (const auto& key : daemon::ConfigKeys()) {
    if (key.needs_restart) said.insert(std::string(key.name));
  }
  CHECK(std::set<std::string>(names.begin(), names.end()) == said);
}

TEST_CASE("folders and files: the system's, a user's, and what overrides them") {
  daemon::Surroundings root = Of(0, "/root");
  CHECK(DefaultConfigPath(root) == "/etc/headroom/headroom.toml");
  CHECK(RuntimeDir({}, root) == "/run/headroom");
  CHECK(TraceDir({}, root) == "/var/lib/headroom/trace");
  root.state = "/var/lib/headroom";
  CHECK(TraceDir({}, root) == "/var/lib/headroom/trace");
  root.state = "/var/lib/private/headroom:/other";
  CHECK(TraceDir({}, root) == "/var/lib/private/headroom/trace");

  daemon::Surroundings user = Of(1000, "/home/u");
  CHECK(DefaultConfigPath(user) == "/home/u/.config/headroom/headroom.toml");
  CHECK(RuntimeDir({}, user) == "/tmp/headroom-1000");
  CHECK(TraceDir({}, user) == "/home/u/.local/state/headroom/trace");
  user.xdg_config = "/c";
  user.xdg_runtime = "/run/user/1000";
  user.xdg_state = "/s";
  CHECK(DefaultConfigPath(user) == "/c/headroom/headroom.toml");
  CHECK(RuntimeDir({}, user) == "/run/user/1000/headroom");
  CHECK(TraceDir({}, user) == "/s/headroom/trace");
  user.xdg_config = user.xdg_runtime = user.xdg_state = "relative";
  CHECK(DefaultConfigPath(user) == "/home/u/.config/headroom/headroom.toml");
  CHECK(RuntimeDir({}, user) == "/tmp/headroom-1000");
  CHECK(TraceDir({}, user) == "/home/u/.local/state/headroom/trace");

  Config config;
  config.runtime_dir = "/configured";
  CHECK(RuntimeDir(config, user) == "/configured");
  user.runtime_dir = "/override";
  CHECK(RuntimeDir(config, user) == "/override");
  CHECK(TraceDir(config, user) == "/override/trace");
  config.trace_dir = "/t";
  CHECK(TraceDir(config, user) == "/t");
  CHECK(TraceDir({}, Of(5, "")) == "/tmp/headroom-5/trace");
}

TEST_CASE("documents and the example name every key, and no other") {
  const std::string example = ReadFile(HEADROOM_SOURCE_DIR "/packaging/headroom.toml");
  CHECK(ParseConfig(example, "headroom.toml").errors.empty());
  CHECK(ParseConfig(example, "headroom.toml").config == Config{});
  const std::string manual = ReadFile(HEADROOM_SOURCE_DIR "/packaging/man/headroom.toml.5");
  const std::string tuning = ReadFile(HEADROOM_SOURCE_DIR "/docs/tuning.md");
  for (const auto& key : daemon::ConfigKeys()) {
    const std::string name(key.name);
    const std::string last = name.substr(name.find('.') + 1);
    INFO(name);
    CHECK(Contains(example, "#" + last + " = "));
    CHECK(Contains(manual, name));
    CHECK(Contains(tuning, "`" + name + "`"));
    CHECK_FALSE(key.meaning.empty());
    CHECK_FALSE(key.default_value.empty());
  }
  // The example with every key in force is what the defaults are, where they are values.
  std::string uncommented;
  size_t keys = 0;
  for (size_t at = 0; at < example.size();) {
    const size_t end = example.find('\n', at);
    std::string line = example.substr(at, end - at);
    at = end + 1;
    if (line.size() > 2 && line[0] == '#' && line[1] != ' ' && Contains(line, " = ")) {
      line.erase(0, 1);
      ++keys;
    }
    uncommented += line + "\n";
  }
  CHECK(keys == daemon::ConfigKeys().size());
  const auto parsed = ParseConfig(uncommented, "headroom.toml");
  for (const auto& error : parsed.errors) INFO(error.ToString());
  CHECK(parsed.errors.empty());
}

TEST_CASE("SIZE") {
  using policy::Bytes;
  using policy::FormatSize;
  using policy::ParseSize;
  using policy::Permyriad;
  using policy::Size;
  const std::vector<std::pair<std::string, Size>> good = {{"0", Bytes{0}},
                                                          {"1", Bytes{1}},
                                                          {"1000", Bytes{1000}},
                                                          {"1K", policy::KiB(1)},
                                                          {"512M", policy::MiB(512)},
                                                          {"3G", policy::GiB(3)},
                                                          {"0%", Permyriad{0}},
                                                          {"5%", Permyriad{500}},
                                                          {"2.5%", Permyriad{250}},
                                                          {"0.05%", Permyriad{5}},
                                                          {"100%", Permyriad{10000}},
                                                          {"99.99%", Permyriad{9999}}};
  for (const auto& [text, size] : good) {
    INFO(text);
    REQUIRE(ParseSize(text));
    CHECK(*ParseSize(text) == size);
    CHECK(FormatSize(size) == text);
  }
  CHECK(FormatSize(Bytes{2048}) == "2K");
  CHECK(FormatSize(Permyriad{1050}) == "10.5%");
  CHECK(ParseSize("5.0%") == Size{Permyriad{500}});
  for (const std::string text : {"",
                                 "K",
                                 "%",
                                 "-1",
                                 "+1",
                                 " 1",
                                 "1 ",
                                 "1 K",
                                 "1k",
                                 "1KB",
                                 "1KiB",
                                 "1T",
                                 "1.5G",
                                 "1e3",
                                 "0x10",
                                 "1,000",
                                 "101%",
                                 "100.01%",
                                 "-5%",
                                 "5.%",
                                 ".5%",
                                 "5.123%",
                                 "5%%",
                                 "5.-1%",
                                 "1M2",
                                 "99999999999999999999",
                                 "1073741824G",
                                 "nan",
                                 "5\n",
                                 "٥"}) {
    INFO(text);
    CHECK_FALSE(ParseSize(text));
  }
  CHECK_FALSE(ParseSize(std::string_view("5\0", 2)));
  CHECK(ParseSize("1073741823G"));
}
