#include "client/cli/args.h"

#include <catch2/catch.hpp>
#include <string>
#include <variant>
#include <vector>

namespace headroom::cli {
namespace {

using Words = std::vector<std::string>;

template <class T>
T Parse(const Words& words) {
  const Arguments arguments = ParseArguments(words);
  if (const auto* finish = std::get_if<Finish>(&arguments)) UNSCOPED_INFO(finish->text);
  REQUIRE(std::holds_alternative<T>(arguments));
  return std::get<T>(arguments);
}

TEST_CASE("run: where the command begins") {
  struct Case {
    Words words;
    Words command;
  };
  const std::vector<Case> cases = {
      {{"run", "make"}, {"make"}},
      {{"run", "--", "make", "-j8"}, {"make", "-j8"}},
      // Options behind the command are the command's, whatever they are called.
      {{"run", "ninja", "--jobs", "8"}, {"ninja", "--jobs", "8"}},
      {{"run", "cmd", "--help"}, {"cmd", "--help"}},
      {{"run", "cmd", "--"}, {"cmd", "--"}},
      // Names of our own commands are none behind `run`.
      {{"run", "env", "A=1", "make"}, {"env", "A=1", "make"}},
      {{"run", "--jobs", "8", "status"}, {"status"}},
      {{"run", "--jobs=8", "--no-gate", "run", "--", "x"}, {"run", "--", "x"}},
      {{"run", "--", "--odd"}, {"--odd"}},
      {{"run", "--", "--", "x"}, {"--", "x"}},
      {{"run", "-"}, {"-"}},
      {{"run", "--trace", "--", "--", "x"}, {"x"}},
      {{"run", "--", ""}, {""}},
      {{"run", "++", "a"}, {"++", "a"}},
      {{"run", "x", "{a,b}", "[1,2]"}, {"x", "{a,b}", "[1,2]"}},
  };
  for (const Case& c : cases) {
    std::string line;
    for (const std::string& word : c.words) line += word + " ";
    INFO(line);
    CHECK(Parse<RunOptions>(c.words).command == c.command);
  }
}

TEST_CASE("run: options") {
  const auto options =
      Parse<RunOptions>({"run", "--jobs", "16", "--reserve", "5%", "--no-gate", "--trace", "t",
                         "--test-no-prediction", "--test-spoiled-peak", "1M", "x"});
  CHECK(options.jobs == 16u);
  REQUIRE(options.reserve);
  CHECK(std::get<policy::Permyriad>(*options.reserve).count == 500);
  CHECK(!options.gate);
  CHECK(options.trace_file == "t");
  CHECK(options.without_prediction);
  CHECK(options.spoiled_peak == uint64_t{1} << 20);
  const auto plain = Parse<RunOptions>({"run", "x"});
  CHECK(!plain.jobs);
  CHECK(!plain.reserve);
  CHECK(plain.gate);
  CHECK(
      std::get<policy::Bytes>(*Parse<RunOptions>({"run", "--reserve", "2G", "x"}).reserve).count ==
      int64_t{2} << 30);
}

TEST_CASE("Wrong usage names the thing, the value and what to do") {
  struct Case {
    Words words;
    int code;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {{}, 2, {"a command is missing", "headroom run"}},
      {{"make"}, 2, {"'make' is not a command", "headroom run -- make"}},
      {{"--bogus"}, 2, {"--bogus"}},
      {{"run"}, 125, {"what is to be run"}},
      {{"run", "--"}, 125, {"what is to be run"}},
      {{"run", "--bogus", "x"}, 125, {"unknown option", "--bogus", "headroom run --help"}},
      {{"run", "--job", "4", "x"}, 125, {"unknown option", "--job"}},
      {{"run", "--jobs", "0", "x"}, 125, {"--jobs", "'0'", "from 1 to 4096"}},
      {{"run", "--jobs", "4097", "x"}, 125, {"--jobs", "'4097'"}},
      {{"run", "--jobs", "-1", "x"}, 125, {"--jobs"}},
      {{"run", "--jobs", "8x", "x"}, 125, {"--jobs", "'8x'"}},
      {{"run", "--jobs"}, 125, {"--jobs"}},
      {{"run", "--jobs=", "x"}, 125, {"--jobs"}},
      {{"run", "--reserve", "5X", "x"}, 125, {"--reserve", "'5X'", "5%"}},
      {{"run", "--reserve", "101%", "x"}, 125, {"--reserve", "'101%'"}},
      {{"run", "--trace=", "x"}, 125, {"--trace"}},
      {{"run", "--no-gate=maybe", "x"}, 125, {"no-gate"}},
      {{"status", "--bogus"}, 2, {"unknown option", "--bogus", "headroom status --help"}},
      {{"status", "extra"}, 2, {"extra"}},
      {{"status", "--interval", "1"}, 2, {"--interval", "'1'", "100"}},
      {{"env", "--format", "csh"}, 2, {"--format", "'csh'", "sh, fish, systemd"}},
      {{"explain", "--last", "0"}, 2, {"--last", "'0'"}},
      {{"set"}, 2, {"--jobs or --reserve"}},
      {{"set", "--reserve", "x"}, 2, {"--reserve", "'x'"}},
      {{"reload", "x"}, 2, {"x"}},
  };
  for (const Case& c : cases) {
    std::string line;
    for (const std::string& word : c.words) line += word + " ";
    INFO(line);
    const auto finish = Parse<Finish>(c.words);
    CHECK(finish.code == c.code);
    for (const std::string& part : c.parts) {
      INFO(finish.text);
      CHECK(finish.text.find(part) != std::string::npos);
    }
    CHECK(finish.text.back() == '\n');
  }
}

TEST_CASE("Help for everything, hidden options hidden") {
  for (const Words& words : std::vector<Words>{{"--help"},
                                               {"help"},
                                               {"-h"},
                                               {"run", "--help"},
                                               {"env", "-h"},
                                               {"status", "--help"},
                                               {"top", "--help"},
                                               {"explain", "--help"},
                                               {"set", "--help"},
                                               {"reload", "--help"}}) {
    const auto finish = Parse<Finish>(words);
    CHECK(finish.code == 0);
    CHECK(finish.text.find("usage: headroom ") != std::string::npos);
    CHECK(finish.text.find("--test-") == std::string::npos);
  }
  CHECK(Parse<Finish>({"--version"}).text.substr(0, 9) == "headroom ");
}

TEST_CASE("The other commands' options") {
  const auto env = Parse<EnvOptions>({"env", "--format", "fish", "--unset", "--no-gate"});
  CHECK(env.format == ShellFormat::kFish);
  CHECK(env.unset);
  CHECK(!env.gate);
  CHECK(Parse<EnvOptions>({"env"}).format == ShellFormat::kSh);
  const auto status = Parse<StatusOptions>({"status", "--json", "--watch", "--interval", "250"});
  CHECK(status.json);
  CHECK(status.watch);
  CHECK(status.interval_ms == 250);
  CHECK(Parse<StatusOptions>({"top"}).full_screen);
  const auto explain = Parse<ExplainOptions>({"explain", "--last", "5", "--lane", "run-1-1"});
  CHECK(explain.last == 5);
  CHECK(explain.lane == "run-1-1");
  const auto set = Parse<SetOptions>({"set", "--lane", "3", "--jobs", "0"});
  CHECK(set.lane == "3");
  CHECK(set.jobs == 0u);
  CHECK(!set.reserve);
  Parse<ReloadOptions>({"reload"});
}

TEST_CASE("plan: a machine, or this one") {
  const auto here = Parse<PlanOptions>({"plan", "a.jsonl"});
  CHECK(here.curves == "a.jsonl");
  CHECK(here.cores == 0);
  CHECK(here.mem_gb == 0);
  const auto there = Parse<PlanOptions>({"plan", "--cores", "128", "--mem", "425.5", "--archs", "4",
                                         "--threads", "2", "--json", "a.jsonl"});
  CHECK(there.cores == 128);
  CHECK(there.mem_gb == 425.5);
  CHECK(there.archs == 4);
  CHECK(there.threads == 2);
  CHECK(there.json);
  const auto wrong = [](const Words& words, const std::string& what) {
    const Finish finish = Parse<Finish>(words);
    CHECK(finish.code == kUsageError);
    CHECK_THAT(finish.text, Catch::Contains(what));
  };
  wrong({"plan"}, "which curves?");
  wrong({"plan", "--cores", "0", "a"}, "--cores: '0'");
  wrong({"plan", "--mem", "0", "a"}, "--mem: '0'");
  wrong({"plan", "--mem", "much", "a"}, "--mem: 'much'");
  wrong({"plan", "--mem", "inf", "a"}, "--mem: 'inf'");
  wrong({"plan", "a", "b"}, "b");
}

}  // namespace
}  // namespace headroom::cli
