#include "client/cli/environment.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace headroom::cli {
namespace {

// Variables that PlanExport saves, and under which name.
struct Saved {
  const char* name;
  const char* saved;
};
constexpr std::array<Saved, 8> kSaved = {{
    {"MAKEFLAGS", "HEADROOM_SAVED_MAKEFLAGS"},
    {"MFLAGS", "HEADROOM_SAVED_MFLAGS"},
    {"CARGO_MAKEFLAGS", "HEADROOM_SAVED_CARGO_MAKEFLAGS"},
    {"LD_PRELOAD", "HEADROOM_SAVED_LD_PRELOAD"},
    {"ASAN_OPTIONS", "HEADROOM_SAVED_ASAN_OPTIONS"},
    {"MAX_JOBS", "HEADROOM_SAVED_MAX_JOBS"},
    {"CMAKE_BUILD_PARALLEL_LEVEL", "HEADROOM_SAVED_CMAKE_BUILD_PARALLEL_LEVEL"},
    {"NVCC_APPEND_FLAGS", "HEADROOM_SAVED_NVCC_APPEND_FLAGS"},
}};
constexpr char kAsanOption[] = "verify_asan_link_order=0";
// What of MAX_JOBS and the like is ours is kept beside it: a number has no mark of its own.
constexpr char kParallel[] = "HEADROOM_PARALLEL";
constexpr std::array<const char*, 4> kOwn = {"HEADROOM_LANE", "HEADROOM_CORES", "HEADROOM_GATE",
                                             kParallel};

// Whether a HEADROOM_LANE that is set there names the jobserver of these flags.
bool IsOurs(const Environment& base, const std::string& jobserver) {
  const std::string lane = Get(base, "HEADROOM_LANE");
  return !lane.empty() && jobserver == absl::StrCat("fifo:", lane, "/fifo");
}

// Whether an outer lane set this variable: kParallel has the words "NAME=VALUE" of those it did.
bool IsOuterLanes(const Environment& base, const std::string& name) {
  const auto value = base.find(name);
  if (value == base.end()) return false;
  const std::string words = absl::StrCat(";", Get(base, kParallel), ";");
  return words.find(absl::StrCat(";", name, "=", value->second, ";")) != std::string::npos;
}

// Whether NVCC_APPEND_FLAGS say something of their own about what we would add.
bool SaysThreads(const std::string& flags) {
  for (const char* flag : {"--threads", "-t", "--jobserver", "-jobserver", "--split-compile"})
    if (absl::StrCat(" ", flags).find(absl::StrCat(" ", flag)) != std::string::npos) return true;
  return false;
}

// LD_PRELOAD is separated by colons or blanks (ld.so(8)).
bool HasPreload(const std::string& list, const std::string& library) {
  size_t at = 0;
  while (at <= list.size()) {
    const size_t end = std::min(list.find_first_of(": ", at), list.size());
    if (list.substr(at, end - at) == library) return true;
    at = end + 1;
  }
  return false;
}

// MAX_JOBS and its like: set where the user set none. What an outer lane set is replaced, or goes.
void PlanParallelLevels(const Environment& base, const LaneFacts::Parallel& parallel,
                        LaneEnvironment& plan) {
  std::string ours;
  const auto put = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) {
      plan.changes.push_back({name, value});
      absl::StrAppend(&ours, ours.empty() ? "" : ";", name, "=", value);
    } else if (IsOuterLanes(base, name)) {
      plan.changes.push_back({name, std::nullopt});
    }
  };
  const auto number = [](unsigned count) { return count == 0 ? "" : std::to_string(count); };
  if (!UsersOwn(base, "MAX_JOBS")) put("MAX_JOBS", number(parallel.max_jobs));
  if (!UsersOwn(base, "CMAKE_BUILD_PARALLEL_LEVEL"))
    put("CMAKE_BUILD_PARALLEL_LEVEL", number(parallel.cmake_level));
  // Added to what is there, so nothing of it is lost; a number of threads of the user's own stays,
  // and so does what an outer lane added.
  const std::string flags = Get(base, "NVCC_APPEND_FLAGS");
  if (IsOuterLanes(base, "NVCC_APPEND_FLAGS")) {
    put("NVCC_APPEND_FLAGS", flags);
  } else if (!parallel.nvcc_flags.empty() && !SaysThreads(flags)) {
    put("NVCC_APPEND_FLAGS", absl::StrCat(flags, flags.empty() ? "" : " ", parallel.nvcc_flags));
  }
  if (!ours.empty()) {
    plan.changes.push_back({kParallel, ours});
  } else if (base.contains(kParallel)) {
    plan.changes.push_back({kParallel, std::nullopt});
  }
}

}  // namespace

std::string Get(const Environment& env, const std::string& name) {
  const auto found = env.find(name);
  return found == env.end() ? "" : found->second;
}

Environment ReadEnvironment(char** environ) {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    // The first of two entries with one name is the one that getenv(3) finds.
    if (equals != nullptr && equals != *entry)
      result.emplace(std::string(*entry, static_cast<size_t>(equals - *entry)), equals + 1);
  }
  return result;
}

std::optional<int> CapFromEnvironment(const Environment& base) {
  std::optional<int> cap;
  for (const char* name : {"MAKEFLAGS", "GNUMAKEFLAGS"}) {
    const Makeflags flags = ParseMakeflags(Get(base, name));
    // Beside a jobserver the number is that jobserver's size, nobody's wish.
    if (flags.jobserver || !flags.jobs || !flags.jobs->count) continue;
    cap = std::min(cap.value_or(*flags.jobs->count), *flags.jobs->count);
  }
  return cap;
}

std::optional<std::string> UsersOwn(const Environment& base, const std::string& name) {
  const std::string value = Get(base, name);
  if (value.empty() || IsOuterLanes(base, name)) return std::nullopt;
  return value;
}

LaneEnvironment PlanEnvironment(const Environment& base, const LaneFacts& lane) {
  LaneEnvironment plan;
  const auto set = [&](const std::string& name, const std::string& value) {
    plan.changes.push_back({name, value});
  };
  const std::string fifo = absl::StrCat(lane.dir, "/fifo");
  const Makeflags outer = ParseMakeflags(Get(base, "MAKEFLAGS"));
  if (outer.jobserver && !IsOurs(base, *outer.jobserver)) {
    plan.notes.push_back(absl::StrCat(
        "MAKEFLAGS names another jobserver (", *outer.jobserver,
        "); this build takes its jobs from Headroom instead, and leaves that one's tokens alone"));
  }

  const std::string words = JobserverWords(lane.style, lane.cores, fifo, lane.fd);
  const std::string makeflags = FormatMakeflags(outer, words);
  if (!makeflags.empty()) {
    set("MAKEFLAGS", makeflags);
  } else if (base.contains("MAKEFLAGS")) {
    plan.changes.push_back({"MAKEFLAGS", std::nullopt});
  }
  // make's older variable, which cargo reads too. It would lead back to the other jobserver.
  if (base.contains("MFLAGS") && ParseMakeflags(Get(base, "MFLAGS")).jobserver)
    plan.changes.push_back({"MFLAGS", std::nullopt});
  // Always by path: cargo can take it, and one that can't makes its own jobserver, as it would
  // have done with descriptors that somebody closed on the way.
  set("CARGO_MAKEFLAGS", JobserverWords(JobserverStyle::kFifo, lane.cores, fifo, -1));
  set("HEADROOM_LANE", lane.dir);
  set("HEADROOM_CORES", std::to_string(lane.cores));
  if (!lane.gate) set("HEADROOM_GATE", "0");
  PlanParallelLevels(base, lane.parallel, plan);

  if (!lane.preload.empty()) {
    const std::string before = Get(base, "LD_PRELOAD");
    if (lane.preload.find_first_of(": ") != std::string::npos) {
      plan.notes.push_back(absl::StrCat("LD_PRELOAD can't hold the path ", lane.preload,
                                        " (it has a blank or a colon): the build runs without the "
                                        "gate; install Headroom elsewhere"));
    } else {
      // In front: a tool is stopped before other libraries take memory.
      if (!HasPreload(before, lane.preload))
        set("LD_PRELOAD", before.empty() ? lane.preload : absl::StrCat(lane.preload, ":", before));
      // AddressSanitizer ends a program whose first library isn't its own.
      const std::string asan = Get(base, "ASAN_OPTIONS");
      if (asan.find("verify_asan_link_order") == std::string::npos)
        set("ASAN_OPTIONS", absl::StrCat(asan, asan.empty() ? "" : ":", kAsanOption));
    }
  }
  return plan;
}

LaneEnvironment PlanExport(const Environment& base, const LaneFacts& lane) {
  const Environment clean = Apply(base, UndoEnvironment(base));
  LaneEnvironment plan = PlanEnvironment(clean, lane);
  std::vector<Change> saves;
  for (const Saved& entry : kSaved) {
    const auto before = clean.find(entry.name);
    const bool changes = std::any_of(plan.changes.begin(), plan.changes.end(),
                                     [&](const Change& c) { return c.name == entry.name; });
    // Saved also where it stays as it is: so that to undo never has to guess whose it was.
    if (before != clean.end()) {
      saves.push_back({entry.saved, before->second});
    } else if (base.contains(entry.saved)) {
      saves.push_back({entry.saved, std::nullopt});
    }
    // What an earlier export set and this one doesn't.
    if (!changes) {
      const auto now = base.find(entry.name);
      const bool same = now == base.end() ? before == clean.end()
                                          : before != clean.end() && now->second == before->second;
      if (same) continue;
      std::optional<std::string> value;
      if (before != clean.end()) value = before->second;
      plan.changes.push_back({entry.name, value});
    }
  }
  for (const std::string name : {"HEADROOM_GATE", kParallel}) {
    const bool says = std::any_of(plan.changes.begin(), plan.changes.end(),
                                  [&](const Change& c) { return c.name == name; });
    if (!says && base.contains(name) && !clean.contains(name))
      saves.push_back({name, std::nullopt});
  }
  plan.changes.insert(plan.changes.begin(), saves.begin(), saves.end());
  return plan;
}

std::vector<Change> UndoEnvironment(const Environment& base) {
  std::vector<Change> changes;
  if (!base.contains("HEADROOM_LANE")) return changes;
  const std::string lane = Get(base, "HEADROOM_LANE");
  for (const Saved& entry : kSaved) {
    if (const auto saved = base.find(entry.saved); saved != base.end()) {
      changes.push_back({entry.name, saved->second});
      changes.push_back({entry.saved, std::nullopt});
      continue;
    }
    const auto now = base.find(entry.name);
    if (now == base.end()) continue;
    const std::string name = entry.name;
    // Nothing was there before; what is there now goes if it is what we put there.
    bool ours = now->second.find(lane + "/fifo") != std::string::npos;
    if (name == "LD_PRELOAD")
      ours = now->second.find("/libheadroom.so") != std::string::npos &&
             now->second.find_first_of(": ") == std::string::npos;
    if (name == "ASAN_OPTIONS") ours = now->second == kAsanOption;
    if (IsOuterLanes(base, name)) ours = true;
    if (ours) changes.push_back({name, std::nullopt});
  }
  for (const char* name : kOwn)
    if (base.contains(name)) changes.push_back({name, std::nullopt});
  return changes;
}

Environment Apply(Environment base, const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    if (change.value) {
      base[change.name] = *change.value;
    } else {
      base.erase(change.name);
    }
  }
  return base;
}

}  // namespace headroom::cli
