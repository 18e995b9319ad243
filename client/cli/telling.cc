#include "client/cli/telling.h"

#include <absl/strings/str_cat.h>

#include <array>

namespace headroom::cli {
namespace {

std::string_view Basename(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// Clients that take a fifo: themselves and seldom run make. (An old ninja or cargo ignores it.)
bool TakesFifo(std::string_view command) {
  constexpr std::array<std::string_view, 4> kNames = {"ninja", "ninja-build", "samu", "cargo"};
  for (const std::string_view name : kNames)
    if (Basename(command) == name) return true;
  return false;
}

bool IsNinja(std::string_view command) {
  const std::string_view name = Basename(command);
  return name == "ninja" || name == "ninja-build" || name == "samu";
}

JobserverStyle StyleFor(MakeAbility ability) {
  switch (ability) {
    case MakeAbility::kOldDescriptors:
      return JobserverStyle::kOldDescriptors;
    case MakeAbility::kDescriptors:
      return JobserverStyle::kDescriptors;
    case MakeAbility::kFifo:
      return JobserverStyle::kFifo;
  }
  return JobserverStyle::kFifo;
}

}  // namespace

Telling TellCommand(const TellingFacts& facts) {
  if (facts.command_make) return {StyleFor(facts.command_make->ability), ""};
  if (facts.adapter || TakesFifo(facts.command) || !facts.path_make ||
      facts.path_make->ability == MakeAbility::kFifo)
    return {JobserverStyle::kFifo, ""};
  return {StyleFor(facts.path_make->ability),
          absl::StrCat(facts.path_make->path,
                       " is older than 4.4 and would stop at a fifo: jobserver, so this build is "
                       "told of descriptors instead; what Python's subprocess starts does not get "
                       "them")};
}

Telling TellShell(const TellingFacts& facts) {
  if (facts.adapter || !facts.path_make || facts.path_make->ability == MakeAbility::kFifo)
    return {JobserverStyle::kFifo, ""};
  return {
      JobserverStyle::kNone,
      absl::StrCat(facts.path_make->path,
                   " is older than 4.4 and stops at a fifo: jobserver, so MAKEFLAGS is left out; "
                   "use 'headroom run -- CMD', or put a make >= 4.4 first in PATH")};
}

std::string NoteOnJobs(std::string_view command, std::span<const std::string> words, bool is_make,
                       bool gate) {
  std::optional<JobsFlag> jobs;
  if (is_make) {
    jobs = JobsOfMake(words);
  } else if (IsNinja(command)) {
    jobs = JobsOfNinja(words);
  }
  if (!jobs) return "";
  const std::string name(Basename(command));
  const std::string flag = jobs->count ? absl::StrCat("-j", *jobs->count) : "-j without a number";
  return absl::StrCat(name, " was given ", flag, ": it runs ",
                      jobs->count ? "up to so many jobs" : "all that it can at once",
                      " and takes no tokens",
                      gate ? ", only the gate holds its compilers; leave -j out"
                           : "; leave -j out to let Headroom decide");
}

}  // namespace headroom::cli
