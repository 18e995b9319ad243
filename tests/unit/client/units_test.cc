#include "client/cli/units.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>

namespace headroom::cli {
namespace {

using std::chrono::milliseconds;

TEST_CASE("Sizes for people") {
  CHECK(HumanBytes(0) == "0 B");
  CHECK(HumanBytes(1023) == "1023 B");
  CHECK(HumanBytes(1024) == "1.0 KiB");
  CHECK(HumanBytes(1536 << 10) == "1.5 MiB");
  CHECK(HumanBytes(int64_t{8375186227}) == "7.8 GiB");
  CHECK(HumanBytes(int64_t{432} << 30) == "432 GiB");
  CHECK(HumanBytes(-(int64_t{3} << 20)) == "-3.0 MiB");
  // Never "1024 KiB", never "100.0".
  CHECK(HumanBytes((1 << 20) - 1) == "1.0 MiB");
  CHECK(HumanBytes(int64_t{100} * (1 << 20) - 1) == "100 MiB");
  CHECK(HumanBytes(INT64_MAX) == "8192 PiB");
  CHECK(HumanBytes(INT64_MIN) == "-8192 PiB");
}

TEST_CASE("Times for people") {
  CHECK(HumanDuration(milliseconds(0)) == "0.0 s");
  CHECK(HumanDuration(milliseconds(12'340)) == "12.3 s");
  CHECK(HumanDuration(milliseconds(59'960)) == "1 min 0 s");
  CHECK(HumanDuration(milliseconds(192'300)) == "3 min 12 s");
  CHECK(HumanDuration(milliseconds(7'500'000)) == "2 h 5 min");
}

TEST_CASE("The time of day is the local one") {
  setenv("TZ", "UTC", 1);
  tzset();
  CHECK(TimeOfDay(0) == "00:00:00.0");
  CHECK(TimeOfDay((10 * 3600 + 42 * 60 + 7) * uint64_t{1'000'000'000} + 390'000'000) ==
        "10:42:07.3");
}

TEST_CASE("Counts") {
  CHECK(Count(0, "freeze", "freezes") == "0 freezes");
  CHECK(Count(1, "freeze", "freezes") == "1 freeze");
}

TEST_CASE("Nothing that a process is called reaches the terminal as a command") {
  CHECK(Printable("plain name.cu") == "plain name.cu");
  CHECK(Printable("ü€😀") == "ü€😀");
  CHECK(Printable("a\x1b[2Jb") == "a?[2Jb");
  CHECK(Printable("a\nb\tc\x7f") == "a?b?c?");
  CHECK(Printable("\xc2\x9b"
                  "2J") == "??2J");  // CSI in one character
  CHECK(Printable("\xff\xc3") == "??");
  CHECK(Printable(std::string("\0x", 2)) == "?x");
}

}  // namespace
}  // namespace headroom::cli
