// The library in programs of every kind: it loads, or is absent, and the program runs the same.
#include <elf.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <sstream>
#include <string>

#include "tests/integration/gate/gate_fixture.h"

namespace headroom::testing {
namespace {

using gate::MessageType;
using std::chrono::seconds;

const std::string kPreload = HEADROOM_LIB_DIR "/headroom/preload/$LIB/libheadroom.so";

struct Symbol {
  std::string name;
  bool undefined = false;
  bool weak = false;
};

// What a loader sees of the library: tags of its dynamic section and its symbols. Elf64 or Elf32.
template <typename Ehdr, typename Phdr, typename Dyn, typename Sym>
void ReadDynamic(const std::string& file, std::vector<long>* tags, std::vector<Symbol>* symbols) {
  Ehdr header;
  std::memcpy(&header, file.data(), sizeof(header));
  std::size_t symbol_table = 0;
  std::size_t string_table = 0;
  std::size_t hash = 0;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Phdr segment;
    std::memcpy(&segment, file.data() + header.e_phoff + i * sizeof(segment), sizeof(segment));
    if (segment.p_type != PT_DYNAMIC) continue;
    for (std::size_t at = segment.p_offset;; at += sizeof(Dyn)) {
      Dyn entry;
      std::memcpy(&entry, file.data() + at, sizeof(entry));
      if (entry.d_tag == DT_NULL) break;
      tags->push_back(static_cast<long>(entry.d_tag));
      if (entry.d_tag == DT_SYMTAB) symbol_table = entry.d_un.d_ptr;
      if (entry.d_tag == DT_STRTAB) string_table = entry.d_un.d_ptr;
      if (entry.d_tag == DT_HASH) hash = entry.d_un.d_ptr;
    }
  }
  // The first segment starts at address 0 and offset 0, so addresses here are offsets.
  std::uint32_t counts[2];
  std::memcpy(counts, file.data() + hash, sizeof(counts));
  for (std::uint32_t i = 1; i < counts[1]; ++i) {
    Sym symbol;
    std::memcpy(&symbol, file.data() + symbol_table + i * sizeof(symbol), sizeof(symbol));
    symbols->push_back({file.c_str() + string_table + symbol.st_name, symbol.st_shndx == SHN_UNDEF,
                        (symbol.st_info >> 4) == STB_WEAK});
  }
}

void CheckIndependent(const fs::path& path) {
  const std::string file = ReadFile(path);
  std::vector<long> tags;
  std::vector<Symbol> symbols;
  if (file[EI_CLASS] == ELFCLASS64) {
    ReadDynamic<Elf64_Ehdr, Elf64_Phdr, Elf64_Dyn, Elf64_Sym>(file, &tags, &symbols);
  } else {
    ReadDynamic<Elf32_Ehdr, Elf32_Phdr, Elf32_Dyn, Elf32_Sym>(file, &tags, &symbols);
  }
  REQUIRE(tags.size() > 5);
  for (const long tag : tags) {
    // Nothing needed, no versions, nothing that only newer loaders know (DT_RELR).
    CHECK(tag != DT_NEEDED);
    CHECK(tag != DT_VERSYM);
    CHECK(tag != DT_VERNEED);
    CHECK(tag != DT_VERDEF);
    CHECK(tag != 36);
  }
  CHECK(symbols.size() == 3);
  for (const Symbol& symbol : symbols) {
    INFO(symbol.name);
    CHECK(symbol.undefined);  // Offers nothing to the program,
    CHECK(symbol.weak);       // and can do without.
  }
}

// So it loads below a C library of any age. Running it under an old one (CentOS 7's) would take
// that C library, which no package of this system has; musl's loader, which knows far less than any
// glibc's, stands in for it below.
TEST_CASE("the library needs no library and no version of a symbol") {
  CheckIndependent(HEADROOM_PRELOAD_LIBRARY);
}

TEST_CASE("by $LIB, as `headroom run` sets it") {
  Lane lane;
  FakeGate gate(lane.path());
  ProgramOptions options = lane.ProbeOptions({"say", "x"});
  options.env["LD_PRELOAD"] = kPreload;
  const ProgramResult result = Run(options);
  CHECK(result.out == "x\n");
  CHECK(result.err.empty());
  CHECK(gate.Count(MessageType::kEnded) == 1);
}

#if defined(HEADROOM_GATE_PROBE_MUSL)
TEST_CASE("a musl program") {
  Lane lane;
  FakeGate gate(lane.path());
  // The path as it stands, and $LIB, which musl takes for a folder's name.
  const std::string preload = GENERATE(std::string(HEADROOM_PRELOAD_LIBRARY), kPreload);
  ProgramOptions options =
      lane.Options({HEADROOM_GATE_PROBE_MUSL, "ids", "fds", "run", "2", "exit", "3", "exit", "5"});
  options.env["HEADROOM_TOOLS"] = "+probe_musl";
  options.env["LD_PRELOAD"] = preload;
  const ProgramResult gated = Run(options);
  const ProgramResult plain = Run(Ungated(options));
  CHECK(gated.out == plain.out);
  CHECK(gated.err.empty());
  CHECK(gated.exit_code == 5);
  CHECK(gate.Count(MessageType::kEnded) == 2);
  // In one that is none of its business it stays out of the way.
  options.env["HEADROOM_TOOLS"] = std::nullopt;
  CHECK(Run(options).out == plain.out);
  CHECK(gate.Count(MessageType::kEnded) == 2);
}
#else
TEST_CASE("a musl program") {
  WARN("SKIPPED: no musl-gcc when this was built (package musl-tools)");
}
#endif

#if defined(HEADROOM_GATE_PROBE_32)
TEST_CASE("a 32-bit program") {
  CheckIndependent(HEADROOM_LIB_DIR "/headroom/preload/32/libheadroom.so");
  Lane lane;
  FakeGate gate(lane.path());
  ProgramOptions options =
      lane.Options({HEADROOM_GATE_PROBE_32, "ids", "fds", "run", "2", "exit", "3", "exit", "5"});
  options.env["HEADROOM_TOOLS"] = "+probe_32";
  options.env["LD_PRELOAD"] = kPreload;
  const ProgramResult gated = Run(options);
  const ProgramResult plain = Run(Ungated(options));
  CHECK(gated.out == plain.out);
  CHECK(gated.err.empty());
  CHECK(gated.exit_code == 5);
  CHECK(gate.Count(MessageType::kEnded) == 2);
  const auto request = gate.WaitFor(MessageType::kRequest);
  REQUIRE(request);
  CHECK(std::string(request->request.tool) == "probe_32");
  CHECK(request->request.arg_count == 9);
}
#else
TEST_CASE("a 32-bit program") {
  WARN("SKIPPED: no compiler for 32-bit programs when this was built (package gcc-multilib)");
}
#endif

#if defined(HEADROOM_GATE_PROBE_ASAN)
TEST_CASE("a program with AddressSanitizer") {
  Lane lane;
  FakeGate gate(lane.path());
  ProgramOptions options =
      lane.Options({HEADROOM_GATE_PROBE_ASAN, "ids", "fds", "alloc", "20", "exit", "5"});
  options.env["HEADROOM_TOOLS"] = "+probe_asan";
  const ProgramResult plain = Run(Ungated(options));
  SECTION("told by ASAN_OPTIONS") {
    const ProgramResult gated = Run(options);
    CHECK(gated.out == plain.out);
    CHECK(gated.exit_code == 5);
    CHECK(gate.Count(MessageType::kEnded) == 1);
  }
  SECTION("ASAN_OPTIONS of its own: the library's path satisfies the check") {
    options.env["ASAN_OPTIONS"] = "detect_leaks=0";
    options.env["LD_PRELOAD"] =
        HEADROOM_LIB_DIR "/headroom/preload/libasan.so.first/../$LIB/libheadroom.so";
    const ProgramResult gated = Run(options);
    CHECK(gated.err.empty());
    CHECK(gated.out == plain.out);
    CHECK(gated.exit_code == 5);
    CHECK(gate.Count(MessageType::kEnded) == 1);
  }
}
#else
TEST_CASE("a program with AddressSanitizer") {
  WARN("SKIPPED: the compiler has no AddressSanitizer");
}
#endif

TEST_CASE("a set-user-ID program isn't gated") {
  if (getuid() != 0) {
    WARN("SKIPPED: needs root to make one");
    return;
  }
  Lane lane;
  FakeGate gate(lane.path());
  const fs::path program = lane / "probe";
  fs::copy_file(Probe(), program);
  REQUIRE(chown(program.c_str(), 54321, 54321) == 0);
  REQUIRE(chmod(program.c_str(), 04755) == 0);
  fs::permissions(lane.path(), fs::perms::all);
  ProgramOptions options = lane.Options({program.string(), "say", "x", "exit", "5"});
  const ProgramResult result = Run(options);
  CHECK(result.out == "x\n");
  CHECK(result.exit_code == 5);
  CHECK(gate.Events().empty());
}

TEST_CASE("a program with an empty environment: out of reach, unharmed") {
  Lane lane;
  FakeGate gate(lane.path());
  CHECK(Run(lane.Options({"/usr/bin/env", "-i", Probe(), "say", "x"})).out == "x\n");
  CHECK(gate.Events().empty());
}

TEST_CASE("a traced program isn't split") {
  Lane lane;
  FakeGate gate(lane.path());
  const pid_t child = fork();
  if (child == 0) {
    setenv("LD_PRELOAD", HEADROOM_PRELOAD_LIBRARY, 1);
    setenv("HEADROOM_LANE", lane.path().c_str(), 1);
    setenv("HEADROOM_TOOLS", "+probe", 1);
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    execl(Probe().c_str(), "probe", "exit", "5", nullptr);
    _exit(99);
  }
  int status = 0;
  for (;;) {
    REQUIRE(waitpid(child, &status, 0) == child);
    if (!WIFSTOPPED(status)) break;
    ptrace(PTRACE_CONT, child, nullptr,
           WSTOPSIG(status) == SIGTRAP ? 0 : reinterpret_cast<void*>(WSTOPSIG(status)));
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 5);
  CHECK(gate.Events().empty());
}

TEST_CASE("a script named as a tool is its interpreter, a link to a tool is the tool") {
  Lane lane;
  FakeGate gate(lane.path());
  WriteFile(lane / "cicc", "#!/bin/sh\necho script\n");
  fs::permissions(lane / "cicc", fs::perms::owner_all);
  ProgramOptions options = lane.Options({(lane / "cicc").string()});
  options.env["HEADROOM_TOOLS"] = std::nullopt;
  CHECK(Run(options).out == "script\n");
  CHECK(gate.Events().empty());
  fs::create_symlink(Probe(), lane / "ptxas");
  options.argv = {(lane / "ptxas").string(), "say", "x"};
  CHECK(Run(options).out == "x\n");
  const auto request = gate.WaitFor(MessageType::kRequest);
  REQUIRE(request);
  CHECK(std::string(request->request.tool) == "ptxas");
}

TEST_CASE("in all the programs of an ordinary shell session nothing is different") {
  Lane lane;
  FakeGate gate(lane.path());
  const std::string script =
      "ls / | sort | head -3; echo x | cat; (exit 3); echo $?; sh -c 'kill -9 $$'; echo $?; "
      "printf '%s\\n' a b | xargs -n1 echo; python3 -c 'print(1)' 2>/dev/null || echo 1";
  ProgramOptions options = lane.Options({"/bin/sh", "-c", script});
  const ProgramResult with = Run(options);
  const ProgramResult without = Run(Ungated(options));
  CHECK(with.out == without.out);
  CHECK(with.err == without.err);
  CHECK(gate.Events().empty());
}

}  // namespace
}  // namespace headroom::testing
