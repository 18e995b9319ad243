// Recognition of commands, on command lines as real tools make them.
#include "server/policy/tool.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace headroom::policy {
namespace {

// A line's words, cut at blanks.
std::vector<std::string> Words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  for (char c : line) {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

Command Of(std::string_view line) {
  const std::vector<std::string> words = Words(line);
  return Recognise(words.empty() ? std::string() : words[0], words);
}

struct Case {
  const char* line;
  Role role;
  const char* name;
  const char* source;
  int fan_out;
};

TEST_CASE("tools, drivers and clients are told apart") {
  const Case cases[] = {
      {"/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus -quiet -imultiarch x86_64-linux-gnu -D_GNU_SOURCE "
       "a/b.cc -quiet -dumpbase b.cc -dumpbase-ext .cc -mtune=generic -O2 -o /tmp/ccX.s",
       Role::kTool, "cc1plus", "a/b.cc", 1},
      {"cicc --c++17 --gnu_version=120200 --orig_src_file_name flash.cu --orig_src_path_name "
       "/b/flash.cu -arch compute_90 -m64 /tmp/tmpxft_00004c2b_00000000-7_flash.cpp1.ii -o x.ptx",
       Role::kTool, "cicc", "/b/flash.cu", 1},
      {"ptxas -arch=sm_90 -m64 /tmp/tmpxft_00004c2b_00000000-8_flash_fwd.compute_90.ptx -o x.cubin",
       Role::kTool, "ptxas", "flash_fwd.compute_90.ptx", 1},
      {"cudafe++ --c++17 --m64 --gen_c_file_name /tmp/x.cudafe1.cpp --stub_file_name x.stub.c "
       "/tmp/tmpxft_1_0-6_k.cpp4.ii",
       Role::kTool, "cudafe++", "k.cpp4.ii", 1},
      {"/usr/bin/ld -plugin liblto_plugin.so -o app main.o", Role::kTool, "ld", "app", 1},
      {"ld.lld -o app main.o", Role::kTool, "ld", "app", 1},
      {"x86_64-linux-gnu-ld.bfd -o app", Role::kTool, "ld", "app", 1},
      {"mold -run -o app", Role::kTool, "ld", "app", 1},
      {"lto1 -quiet -dumpdir a. x.ltrans0.o -fltrans", Role::kTool, "lto1", "", 1},
      {"rustc --crate-name foo src/lib.rs", Role::kTool, "rustc", "src/lib.rs", 1},
      {"clang-17 -cc1 -triple x86_64 -emit-obj x.cpp", Role::kTool, "clang", "x.cpp", 1},
      {"clang++ -c x.cpp -o x.o", Role::kTool, "clang", "x.cpp", 1},
      {"clang++ x.o -o app", Role::kDriver, "ld", "app", 1},
      {"g++-12 -I include -c src/a.cpp -o a.o", Role::kDriver, "c++", "src/a.cpp", 1},
      {"aarch64-linux-gnu-gcc -c a.c", Role::kDriver, "c++", "a.c", 1},
      {"cc a.o b.o -o prog", Role::kDriver, "ld", "prog", 1},
      {"c++ hello.cc -o hello", Role::kDriver, "c++", "hello.cc", 1},
      {"ccache g++ -c a.cc", Role::kDriver, "c++", "a.cc", 1},
      {"ccache sloppiness=time_macros g++ -c a.cc", Role::kDriver, "c++", "a.cc", 1},
      {"env CCACHE_DIR=/x nice -n 5 g++ -c a.cc", Role::kDriver, "c++", "a.cc", 1},
      {"nvcc -c k.cu -o k.o", Role::kDriver, "nvcc", "k.cu", 1},
      {"nvcc k.o -o app", Role::kDriver, "ld", "app", 1},
      {"/usr/local/cuda/bin/nvcc -gencode arch=compute_80,code=sm_80 -gencode "
       "arch=compute_90,code=sm_90 -gencode arch=compute_100,code=sm_100 -gencode "
       "arch=compute_120,code=sm_120 --threads 4 -c k.cu",
       Role::kDriver, "nvcc", "k.cu", 4},
      {"nvcc -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 -t 4 -c k.cu",
       Role::kDriver, "nvcc", "k.cu", 2},
      {"nvcc --generate-code=arch=compute_80,code=[compute_80,sm_80] "
       "--generate-code=arch=compute_90,code=[sm_90] --threads=0 -c k.cu",
       Role::kDriver, "nvcc", "k.cu", 2},
      {"nvcc -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -c k.cu",
       Role::kDriver, "nvcc", "k.cu", 1},
      {"nvcc -arch=sm_80 -code=sm_80,sm_86,sm_89 -t4 --threads 8 -c k.cu", Role::kDriver, "nvcc",
       "k.cu", 3},
      {"nvcc -arch=all-major --threads 0 -c k.cu", Role::kDriver, "nvcc", "k.cu", 6},
      {"ninja -v", Role::kClient, "ninja", "", 1},
      {"samu", Role::kClient, "samu", "", 1},
      {"gmake -j4", Role::kClient, "make", "", 1},
      {"cargo build", Role::kClient, "cargo", "", 1},
      {"python3 setup.py build", Role::kOther, "", "", 1},
      {"touch a.c", Role::kOther, "", "", 1},
      {"ar rcs x.a y.o", Role::kOther, "", "", 1},
  };
  for (const Case& c : cases) {
    INFO(c.line);
    const Command command = Of(c.line);
    CHECK(command.role == c.role);
    CHECK(command.name == c.name);
    CHECK(command.source == c.source);
    CHECK(command.fan_out == c.fan_out);
  }
}

TEST_CASE("a front end that only preprocesses is a tool of its own") {
  const auto name = [](const std::vector<std::string>& words) {
    return Recognise(words.front(), words).name;
  };
  CHECK(name({"cc1plus", "-E", "-quiet", "a.cu", "-o", "a.cpp4.ii"}) == "cpp");
  CHECK(name({"cc1", "-E", "a.c"}) == "cpp");
  CHECK(name({"clang", "-cc1", "-E", "a.c"}) == "cpp");
  CHECK(name({"cc1plus", "-quiet", "a.cpp"}) == "cc1plus");
  CHECK(name({"clang", "-cc1", "-emit-obj", "a.c"}) == "clang");
  CHECK(Recognise("cc1plus", std::vector<std::string>{"cc1plus", "-E", "a.cu"}).source == "a.cu");
}

TEST_CASE("a shell counts as the heaviest command of its line") {
  const std::vector<std::string> words = {
      "sh", "-c", "cd 'a dir' && mkdir -p x; FOO=1 nvcc -c k.cu -o k.o && touch stamp"};
  const Command command = Recognise("sh", words);
  CHECK(command.role == Role::kDriver);
  CHECK(command.name == "nvcc");
  CHECK(command.source == "k.cu");
  CHECK(RecogniseLine("g++ -c \"my file.cc\" -o x.o").source == "my file.cc");
  CHECK(RecogniseLine("echo g++").role == Role::kOther);
}

TEST_CASE("hostile words do no harm") {
  CHECK(Recognise("", {}).role == Role::kOther);
  CHECK(Recognise("nvcc", {}).name == "ld");
  const std::vector<std::string> empty = {"", "", ""};
  CHECK(Recognise("", empty).role == Role::kOther);
  CHECK(Recognise("env", empty).role == Role::kOther);
  CHECK(Recognise("(sd-pam) \n\x01\xff", empty).role == Role::kOther);
  std::vector<std::string> chain(100000, "env");
  chain.push_back("g++");
  CHECK(Recognise("env", chain).role == Role::kOther);
  const std::vector<std::string> cut = {"nvcc", "-c", "k.cu", "--threads", "-gencode"};
  CHECK(Recognise("nvcc", cut).fan_out == 1);
  const std::vector<std::string> big = {"nvcc", "-c", "k.cu", "--threads=99999999999999999999",
                                        "-arch=all"};
  CHECK(Recognise("nvcc", big).fan_out == 12);
  CHECK(RecogniseLine("'\"\\").role == Role::kOther);
  CHECK(RecogniseLine(std::string(1 << 20, '(')).role == Role::kOther);
}

TEST_CASE("the hash of flags knows options, not places") {
  const auto hash = [](const char* line) { return FlagsHash(Words(line)); };
  const uint64_t base = hash("g++ -O2 -std=c++20 -c a.cc -o a.o");
  CHECK(base == hash("/usr/bin/g++ -O2 -std=c++20 -c b/c.cc -o /tmp/x.o -I /inc -MF d"));
  CHECK(base != hash("g++ -O3 -std=c++20 -c a.cc -o a.o"));
  CHECK(hash("nvcc -gencode arch=compute_80,code=sm_80") !=
        hash("nvcc -gencode arch=compute_90,code=sm_90"));
}

}  // namespace
}  // namespace headroom::policy
