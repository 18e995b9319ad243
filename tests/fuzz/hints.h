// The fuzzed entry point of the reader of build files, in libFuzzer's form. The input is every file
// that the build file names, itself included, so that it may include itself.
//
// To fuzz with clang (from the top folder; the policy's and abseil's libraries are needed as well):
//   clang++ -std=c++20 -g -I. -fsanitize=fuzzer,address,undefined tests/fuzz/hints.cc
//     server/daemon/hints.cc server/policy/*.cc server/sys/*.cc -labsl_... -o /tmp/fuzz
//   /tmp/fuzz tests/fuzz/corpus/hints
#ifndef HEADROOM_TESTS_FUZZ_HINTS_H_
#define HEADROOM_TESTS_FUZZ_HINTS_H_

#include <cstddef>
#include <cstdint>

// Aborts where a result breaks what the reader's header promises. Returns 0.
extern "C" int FuzzHints(const uint8_t* data, size_t size);

#endif  // HEADROOM_TESTS_FUZZ_HINTS_H_
