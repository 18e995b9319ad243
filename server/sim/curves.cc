#include "server/sim/curves.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace headroom::sim {
namespace {

using nlohmann::json;

double Number(const json& value, const char* name) {
  if (!value.is_number()) throw CurvesError(std::string(name) + " is not a number");
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < 0) {
    throw CurvesError(std::string(name) + " is negative or not finite");
  }
  return number;
}

double NumberIn(const json& object, const char* name) {
  const auto it = object.find(name);
  if (it == object.end()) throw CurvesError(std::string(name) + " is missing");
  return Number(*it, name);
}

std::string TextIn(const json& object, const char* name) {
  const auto it = object.find(name);
  if (it == object.end() || !it->is_string()) {
    throw CurvesError(std::string(name) + " is missing or not a string");
  }
  return it->get<std::string>();
}

Shape ParseShape(const json& proc) {
  Shape shape;
  shape.tool = TextIn(proc, "tool");
  shape.cpu_s = std::max(NumberIn(proc, "cpu_s"), 0.01);  // one clock tick: shorter reads as 0
  shape.peak = NumberIn(proc, "peak_rss_bytes");
  if (const auto inputs = proc.find("input_bytes"); inputs != proc.end() && inputs->is_object()) {
    for (const auto& [suffix, size] : inputs->items()) {
      shape.input_bytes =
          std::max(shape.input_bytes, static_cast<int64_t>(Number(size, "input_bytes")));
    }
  }
  shape.knots.push_back({0, 0});
  if (const auto curve = proc.find("curve"); curve != proc.end()) {
    for (const json& point : *curve) {
      if (!point.is_array() || point.size() != 3) {
        throw CurvesError("a point of curve is not [wall s, bytes, CPU s]");
      }
      const double bytes = Number(point[1], "curve's bytes");
      const double cpu = std::min(Number(point[2], "curve's CPU s"), shape.cpu_s);
      // A process that is being torn down reads as 0: that is its end, not its curve.
      if (bytes == 0) continue;
      if (cpu < shape.knots.back().cpu) throw CurvesError("curve's CPU time runs backwards");
      if (cpu == shape.knots.back().cpu) {
        shape.knots.back().bytes = std::max(shape.knots.back().bytes, bytes);
      } else {
        shape.knots.push_back({cpu, bytes});
      }
    }
  }
  // The samples may have missed the peak (VmHWM knows it): the highest one becomes it.
  auto top = std::max_element(shape.knots.begin(), shape.knots.end(),
                              [](const Knot& a, const Knot& b) { return a.bytes < b.bytes; });
  if (shape.knots.size() == 1) {
    shape.knots.push_back({shape.cpu_s / 2, shape.peak});
  } else if (top->bytes < shape.peak) {
    top->bytes = shape.peak;
  } else {
    shape.peak = top->bytes;
  }
  if (shape.knots.back().cpu < shape.cpu_s) {
    shape.knots.push_back({shape.cpu_s, shape.knots.back().bytes});
  }
  return shape;
}

// As the daemon names it, which sees its words: nvcc has the host's front end preprocess before
// cudafe++, and compile at the end.
void NamePreprocessors(Command& command) {
  const auto front_end = std::find_if(command.shapes.begin(), command.shapes.end(),
                                      [](const Shape& shape) { return shape.tool == "cudafe++"; });
  if (front_end == command.shapes.end()) return;
  for (auto shape = command.shapes.begin(); shape != front_end; ++shape) {
    if (shape->tool == "cc1plus") shape->tool = "cpp";
  }
}

bool OfArch(const std::string& tool) {
  return tool == "cicc" || tool == "ptxas" || tool == "nvlink";
}

// The chain that a process belongs to: several archs' run beside each other, so the oldest that has
// no process of that tool yet. A cicc begins one.
std::vector<Stage>& ChainOf(Command& command, const std::string& tool) {
  if (tool != "cicc") {
    for (std::vector<Stage>& chain : command.chains) {
      const bool has = std::any_of(chain.begin(), chain.end(), [&](const Stage& stage) {
        return command.shapes[static_cast<size_t>(stage.shape)].tool == tool;
      });
      if (!has) return chain;
    }
  }
  return command.chains.emplace_back();
}

Command ParseCommand(const json& line) {
  Command command;
  command.source = TextIn(line, "source");
  command.driver = "c++";
  const auto procs = line.find("procs");
  if (procs == line.end() || !procs->is_array() || procs->empty()) {
    throw CurvesError("procs is missing or empty");
  }
  double busy_until = 0;  // wall time at which everything seen so far has ended
  for (const json& proc : *procs) {
    const double start = NumberIn(proc, "start_s");
    const double end = NumberIn(proc, "end_s");
    const int index = static_cast<int>(command.shapes.size());
    command.shapes.push_back(ParseShape(proc));
    std::vector<Stage>* part = &command.front;
    if (OfArch(command.shapes.back().tool)) {
      command.driver = "nvcc";
      part = &ChainOf(command, command.shapes.back().tool);
    } else if (!command.chains.empty()) {
      part = &command.back;
    }
    part->push_back({std::max(0.0, start - busy_until), index});
    busy_until = std::max(busy_until, end);
  }
  // Of the recorded archs, how many had a process at once.
  for (const json& one : *procs) {
    if (!OfArch(TextIn(one, "tool"))) continue;
    const double at = NumberIn(one, "start_s");
    const auto beside = std::count_if(procs->begin(), procs->end(), [at](const json& other) {
      return OfArch(TextIn(other, "tool")) && NumberIn(other, "start_s") <= at &&
             NumberIn(other, "end_s") > at;
    });
    command.threads = std::max(command.threads, static_cast<int>(beside));
  }
  const double wall = NumberIn(line, "wall_s");
  command.end_gap_s = std::max(0.0, wall - busy_until);
  NamePreprocessors(command);
  return command;
}

}  // namespace

std::vector<Command> ParseCurves(std::string_view text) {
  std::vector<Command> commands;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
    try {
      if (!parsed.is_object()) throw CurvesError("not a JSON object");
      commands.push_back(ParseCommand(parsed));
    } catch (const CurvesError& error) {
      throw CurvesError("line " + std::to_string(number) + ": " + error.what());
    }
  }
  if (commands.empty()) throw CurvesError("no commands: one JSON object a line is expected");
  return commands;
}

std::vector<Command> ReadCurves(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw CurvesError(path + ": cannot be read");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  try {
    return ParseCurves(text);
  } catch (const CurvesError& error) {
    throw CurvesError(path + ": " + error.what());
  }
}

void ScaleTool(std::vector<Command>& commands, std::string_view tool, double factor) {
  for (Command& command : commands) {
    for (Shape& shape : command.shapes) {
      if (shape.tool != tool) continue;
      shape.peak *= factor;
      for (Knot& knot : shape.knots) knot.bytes *= factor;
    }
  }
}

double BytesAt(const Shape& shape, double cpu) {
  const auto after = std::upper_bound(shape.knots.begin(), shape.knots.end(), cpu,
                                      [](double c, const Knot& knot) { return c < knot.cpu; });
  if (after == shape.knots.begin()) return after->bytes;
  if (after == shape.knots.end()) return shape.knots.back().bytes;
  const Knot& a = *(after - 1);
  return a.bytes + (after->bytes - a.bytes) * (cpu - a.cpu) / (after->cpu - a.cpu);
}

}  // namespace headroom::sim
