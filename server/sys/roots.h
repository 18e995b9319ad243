// Where the kernel's text interfaces are mounted. Everything in sys that reads /proc or /sys takes
// a Roots, so that a test can put a fake tree in their place.
#ifndef HEADROOM_SERVER_SYS_ROOTS_H_
#define HEADROOM_SERVER_SYS_ROOTS_H_

#include <string>

namespace headroom::sys {

struct Roots {
  std::string proc = "/proc";
  // Prepended to every path that the kernel itself tells us (mount points in mountinfo).
  // Empty: the real file system.
  std::string prefix;
};

}  // namespace headroom::sys

#endif  // HEADROOM_SERVER_SYS_ROOTS_H_
