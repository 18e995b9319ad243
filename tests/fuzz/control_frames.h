// The fuzzed entry point of the control socket's frames, in libFuzzer's form: bytes as a peer may
// send them, in pieces, parsed into frames and Requests.
//
// To fuzz with clang (from the top folder, with the generated protobuf code of a build tree BUILD):
//   clang++ -std=c++20 -g -I. -IBUILD/proto -DHEADROOM_FUZZ_MAIN
//   -fsanitize=fuzzer,address,undefined
//     tests/fuzz/control_frames.cc server/daemon/frame.cc server/daemon/utf8.cc
//     BUILD/proto/headroom/v1/control.pb.cc -lprotobuf -labsl_status ... -o /tmp/fuzz
//   /tmp/fuzz tests/fuzz/corpus/control
#ifndef HEADROOM_TESTS_FUZZ_CONTROL_FRAMES_H_
#define HEADROOM_TESTS_FUZZ_CONTROL_FRAMES_H_

#include <cstddef>
#include <cstdint>

namespace headroom::testing {

// Aborts where a promise of server/daemon/frame.h is broken. Returns 0. The first byte says in what
// pieces the rest comes.
int FuzzControlFrames(const uint8_t* data, size_t size);

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_FUZZ_CONTROL_FRAMES_H_
