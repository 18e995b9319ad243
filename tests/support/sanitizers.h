// What tests do otherwise in a program that a sanitizer watches: it is five to twenty times as
// slow, takes several times the memory, and its run-time library has to be the first that a program
// loads.
//
// A test that can't work so says why, and is skipped; one that only takes too long does less.
// Neither is for the faults that a sanitizer finds.
#ifndef HEADROOM_TESTS_SUPPORT_SANITIZERS_H_
#define HEADROOM_TESTS_SUPPORT_SANITIZERS_H_

#include <cstdio>

namespace headroom::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Whether the test is to return at once; it has then told ctest that it is skipped, and why.
inline bool SkipUnderSanitizers(const char* reason) {
  if (kSanitized) std::printf("SKIPPED: under a sanitizer: %s\n", reason);
  return kSanitized;
}

// How much of something a test does: `all`, or, where that would take minutes, `fewer`.
template <typename T>
constexpr T FewerUnderSanitizers(T all, T fewer) {
  return kSanitized ? fewer : all;
}

}  // namespace headroom::testing

#endif  // HEADROOM_TESTS_SUPPORT_SANITIZERS_H_
