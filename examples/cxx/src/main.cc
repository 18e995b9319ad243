// parts [PART]: runs every check whose name contains PART.
#include <cstdio>

#include "register_all.h"

int main(int argc, char** argv) {
  const std::string part = argc > 1 ? argv[1] : "";
  parts::Checks checks;
  parts::RegisterAll(checks);
  int run = 0;
  int failed = 0;
  for (const parts::Check& check : checks.all()) {
    if (check.name.find(part) == std::string::npos) continue;
    ++run;
    if (!check.run()) {
      ++failed;
      std::fprintf(stderr, "failed: %s\n", check.name.c_str());
    }
  }
  std::printf("%d checks, %d failed\n", run, failed);
  return run > 0 && failed == 0 ? 0 : 1;
}
