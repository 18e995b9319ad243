// The fuzzed entry point of sys's parsers, in libFuzzer's form. Every parser gets every input: the
// corpus is the kernels' own text, and each parser must bear the others' too.
//
// To fuzz with clang (from the top folder; abseil's status library is needed for the linked files):
//   clang++ -std=c++20 -g -I. -fsanitize=fuzzer,address,undefined tests/fuzz/sys_parsers.cc
//     server/sys/*.cc -labsl_status -labsl_statusor -labsl_strings ... -o /tmp/fuzz
//   /tmp/fuzz tests/fuzz/corpus/sys
#ifndef HEADROOM_TESTS_FUZZ_SYS_PARSERS_H_
#define HEADROOM_TESTS_FUZZ_SYS_PARSERS_H_

#include <cstddef>
#include <cstdint>

// Aborts where a parser's result breaks what its header promises. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#endif  // HEADROOM_TESTS_FUZZ_SYS_PARSERS_H_
