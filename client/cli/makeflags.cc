#include "client/cli/makeflags.h"

#include <absl/strings/str_cat.h>

#include <charconv>
#include <system_error>

namespace headroom::cli {
namespace {

bool IsBlank(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}

bool AllDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// One word at `at`, with its backslashes; `at` goes to the blank behind it.
std::string_view NextWord(std::string_view text, size_t& at) {
  while (at < text.size() && IsBlank(text[at])) ++at;
  const size_t begin = at;
  while (at < text.size() && !IsBlank(text[at])) at += text[at] == '\\' ? 2u : 1u;
  if (at > text.size()) at = text.size();
  return text.substr(begin, at - begin);
}

// Unset where the digits are no count of jobs (0, or too many): make refuses those itself.
std::optional<JobsFlag> ParseCount(std::string_view digits) {
  if (digits.empty()) return JobsFlag{};
  int count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc() || end != digits.data() + digits.size() || count < 1)
    return std::nullopt;
  return JobsFlag{count};
}

std::optional<std::string_view> After(std::string_view word, std::string_view prefix) {
  if (word.substr(0, prefix.size()) != prefix) return std::nullopt;
  return word.substr(prefix.size());
}

// Takes "j" or "jN" out of a bundle of one-letter options. Letters behind one that takes an
// argument are that argument ("-Ij8" is an include folder).
std::optional<JobsFlag> TakeJobs(std::string& letters) {
  constexpr std::string_view kTakeArguments = "CEfIloOW";
  for (size_t i = 0; i < letters.size(); ++i) {
    if (kTakeArguments.find(letters[i]) != std::string_view::npos) return std::nullopt;
    if (letters[i] != 'j') continue;
    size_t end = i + 1;
    while (end < letters.size() && letters[end] >= '0' && letters[end] <= '9') ++end;
    const auto jobs = ParseCount(std::string_view(letters).substr(i + 1, end - i - 1));
    if (jobs) letters.erase(i, end - i);
    return jobs;
  }
  return std::nullopt;
}

// Reads the words of a make, from MAKEFLAGS or a command line.
class Reader {
 public:
  // Whether the word has been used up; otherwise it is for the caller to keep (a bundle perhaps
  // shorter than it was). `next` is the word behind it; `took_next` says that it is used up too.
  bool Take(std::string& word, std::string_view next, bool& took_next) {
    took_next = false;
    if (const auto value = After(word, "--jobserver-auth=")) return Jobserver(*value);
    if (const auto value = After(word, "--jobserver-fds=")) return Jobserver(*value);
    if (const auto value = After(word, "--jobs=")) return Count(*value);
    if (word == "--jobs" || word == "-j") {
      took_next = AllDigits(next);
      return Count(took_next ? next : std::string_view());
    }
    if (word.size() < 2 || word[0] != '-' || word[1] == '-') return false;
    std::string letters = word.substr(1);
    const bool last_is_jobs = letters.back() == 'j';
    const auto found = TakeJobs(letters);
    if (!found) return false;
    jobs = found;
    if (last_is_jobs && !found->count && AllDigits(next)) {  // "-kj 8"
      took_next = true;
      jobs = ParseCount(next);
    }
    word = "-" + letters;
    return letters.empty();
  }

  std::optional<JobsFlag> jobs;
  std::optional<std::string> jobserver;

 private:
  bool Jobserver(std::string_view value) {
    jobserver = std::string(value);
    return true;
  }
  bool Count(std::string_view digits) {
    const auto found = ParseCount(digits);
    if (found) jobs = found;
    return found.has_value();
  }
};

}  // namespace

Makeflags ParseMakeflags(std::string_view text) {
  Makeflags flags;
  Reader reader;
  size_t at = 0;
  bool first = true;
  while (true) {
    std::string word(NextWord(text, at));
    if (word.empty()) break;
    if (word == "--") {
      while (at < text.size() && IsBlank(text[at])) ++at;
      flags.variables = std::string(text.substr(at));
      break;
    }
    // make writes a blank first where there are no letters.
    const bool bundle =
        first && !IsBlank(text[0]) && word[0] != '-' && word.find('=') == std::string::npos;
    first = false;
    if (bundle) {
      reader.jobs = TakeJobs(word);
      flags.letters = word;
      continue;
    }
    size_t behind = at;
    const std::string_view next = NextWord(text, behind);
    bool took_next = false;
    if (!reader.Take(word, next, took_next)) flags.options.push_back(word);
    if (took_next) at = behind;
  }
  flags.jobs = reader.jobs;
  flags.jobserver = reader.jobserver;
  return flags;
}

std::string JobserverWords(JobserverStyle style, unsigned cores, std::string_view fifo, int fd) {
  switch (style) {
    case JobserverStyle::kNone:
      return "";
    case JobserverStyle::kFifo:
      return absl::StrCat("-j", cores,
                          " --jobserver-auth=fifo:", absl::string_view(fifo.data(), fifo.size()));
    case JobserverStyle::kDescriptors:
      return absl::StrCat("-j", cores, " --jobserver-auth=", fd, ",", fd);
    case JobserverStyle::kOldDescriptors:
      return absl::StrCat("--jobserver-fds=", fd, ",", fd, " -j");
  }
  return "";
}

std::string FormatMakeflags(const Makeflags& flags, std::string_view words) {
  std::string text = flags.letters;
  const auto add = [&text](std::string_view word) {
    if (word.empty()) return;
    text += ' ';
    text += word;
  };
  add(words);
  for (const std::string& option : flags.options) add(option);
  if (!flags.variables.empty()) {
    add("--");
    add(flags.variables);
  }
  return text;
}

std::optional<JobsFlag> JobsOfMake(std::span<const std::string> words) {
  Reader reader;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--") break;
    std::string word = words[i];
    bool took_next = false;
    reader.Take(word, i + 1 < words.size() ? words[i + 1] : std::string_view(), took_next);
    if (took_next) ++i;
  }
  return reader.jobs;
}

std::optional<JobsFlag> JobsOfNinja(std::span<const std::string> words) {
  std::optional<JobsFlag> jobs;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string_view value;
    if (words[i] == "--") break;
    if (words[i] == "-j" && i + 1 < words.size()) {
      value = words[++i];
    } else if (const auto rest = After(words[i], "-j"); rest && !rest->empty()) {
      value = *rest;
    } else {
      continue;
    }
    if (!AllDigits(value)) continue;
    // ninja: "-j0" is as many as there are.
    const auto count = ParseCount(value);
    jobs = count ? *count : JobsFlag{};
  }
  return jobs;
}

}  // namespace headroom::cli
