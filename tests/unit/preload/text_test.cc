#include "client/preload/text.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

namespace headroom::preload {
namespace {

std::string Text(View view) {
  return std::string(view.data, view.size);
}

TEST_CASE("views are compared, searched and cut") {
  CHECK(Equal(View("abc"), "abc"));
  CHECK(!Equal(View("abc"), "abd"));
  CHECK(!Equal(View("abc"), "ab"));
  CHECK(View(static_cast<const char*>(nullptr)).empty());
  CHECK(StartsWith("abc", "ab"));
  CHECK(!StartsWith("a", "ab"));
  CHECK(EndsWith("abc", "bc"));
  CHECK(!EndsWith("c", "bc"));
  CHECK(Find(View("a.b.c"), '.') == 1);
  CHECK(FindLast("a.b.c", '.') == 3);
  CHECK(Find(View("abc"), 'x') == kNotFound);
  CHECK(Find(View("a - b"), View(" - ")) == 1);
  CHECK(Find(View("ab"), View("abc")) == kNotFound);
  CHECK(Text(BaseName("/usr/bin/ld")) == "ld");
  CHECK(Text(BaseName("ld")) == "ld");
  CHECK(Text(BaseName("/usr/")) == "");
  CHECK(Text(View("abc").From(1)) == "bc");
  CHECK(View("abc").From(9).empty());
  CHECK(Text(View("abc").Before(2)) == "ab");
  CHECK(Text(View("abc").Before(kNotFound)) == "abc");
}

TEST_CASE("parts between separators, empty ones included") {
  View rest("a::b");
  View part;
  std::string all;
  while (NextPart(&rest, ':', &part)) all += "[" + Text(part) + "]";
  CHECK(all == "[a][][b]");
}

TEST_CASE("numbers") {
  CHECK(ParseNumber("0") == 0);
  CHECK(ParseNumber("  42 kB") == 42);
  CHECK(ParseNumber("x") == 0);
  CHECK(ParseNumber("") == 0);
  CHECK(ParseNumber("-5") == 0);
  CHECK(ParseNumber("18446744073709551615") == std::numeric_limits<uint64_t>::max());
  CHECK(ParseNumber("18446744073709551616") == std::numeric_limits<uint64_t>::max());
  CHECK(ParseNumber("99999999999999999999999") == std::numeric_limits<uint64_t>::max());
  CHECK(Text(Field(" a  bb c", 1)) == "bb");
  CHECK(Field("a b", 2).empty());
  uint64_t value = 7;
  CHECK(LineNumber("MemTotal: 5 kB\nMemAvailable:   6 kB\n", "MemAvailable:", &value));
  CHECK(value == 6);
  CHECK(!LineNumber("oom_kill_disable 0\n", "oom_kill ", &value));
  CHECK(LineNumber("oom_kill_disable 0\nunder_oom 0\noom_kill 3", "oom_kill ", &value));
  CHECK(value == 3);
  CHECK(!LineNumber("key max\n", "key ", &value));
}

TEST_CASE("division, also as 32-bit processors do it") {
  for (const uint64_t number :
       {uint64_t{0}, uint64_t{7}, uint64_t{1} << 40, std::numeric_limits<uint64_t>::max()}) {
    for (const uint32_t by : {1u, 10u, 1000u, 4294967295u}) {
      const Quotient quotient = Divide(number, by);
      CHECK(quotient.value == number / by);
      CHECK(quotient.rest == number % by);
    }
  }
}

TEST_CASE("the writer keeps within its buffer") {
  char buffer[8];
  Writer writer(buffer, sizeof(buffer));
  writer << "abc" << uint64_t{1234};
  CHECK(std::string(buffer) == "abc1234");
  CHECK(!writer.cut());
  writer << "x";
  CHECK(writer.cut());
  CHECK(std::string(buffer) == "abc1234");
}

TEST_CASE("sizes and foreign text as people should see them") {
  const auto size = [](uint64_t bytes) {
    char buffer[32];
    Writer writer(buffer, sizeof(buffer));
    writer.Size(bytes);
    return std::string(buffer);
  };
  CHECK(size(0) == "0 MB");
  CHECK(size(999'999'999) == "999 MB");
  CHECK(size(1'000'000'000) == "1.0 GB");
  CHECK(size(3'249'999'999) == "3.2 GB");
  CHECK(size(3'950'000'000) == "4.0 GB");
  CHECK(size(std::numeric_limits<uint64_t>::max() / 2) == "9223372036.9 GB");
  char buffer[32];
  Writer(buffer, sizeof(buffer)).Printable("a\x1b[31m\nb\x7f");
  CHECK(std::string(buffer) == "a?[31m?b?");
}

TEST_CASE("copies end with NUL and say whether all fitted") {
  char to[4] = {'x', 'x', 'x', 'x'};
  CHECK(Copy(View("abc"), to));
  CHECK(std::string(to) == "abc");
  CHECK(!Copy(View("abcd"), to));
  CHECK(std::string(to) == "abc");
  CHECK(Copy(View(""), to));
  CHECK(std::string(to, 4) == std::string(4, '\0'));
}

}  // namespace
}  // namespace headroom::preload
