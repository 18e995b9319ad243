#include "client/cli/parallel.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

namespace headroom::cli {
namespace {

// Of a word that counts as a number for all who read it.
bool IsDigits(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

LaneFacts::Parallel PlanParallel(const ParallelFacts& facts) {
  LaneFacts::Parallel plan;
  if (facts.gated || facts.careful) {
    const bool exactly = facts.careful || facts.jobs_given;
    plan.max_jobs = exactly ? facts.jobs : 2 * facts.jobs;
    if (facts.ninja && !NinjaTakesTokens(*facts.ninja)) plan.cmake_level = facts.jobs;
  }
  if (!facts.gated && facts.fifo && facts.nvcc)
    plan.nvcc_flags = NvccTakesTokens(*facts.nvcc) ? "--jobserver" : "--threads 1";
  return plan;
}

std::vector<std::string> NotesOnCaps(const Environment& base) {
  std::vector<std::string> notes;
  for (const char* name : {"MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"}) {
    const std::optional<std::string> value = UsersOwn(base, name);
    if (!value) continue;
    notes.push_back(absl::StrCat(
        name, " says ", IsDigits(*value) ? *value : absl::StrCat("'", *value, "'"), ": kept",
        IsDigits(*value) ? " as a cap" : "", "; unset it to let Headroom alone decide"));
  }
  return notes;
}

}  // namespace headroom::cli
