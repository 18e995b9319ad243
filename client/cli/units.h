// Sizes and times as people read them. Pure.
#ifndef HEADROOM_CLIENT_CLI_UNITS_H_
#define HEADROOM_CLIENT_CLI_UNITS_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace headroom::cli {

// "512 B", "1.9 GiB", "18.2 GiB", "432 GiB", "-3.0 MiB".
std::string HumanBytes(int64_t bytes);

// "0.4 s", "12.3 s", "3 min 12 s", "2 h 5 min".
std::string HumanDuration(std::chrono::nanoseconds duration);

// "2.0", "0.4".
std::string OneDecimal(double value);

// Local time of day of nanoseconds since the epoch: "10:42:07.3".
std::string TimeOfDay(uint64_t realtime_ns);

// "1 freeze", "2 freezes".
std::string Count(uint64_t count, const std::string& one, const std::string& many);

// What may be printed to a terminal: control characters and broken UTF-8 become "?". Names of
// processes and files are whatever their makers chose.
std::string Printable(const std::string& text);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_UNITS_H_
