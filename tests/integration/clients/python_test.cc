// What builds Python packages: the lane and the gate reach the compilers through all of it. Nothing
// is downloaded: the packages need what build/venv has, or nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "tests/integration/clients/client_lane.h"

namespace headroom::testing {
namespace {

std::string Venv(const std::string& name) {
  const auto tool = VenvTool(name);
  return tool ? tool->string() : "";
}

// PATH with the venv in front, as in an activated one.
ProgramOptions InVenv(const ClientLane& lane, Words argv) {
  ProgramOptions options = lane.Options(std::move(argv));
  options.env["PATH"] = fs::path(Venv("python")).parent_path().string() + ":" + getenv("PATH");
  options.env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1";
  options.env["PIP_NO_INDEX"] = "1";
  options.env["UV_OFFLINE"] = "1";
  options.env["UV_CACHE_DIR"] = (lane.dir() / "uv-cache").string();
  options.env["UV_PYTHON_DOWNLOADS"] = "never";
  return options;
}

// A package whose build backend, which is its own, makes the wheel with ninja and stand-ins, as
// torch's cpp_extension does: `ninja -v`, with -j if MAX_JOBS is all digits.
void WritePackage(const ClientLane& lane, const StandinTools& tools, const StandinBuild& build) {
  WriteNinjaBuild(lane.dir() / "work", tools, build);
  WriteFile(lane.dir() / "package/pyproject.toml",
            "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n"
            "[project]\nname = \"standin-package\"\nversion = \"1\"\n");
  WriteFile(lane.dir() / "package/backend.py",
            "import os, subprocess, zipfile\n"
            "def build_wheel(directory, config_settings=None, metadata_directory=None):\n"
            "    jobs = os.environ.get('MAX_JOBS')\n"
            "    more = ['-j', jobs] if jobs is not None and jobs.isdigit() else []\n"
            "    subprocess.run([" +
                std::string("'") + Venv("ninja") + "', '-v'] + more, cwd='" +
                (lane.dir() / "work").string() +
                "', check=True)\n"
                "    name = 'standin_package-1-py3-none-any.whl'\n"
                "    info = 'standin_package-1.dist-info/'\n"
                "    with zipfile.ZipFile(os.path.join(directory, name), 'w') as wheel:\n"
                "        wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: "
                "standin-package\\nVersion: 1\\n')\n"
                "        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\n"
                "Root-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
                "        wheel.writestr(info + 'RECORD', '')\n"
                "    return name\n");
}

StandinBuild Edges(int count) {
  StandinBuild build;
  for (int i = 0; i < count; ++i) {
    StandinEdge edge;
    edge.name = "edge" + std::to_string(i);
    edge.curve = "0:1M,0.4:1M";
    build.edges.push_back(edge);
  }
  return build;
}

// The row of a front end that leads to that ninja.
void MeasureFrontEnd(const std::string& name, const Words& command, const std::string& note) {
  const TempDir folder;
  const StandinTools tools(folder.path());
  ClientRow row;
  row.name = name;
  row.note = note;
  const StandinBuild build = Edges(6);
  {
    ClientLane lane(2);
    WritePackage(lane, tools, build);
    const ProgramResult result = Run(InVenv(lane, command), std::chrono::seconds(120));
    INFO(result.out << result.err);
    CHECK(result.exit_code == 0);
    CHECK(ReadOutputs(lane.dir() / "work", build).size() == 6);
    CHECK(lane.Idle() == 2);
    row.tokens = lane.FewestIdle() < 2 ? "yes" : "no";
    row.gate = lane.Asked("cc1plus") == 6 ? "yes" : "no";
    CHECK(MaxParallel(ReadStandinLog(lane.dir() / "work/standin.log")) <= 3);
  }
  {
    // K5: a number of jobs takes it out of the jobserver; the gate holds all of them still.
    ClientLane lane(2);
    WritePackage(lane, tools, build);
    ProgramOptions options = InVenv(lane, command);
    options.env["MAX_JOBS"] = "6";
    const ProgramResult result = Run(options, std::chrono::seconds(120));
    INFO(result.out << result.err);
    CHECK(result.exit_code == 0);
    CHECK(lane.FewestIdle() == 2);
    CHECK(lane.Asked("cc1plus") == 6);
  }
  CHECK(row.tokens == "yes");
  CHECK(row.gate == "yes");
  CheckDocumented(row);
}

TEST_CASE("matrix: pip without build isolation") {
  if (Venv("python").empty() || Venv("ninja").empty()) return Skip("no build/venv");
  MeasureFrontEnd("pip --no-build-isolation",
                  {Venv("python"), "-m", "pip", "wheel", "--no-deps", "--no-build-isolation",
                   "--wheel-dir", "out", "./package"},
                  "as the ninja of the environment");
}

TEST_CASE("matrix: pip with build isolation") {
  if (Venv("python").empty() || Venv("ninja").empty()) return Skip("no build/venv");
  MeasureFrontEnd(
      "pip", {Venv("python"), "-m", "pip", "wheel", "--no-deps", "--wheel-dir", "out", "./package"},
      "as the ninja that it installs for the build");
}

TEST_CASE("matrix: uv") {
  if (Venv("uv").empty() || Venv("ninja").empty()) return Skip("build/venv has no uv");
  MeasureFrontEnd("uv",
                  {Venv("uv"), "pip", "install", "--no-deps", "--python", Venv("python"),
                   "--target", "out", "./package"},
                  "builds several packages at once: one lane for all of them");
}

TEST_CASE("matrix: scikit-build-core") {
  if (Venv("python").empty() || !FindProgram("cmake")) return Skip("no build/venv or no cmake");
  if (Run({Venv("python"), "-c", "import scikit_build_core"}).exit_code != 0)
    return Skip("build/venv has no scikit-build-core");
  const TempDir folder;
  const StandinTools tools(folder.path());
  ClientLane lane(2);
  WriteFile(lane.dir() / "package/pyproject.toml",
            "[build-system]\nrequires = [\"scikit-build-core\"]\n"
            "build-backend = \"scikit_build_core.build\"\n"
            "[project]\nname = \"standin-package\"\nversion = \"1\"\n");
  std::string text = "cmake_minimum_required(VERSION 3.18)\nproject(x NONE)\n";
  std::string all = "add_custom_target(all_of_it ALL DEPENDS";
  for (const std::string name : {"a", "b", "c", "d", "e", "f"}) {
    const std::string output = (lane.dir() / (name + ".o")).string();
    text += "add_custom_command(OUTPUT " + output + " VERBATIM COMMAND " + tools.Path("cc1plus") +
            " --curve 0:1M,0.4:1M --log " + (lane.dir() / "standin.log").string() + " -o " +
            output + " " + name + ")\n";
    all += " " + output;
  }
  WriteFile(lane.dir() / "package/CMakeLists.txt", text + all + ")\n");
  const ProgramResult result =
      Run(InVenv(lane, {Venv("python"), "-m", "pip", "wheel", "--no-deps", "--no-build-isolation",
                        "--wheel-dir", "out", "./package"}),
          std::chrono::seconds(120));
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(lane.Idle() == 2);
  CHECK(MaxParallel(ReadStandinLog(lane.dir() / "standin.log")) <= 3);
  ClientRow row;
  row.name = "scikit-build-core";
  row.tokens = lane.FewestIdle() < 2 ? "yes" : "no";
  row.gate = lane.Asked("cc1plus") == 6 ? "yes" : "no";
  row.cap = "CMAKE_BUILD_PARALLEL_LEVEL";
  row.note = "as cmake --build";
  CHECK(row.tokens == "yes");
  CHECK(row.gate == "yes");
  CheckDocumented(row);
}

TEST_CASE("matrix: setuptools build_ext") {
  if (Venv("python").empty() || !FindProgram("g++")) return Skip("no build/venv or no g++");
  ClientLane lane(2);
  WriteFile(lane.dir() / "setup.py",
            "from setuptools import setup, Extension\n"
            "setup(name='x', version='1', ext_modules=[Extension(n, [n + '.c']) for n in 'ab'])\n");
  // No Python.h, which the venv may lack: an empty extension will do.
  for (const std::string name : {"a", "b"})
    WriteFile(lane.dir() / (name + ".c"), "int f_" + name + "(void) { return 0; }\n");
  const ProgramResult result = Run(InVenv(lane, {Venv("python"), "setup.py", "build_ext", "-j2"}),
                                   std::chrono::seconds(120));
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  ClientRow row;
  row.name = "setuptools build_ext";
  row.tokens = lane.FewestIdle() < 2 ? "yes" : "no";
  row.gate = lane.Asked("cc1") == 2 ? "yes" : "no";
  row.cap = "yes";
  row.note = "one compiler at a time, or `-jN`; with torch's BuildExtension as its ninja";
  CHECK(row.gate == "yes");
  CheckDocumented(row);
}

TEST_CASE("torch's BuildExtension") {
  if (Venv("python").empty() || Run({Venv("python"), "-c", "import torch"}).exit_code != 0)
    return Skip("no torch here (5 GB): scripts/gauntlet-flash-attn builds with it");
  ClientLane lane(2);
  WriteFile(lane.dir() / "setup.py",
            "from setuptools import setup\n"
            "from torch.utils.cpp_extension import BuildExtension, CppExtension\n"
            "setup(name='x', version='1', ext_modules=[CppExtension('x', ['a.cpp', 'b.cpp'])],\n"
            "      cmdclass={'build_ext': BuildExtension})\n");
  for (const std::string name : {"a", "b"})
    WriteFile(lane.dir() / (name + ".cpp"), "int f_" + name + "() { return 0; }\n");
  const ProgramResult result =
      Run(InVenv(lane, {Venv("python"), "setup.py", "build_ext"}), std::chrono::seconds(120));
  INFO(result.out << result.err);
  CHECK(result.exit_code == 0);
  CHECK(lane.Asked("cc1plus") == 2);
  CHECK(lane.Idle() == 2);
}

}  // namespace
}  // namespace headroom::testing
