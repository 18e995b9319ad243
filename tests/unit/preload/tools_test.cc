#include "client/preload/tools.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

namespace headroom::preload {
namespace {

using gate::Replay;

// Files that exist in a test: path to type and size.
struct Files {
  std::map<std::string, std::pair<FileType, uint64_t>> all;
  static FileType Look(void* context, View path, uint64_t* size) {
    const Files* files = static_cast<Files*>(context);
    const auto at = files->all.find(std::string(path.data, path.size));
    if (at == files->all.end()) return FileType::kNone;
    *size = at->second.second;
    return at->second.first;
  }
};

Command Read(const char* program, const std::vector<std::string>& words, Files files = {},
             const char* configured = "") {
  Tool tool;
  CHECK(FindTool(program, configured, &tool));
  static std::string block;  // Lives as long as the views in the result.
  block = program + std::string(1, '\0');
  for (const std::string& word : words) block += word + '\0';
  CommandReader reader(tool, {Files::Look, &files});
  reader.AddArguments(View(block.data(), block.size()));
  return reader.Finish();
}

std::string Source(const Command& command) {
  return std::string(command.source.data, command.source.size);
}

TEST_CASE("tools by name") {
  Tool tool;
  const std::vector<std::pair<const char*, const char*>> known = {
      {"cicc", "cicc"},
      {"ptxas", "ptxas"},
      {"cc1plus", "cc1plus"},
      {"ld.bfd", "ld.bfd"},
      {"x86_64-linux-gnu-ld.bfd", "ld.bfd"},
      {"x86_64-linux-gnu-ld", "ld"},
      {"aarch64-linux-gnu-gold", "gold"},
      {"clang-14", "clang"},
      {"clang-17.0.6", "clang"},
      {"clang++", "clang++"},
      {"cudafe++", "cudafe++"},
      {"lld-14", "lld"},
      {"mold", "mold"}};
  for (const auto& [program, name] : known) {
    INFO(program);
    CHECK(FindTool(program, "", &tool));
    CHECK(std::string(tool.name) == name);
  }
  for (const char* program : {"nvcc",
                              "gcc",
                              "g++",
                              "x86_64-linux-gnu-gcc-12",
                              "collect2",
                              "as",
                              "ninja",
                              "sh",
                              "clang-format",
                              "clang-tidy",
                              "clangd",
                              "ldd",
                              "build",
                              "-ld",
                              "ld-linux-x86-64.so.2",
                              "lto-wrapper",
                              "",
                              "14",
                              "-14",
                              "a-"}) {
    INFO(program);
    CHECK(!FindTool(program, "", &tool));
  }
}

TEST_CASE("the list can be added to, taken from, replaced") {
  Tool tool;
  CHECK(FindTool("mytool", "+mytool", &tool));
  CHECK(tool.kind == ToolKind::kOther);
  CHECK(FindTool("cicc", "+mytool", &tool));
  CHECK(!FindTool("cicc", "-cicc", &tool));
  CHECK(FindTool("ptxas", "-cicc", &tool));
  CHECK(FindTool("mytool", "mytool:ptxas", &tool));
  CHECK(FindTool("ptxas", "mytool:ptxas", &tool));
  CHECK(tool.kind == ToolKind::kCompiler);
  CHECK(!FindTool("cicc", "mytool:ptxas", &tool));
  CHECK(!FindTool("mytool", "+mytool:-mytool", &tool));
  CHECK(FindTool("cicc", ":::", &tool));
  CHECK(!FindTool("clang-14", "-clang", &tool));
  CHECK(!FindTool("", "+", &tool));
}

TEST_CASE("real command lines") {
  // nvcc 13.0 --dryrun, shortened.
  Files files;
  files.all["/tmp/tmpxft_1-7_k.cpp1.ii"] = {FileType::kRegular, 5'000'000};
  Command command =
      Read("cicc",
           {"--c++17", "--gnu_version=120200", "--orig_src_file_name", "k.cu",
            "--orig_src_path_name", "/src/k.cu", "--allow_managed", "-arch", "compute_90", "-m64",
            "--include_file_name", "tmpxft_1-4_k.fatbin.c", "-tused", "--gen_c_file_name",
            "/tmp/tmpxft_1-7_k.cudafe1.c", "/tmp/tmpxft_1-7_k.cpp1.ii", "-o", "/tmp/k.ptx"},
           files);
  CHECK(command.gate);
  CHECK(Source(command) == "/src/k.cu");
  CHECK(command.replay == Replay::kReplayable);
  CHECK(!command.reads_stdin);
  CHECK(!command.writes_stdout);
  CHECK(command.input_count == 1);
  CHECK(command.input_bytes == 5'000'000);
  CHECK(std::string(command.inputs[0].suffix) == "ii");

  files.all = {{"/tmp/k.ptx", {FileType::kRegular, 900}}};
  command = Read("ptxas", {"-arch=sm_90", "-m64", "/tmp/k.ptx", "-o", "/tmp/k.cubin"}, files);
  CHECK(Source(command) == "/tmp/k.ptx");
  CHECK(command.input_bytes == 900);

  files.all = {{"a.cc", {FileType::kRegular, 100}}, {"conf.h", {FileType::kRegular, 50}}};
  command = Read("cc1plus",
                 {"-quiet", "-I", "inc", "-imultiarch", "x86_64-linux-gnu", "-MD", "a.d", "-MF",
                  "b.d", "-include", "conf.h", "-D_GNU_SOURCE", "a.cc", "-quiet", "-dumpbase",
                  "a.cc", "-mtune=generic", "-o", "/tmp/cc1.s"},
                 files);
  CHECK(Source(command) == "a.cc");
  CHECK(command.input_count == 1);
  CHECK(command.replay == Replay::kReplayable);
  CHECK(!command.reads_stdin);

  files.all = {{"a.o", {FileType::kRegular, 10}},
               {"b.o", {FileType::kRegular, 20}},
               {"c.a", {FileType::kRegular, 25}},
               {"out", {FileType::kRegular, 999}},
               {"/p.so", {FileType::kRegular, 77}}};
  command = Read("ld",
                 {"-plugin", "/p.so", "--build-id", "-m", "elf_x86_64", "-o", "out", "a.o", "b.o",
                  "-lc", "c.a"},
                 files);
  CHECK(Source(command) == "out");
  CHECK(command.input_count == 3);
  CHECK(command.input_bytes == 55);
  CHECK(std::string(command.inputs[0].suffix) == "o");
  CHECK(command.inputs[0].bytes == 30);
  CHECK(std::string(command.inputs[1].suffix) == "a");
}

TEST_CASE("queries and drivers are let through") {
  CHECK(!Read("ld", {"--version"}).gate);
  CHECK(!Read("ld", {"-v"}).gate);
  CHECK(!Read("clang", {"--version"}).gate);
  CHECK(!Read("clang", {"a.o", "-o", "a"}).gate);
  CHECK(!Read("clang", {"-E", "a.c"}).gate);
  CHECK(!Read("clang", {}).gate);
  CHECK(Read("clang", {"-c", "a.c"}).gate);
  CHECK(Read("clang", {"-S", "a.c"}).gate);
  CHECK(Read("clang", {"-cc1", "-emit-obj", "a.c"}).gate);
  CHECK(!Read("rustc", {"-vV"}).gate);
  CHECK(!Read("rustc", {"-", "--crate-name", "___", "--print=file-names"}).gate);
  CHECK(Read("rustc", {"--crate-name", "x", "src/lib.rs"}).gate);
  CHECK(Read("cc1plus", {"-quiet", "-v", "-version", "a.cc"}).gate);
}

TEST_CASE("what can be run again unseen") {
  const auto replay = [](const char* tool, const std::vector<std::string>& words) {
    return Read(tool, words).replay;
  };
  // gcc -pipe, gcc -S -o -, cpp.
  CHECK(Read("cc1", {"a.c", "-quiet", "-o", "-"}).writes_stdout);
  CHECK(Read("cc1", {"-E", "a.c"}).writes_stdout);
  CHECK(!Read("cc1", {"-E", "a.c", "-o", "a.i"}).writes_stdout);
  CHECK(Read("cc1", {"-M", "a.c"}).writes_stdout);
  CHECK(Read("cc1", {"a.c", "-MF", "-", "-o", "a.s"}).writes_stdout);
  CHECK(Read("cc1", {"a.c", "-o", "/dev/stdout"}).writes_stdout);
  CHECK(Read("clang", {"-S", "a.c", "-o-"}).writes_stdout);
  CHECK(!Read("cc1", {"a.c", "-o", "a.s"}).writes_stdout);
  // gcc -x c -.
  CHECK(Read("cc1", {"-quiet", "-", "-dumpbase", "-", "-o", "a.s"}).reads_stdin);
  CHECK(Read("cc1", {"-quiet", "/dev/stdin", "-o", "a.s"}).reads_stdin);
  CHECK(Read("cc1", {"-quiet", "-o", "a.s"}).reads_stdin);  // No input at all.
  CHECK(!Read("cc1", {"a.c", "-o", "a.s"}).reads_stdin);
  CHECK(Read("mytool", {"x"}, {}, "+mytool").reads_stdin);
  CHECK(replay("ptxas", {"/dev/fd/63", "-o", "a.cubin"}) == Replay::kInputStream);
  CHECK(replay("cc1", {"a.c", "-o", "/dev/fd/5"}) == Replay::kOutputStream);
  CHECK(replay("clang", {"-c", "a.c", "-fdump=/proc/self/fd/3"}) == Replay::kOutputStream);
  CHECK(replay("rustc", {"src/lib.rs"}) == Replay::kHoldsTokens);
  CHECK(replay("ld.gold", {"--incremental", "a.o"}) == Replay::kModifiesInput);
  CHECK(replay("ld", {"-o", "a", "a.o"}) == Replay::kReplayable);
  CHECK(replay("cc1", {"a.c", "-o", "/dev/null"}) == Replay::kReplayable);
  Files files;
  files.all["in"] = {FileType::kFifo, 0};
  CHECK(Read("ptxas", {"in", "-o", "x"}, files).replay == Replay::kInputStream);
  CHECK(Read("ptxas", {"a.ptx", "-o", "in"}, files).replay == Replay::kOutputStream);
}

TEST_CASE("words of response files count as arguments") {
  Tool tool;
  CHECK(FindTool("ld", "", &tool));
  Files files;
  files.all = {{"a b.o", {FileType::kRegular, 10}},
               {"c\"d.o", {FileType::kRegular, 20}},
               {"e.o", {FileType::kRegular, 30}}};
  CommandReader reader(tool, {Files::Look, &files});
  const std::string arguments("ld\0@rsp\0@\0", 10);
  reader.AddArguments(View(arguments.data(), arguments.size()));
  CHECK(Equal(reader.Response(0), "rsp"));
  CHECK(reader.Response(1).empty());
  std::string text = "-o out 'a b.o'\n c\\\"d.o\t\"e.o\" @other -o\\";
  reader.AddResponse(text.data(), text.size());
  const Command command = reader.Finish();
  CHECK(Source(command) == "out");
  CHECK(command.input_count == 3);
  CHECK(command.input_bytes == 60);
}

TEST_CASE("hostile command lines") {
  Read("cc1", {"", "-", "--", "@", "@@", "-o"});
  Read("cc1", {"-o"});
  Read("clang", std::vector<std::string>(5000, "-include"));
  std::vector<std::string> many;
  Files files;
  for (int i = 0; i < 100; ++i) {
    many.push_back("f." + std::to_string(i));
    files.all[many.back()] = {FileType::kRegular, 1};
    many.push_back("@r" + std::to_string(i));
  }
  const Command command = Read("ld", many, files);
  CHECK(command.input_count == 100);
  CHECK(command.input_bytes == 100);
  const std::string unended = "cc1";  // No NUL at all.
  Tool tool;
  FindTool("cc1", "", &tool);
  CommandReader reader(tool, {Files::Look, &files});
  reader.AddArguments(View(unended.data(), unended.size()));
  CHECK(reader.Finish().input_count == 0);
  const std::string suffix = "x.averylongsuffix";
  files.all[suffix] = {FileType::kRegular, 1};
  CHECK(std::string(Read("ld", {suffix}, files).inputs[0].suffix) == "averylo");
}

TEST_CASE("priors grow with the input, up to a bound") {
  Tool tool;
  CHECK(FindTool("cicc", "", &tool));
  CHECK(PriorPeak(tool, 0) == 300'000'000);
  CHECK(PriorPeak(tool, 5'000'000) == 3'800'000'000);
  CHECK(PriorPeak(tool, 500'000'000) == 8'000'000'000);
}

}  // namespace
}  // namespace headroom::preload
