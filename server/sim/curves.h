// Reads recorded curves of tool processes: one JSON object a line and command, as
// `tests/data/*.jsonl` hold them. Fields of a line: `source`, `wall_s`, `procs`; of a process:
// `tool`, `start_s`, `end_s`, `cpu_s`, `peak_rss_bytes`, `input_bytes` (by suffix) and `curve`:
// points [wall s since the command's start, RSS bytes, CPU s of the process].
//
// Bytes are doubles here: the simulator interpolates between points. GB are 10^9 bytes.
#ifndef HEADROOM_SERVER_SIM_CURVES_H_
#define HEADROOM_SERVER_SIM_CURVES_H_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::sim {

// One corner of a curve: what the process has after `cpu` seconds of its own CPU time.
struct Knot {
  double cpu = 0;
  double bytes = 0;
};

// What one tool process takes: memory over its own CPU time, linear between knots. The first knot
// is at 0 s, the last at cpu_s; all its memory is free again after that.
struct Shape {
  std::string tool;
  double cpu_s = 0;
  double peak = 0;
  int64_t input_bytes = 0;  // the largest of its input files
  std::vector<Knot> knots;
};

// One process that a driver runs when the one before it has ended.
struct Stage {
  double gap_s = 0;  // the driver's own time before it, no core and no memory to speak of
  int shape = 0;     // index into Command::shapes
};

// One command of the build tool, as its driver runs it: `front` in order, then a chain for each
// arch (up to --threads at once), then `back` in order.
struct Command {
  std::string source;
  std::string driver;  // "nvcc" or "c++"
  std::vector<Shape> shapes;
  std::vector<Stage> front;
  // cicc, then ptxas; one for each arch that was recorded. A build of more archs repeats them.
  std::vector<std::vector<Stage>> chains;
  std::vector<Stage> back;
  double end_gap_s = 0;
  int threads = 1;  // how many chains were seen at once

  // How many chains a build for so many archs runs; 0 archs: those that were recorded.
  int Chains(int archs) const {
    if (chains.empty()) return 0;
    return archs > 0 ? archs : static_cast<int>(chains.size());
  }
  const std::vector<Stage>& Chain(int copy) const {
    return chains[static_cast<size_t>(copy) % chains.size()];
  }
};

class CurvesError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws CurvesError that names the line and what is wrong with it.
std::vector<Command> ParseCurves(std::string_view text);
std::vector<Command> ReadCurves(const std::string& path);

// Scales the memory of every process of one tool: ptxas by 10 models CUDA 12.x.
void ScaleTool(std::vector<Command>& commands, std::string_view tool, double factor);

// What the shape has after `cpu` seconds.
double BytesAt(const Shape& shape, double cpu);

}  // namespace headroom::sim

#endif  // HEADROOM_SERVER_SIM_CURVES_H_
