#include "server/sim/curves.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace headroom::sim {
namespace {

constexpr const char* kTrace =
    HEADROOM_SOURCE_DIR "/tests/data/flash_attn_2.8.3_nvcc13_sm100.jsonl";

std::string Line(const std::string& procs) {
  return R"({"source":"a.cu","wall_s":10,"procs":[)" + procs + "]}\n";
}

std::string CurveProc(const std::string& tool, double start, double end, const std::string& curve) {
  return R"({"tool":")" + tool + R"(","start_s":)" + std::to_string(start) + R"(,"end_s":)" +
         std::to_string(end) + R"(,"cpu_s":)" + std::to_string(end - start) +
         R"(,"peak_rss_bytes":1000,"input_bytes":{".ii":7},"curve":)" + curve + "}";
}

TEST_CASE("The trace of flash-attn is read whole") {
  const std::vector<Command> commands = ReadCurves(kTrace);
  REQUIRE(commands.size() == 73);
  CHECK(std::is_sorted(commands.begin(), commands.end(),
                       [](const Command& a, const Command& b) { return a.source < b.source; }));
  int nvcc = 0;
  double chains = 0;
  double others = 0;
  for (const Command& command : commands) {
    nvcc += command.driver == "nvcc" ? 1 : 0;
    for (const Shape& shape : command.shapes) {
      REQUIRE(shape.knots.size() >= 2);
      CHECK(shape.knots.front().cpu == 0);
      CHECK(shape.knots.back().cpu == shape.cpu_s);
      double top = 0;
      for (size_t i = 1; i < shape.knots.size(); ++i) {
        CHECK(shape.knots[i].cpu > shape.knots[i - 1].cpu);
        top = std::max(top, shape.knots[i].bytes);
      }
      CHECK(top == shape.peak);
      (shape.tool == "cicc" || shape.tool == "ptxas" ? chains : others) += shape.cpu_s;
    }
  }
  CHECK(nvcc == 72);
  // "cores alone" of design.md's table: 150 s with 4 archs on 128 cores.
  CHECK((4 * chains + others) / 128 == Approx(150).epsilon(0.01));
}

TEST_CASE("Commands fall into front, chain and back") {
  const std::vector<Command> commands =
      ParseCurves(Line(CurveProc("cc1plus", 0.5, 1, "[[0.5,10,0],[1,20,0.5]]") + "," +
                       CurveProc("cicc", 1.5, 3, "[[1.5,10,0],[2,30,0.5],[3,0,1.5]]") + "," +
                       CurveProc("ptxas", 3, 4, "[]") + "," + CurveProc("cc1plus", 4, 9, "[]")));
  REQUIRE(commands.size() == 1);
  const Command& command = commands[0];
  CHECK(command.driver == "nvcc");
  REQUIRE(command.front.size() == 1);
  CHECK(command.front[0].gap_s == Approx(0.5));
  REQUIRE(command.chains.size() == 1);
  REQUIRE(command.chains[0].size() == 2);
  CHECK(command.chains[0][0].gap_s == Approx(0.5));
  REQUIRE(command.back.size() == 1);
  CHECK(command.end_gap_s == Approx(1));
  const Shape& cicc = command.shapes[static_cast<size_t>(command.chains[0][0].shape)];
  CHECK(cicc.peak == 1000);           // what VmHWM saw and no sample did
  CHECK(BytesAt(cicc, 0.25) == 505);  // half way from 10 to 1000
  CHECK(BytesAt(cicc, 1.4) == 1000);  // the 0 of a process that is being torn down is not its curve
  CHECK(cicc.input_bytes == 7);
}

TEST_CASE("Several archs' processes fall into a chain for each") {
  const std::vector<Command> commands = ParseCurves(
      Line(CurveProc("cc1plus", 0, 1, "[]") + "," + CurveProc("cicc", 1, 3, "[]") + "," +
           CurveProc("cicc", 1, 4, "[]") + "," + CurveProc("ptxas", 3, 5, "[]") + "," +
           CurveProc("ptxas", 4, 6, "[]") + "," + CurveProc("cc1plus", 6, 7, "[]")));
  REQUIRE(commands.size() == 1);
  const Command& command = commands[0];
  REQUIRE(command.chains.size() == 2);
  for (int copy = 0; copy < 2; ++copy) {
    REQUIRE(command.chains[static_cast<size_t>(copy)].size() == 2);
    CHECK(command.Chain(copy)[0].shape == 1 + copy);
    CHECK(command.Chain(copy)[1].shape == 3 + copy);
  }
  CHECK(command.Chains(0) == 2);
  CHECK(command.Chains(3) == 3);
  CHECK(command.Chain(2)[0].shape == 1);
  CHECK(command.back.size() == 1);
}

TEST_CASE("What cannot be read is named") {
  const auto fails = [](const std::string& text, const std::string& what) {
    CHECK_THROWS_WITH(ParseCurves(text), Catch::Contains(what));
  };
  fails("", "no commands");
  fails("\n{}\n", "line 2: source");
  fails("[1]\n", "line 1: not a JSON object");
  fails("{\"source\":\"a\",", "line 1: not a JSON object");
  fails(R"({"source":"a.cu","wall_s":1,"procs":[]})", "procs");
  fails(Line(R"({"tool":"cicc"})"), "start_s");
  fails(Line(CurveProc("cicc", 0, 1, "[[1,2]]")), "a point of curve");
  fails(Line(CurveProc("cicc", 0, 1, "[[0,-2,0]]")), "negative");
  fails(Line(CurveProc("cicc", 0, 1, "[[0,2,0.5],[0,2,0.1]]")), "backwards");
  CHECK_THROWS_WITH(ReadCurves("/nonexistent"), Catch::Contains("/nonexistent: cannot be read"));
}

TEST_CASE("A tool's memory can be scaled") {
  std::vector<Command> commands = ReadCurves(kTrace);
  const double cicc = commands[1].shapes[3].peak;
  const double ptxas = commands[1].shapes[4].peak;
  REQUIRE(commands[1].shapes[4].tool == "ptxas");
  ScaleTool(commands, "ptxas", 10);
  CHECK(commands[1].shapes[3].peak == cicc);
  CHECK(commands[1].shapes[4].peak == Approx(10 * ptxas));
}

}  // namespace
}  // namespace headroom::sim
