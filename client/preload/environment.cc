#include "client/preload/environment.h"

namespace headroom::preload {
namespace {

// The value, if the entry is of this name. Compares bytes in place: this runs in every process.
const char* Value(const char* entry, const char* name) {
  while (*name != '\0' && *entry == *name) {
    ++entry;
    ++name;
  }
  return *name == '\0' && *entry == '=' ? entry + 1 : nullptr;
}

}  // namespace

Environment ReadEnvironment(char** entries) {
  Environment environment;
  if (entries == nullptr) return environment;
  for (char** entry = entries; *entry != nullptr; ++entry) {
    const char* text = *entry;
    if (text[0] == 'M') {
      if (Value(text, "MAKEFLAGS") != nullptr) environment.makeflags = entry;
      continue;
    }
    if (text[0] == 'C') {
      if (const char* options = Value(text, "COLLECT_GCC_OPTIONS")) {
        environment.collect = View(options);
      }
      continue;
    }
    if (text[0] != 'H' || text[1] != 'E' || text[2] != 'A') continue;
    if (const char* lane = Value(text, "HEADROOM_LANE")) environment.lane = View(lane);
    if (const char* gate = Value(text, "HEADROOM_GATE")) environment.gate = View(gate);
    if (const char* tools = Value(text, "HEADROOM_TOOLS")) environment.tools = View(tools);
    if (const char* cores = Value(text, "HEADROOM_CORES")) environment.cores = View(cores);
  }
  return environment;
}

}  // namespace headroom::preload
