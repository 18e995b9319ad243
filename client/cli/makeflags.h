// MAKEFLAGS, the variable by which GNU make, ninja and cargo pass flags and a jobserver on. Pure.
//
// Grammar, from GNU make's manual ("Communicating Options to a Sub-make") and the sources of make
// 3.81 to 4.4 (decode_env_switches in main.c): words separated by blanks, a backslash keeps the
// next character from separating. The first word, if it has neither a leading dash nor a "=", is a
// bundle of one-letter options. What follows a word "--" are variables. Words that we have no
// business with are kept exactly as they are written.
#ifndef HEADROOM_CLIENT_CLI_MAKEFLAGS_H_
#define HEADROOM_CLIENT_CLI_MAKEFLAGS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::cli {

// The -j of a make or ninja command line, or of MAKEFLAGS.
struct JobsFlag {
  std::optional<int> count;  // unset: -j without a number, as many as there are
  friend bool operator==(const JobsFlag&, const JobsFlag&) = default;
};

struct Makeflags {
  std::string letters;               // the bundle in front: "ks"
  std::vector<std::string> options;  // the other words, without -j and without the jobserver
  std::string variables;             // what follows "--", as written
  std::optional<JobsFlag> jobs;
  // The value of --jobserver-auth= or --jobserver-fds=: "3,4", "fifo:/tmp/GMfifo17".
  std::optional<std::string> jobserver;
  friend bool operator==(const Makeflags&, const Makeflags&) = default;
};

// Never fails: what it doesn't know is an option to keep.
Makeflags ParseMakeflags(std::string_view text);

// How a client is told of the lane's fifo.
enum class JobserverStyle {
  kNone,            // not at all: there is a make that would stop at any of the others
  kFifo,            // --jobserver-auth=fifo:PATH: make >= 4.4, ninja >= 1.13, new cargo
  kDescriptors,     // --jobserver-auth=R,W: make 4.2 and 4.3
  kOldDescriptors,  // --jobserver-fds=R,W and a bare -j: make 3.78 to 4.1, to which a number
                    // beside it means "leave the jobserver" (main.c, "-jN forced in submake")
};

// The words that tell of a jobserver: "-j16 --jobserver-auth=fifo:/run/headroom/0/shared/fifo".
// `fd` is the descriptor for both reading and writing.
std::string JobserverWords(JobserverStyle style, unsigned cores, std::string_view fifo, int fd);

// `flags` without its own -j and jobserver, and with `words` instead (may be empty). A leading
// blank where there are no letters: that is how make writes it, and how ninja knows that the first
// word is no bundle.
std::string FormatMakeflags(const Makeflags& flags, std::string_view words);

// The -j among the words of a make command line (argv without argv[0]); the last one counts.
std::optional<JobsFlag> JobsOfMake(std::span<const std::string> words);
// The same of ninja's: -jN, -j N.
std::optional<JobsFlag> JobsOfNinja(std::span<const std::string> words);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_MAKEFLAGS_H_
