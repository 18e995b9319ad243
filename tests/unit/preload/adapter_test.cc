#include "client/preload/adapter.h"

#include <catch2/catch.hpp>
#include <string>

namespace headroom::preload {
namespace {

std::string Fifo(const char* flags) {
  const View fifo = FindFifo(flags);
  return std::string(fifo.data, fifo.size);
}

std::string Rewritten(const char* flags, bool auth = true) {
  char buffer[256];
  Writer writer(buffer, sizeof(buffer));
  Dialect dialect;
  dialect.auth = auth;
  CHECK(Rewrite(flags, dialect, 200, 201, &writer));
  return buffer;
}

TEST_CASE("names that may need an adapter") {
  for (const char* name :
       {"make", "gmake", "gnumake", "lto-wrapper", "make-4.3", "x86_64-linux-gnu-lto-wrapper"}) {
    CHECK(ClientByName(name) == Client::kMake);
  }
  for (const char* name : {"gcc", "g++", "x86_64-linux-gnu-gcc-12", "gcc-12.2", "c++", "gfortran-9",
                           "aarch64-linux-gnu-g++"}) {
    CHECK(ClientByName(name) == Client::kGcc);
  }
  for (const char* name : {"cmake", "ninja", "remake", "qmake", "", "makefile", "automake", "clang",
                           "gcc-ar", "gcc-ar-12", "12", "-", "cc1plus", "nvcc", "gcc-x-1"}) {
    CHECK(ClientByName(name) == Client::kNone);
  }
}

TEST_CASE("a gcc driver needs it for links with -flto alone") {
  const auto links = [](std::string words) {
    for (char& c : words) c = c == ' ' ? '\0' : c;
    words += '\0';
    return LinksWithLto(View(words.data(), words.size()));
  };
  CHECK(links("gcc -O2 -flto a.o -o a"));
  CHECK(links("gcc -flto=auto a.o"));
  CHECK(!links("gcc -O2 a.o"));
  CHECK(!links("gcc -flto -c a.c"));
  CHECK(!links("gcc -c -flto a.c"));
  CHECK(!links("gcc"));
  CHECK(!LinksWithLto(""));
}

TEST_CASE("the fifo in MAKEFLAGS as real tools write it") {
  CHECK(Fifo(" -j8 --jobserver-auth=fifo:/run/headroom/0/shared/fifo") ==
        "/run/headroom/0/shared/fifo");
  CHECK(Fifo("k -j --jobserver-auth=fifo:/tmp/GMfifo123") == "/tmp/GMfifo123");
  CHECK(Fifo(" --jobserver-auth=fifo:/a -j4 -- X=1") == "/a");
  // The last one holds.
  CHECK(Fifo(" --jobserver-auth=fifo:/a --jobserver-auth=3,4") == "");
  CHECK(Fifo(" --jobserver-auth=3,4 --jobserver-auth=fifo:/a") == "/a");
  CHECK(Fifo("") == "");
  CHECK(Fifo(" -j8") == "");
  CHECK(Fifo(" --jobserver-auth=3,4") == "");
  CHECK(Fifo(" --jobserver-fds=fifo:/a") == "");
  CHECK(Fifo(" --jobserver-auth=fifo:") == "");
}

TEST_CASE("only what names the fifo is changed") {
  CHECK(Rewritten(" -j8 --jobserver-auth=fifo:/a") == " -j8 --jobserver-auth=200,201");
  CHECK(Rewritten("ks -j8 --jobserver-auth=fifo:/a -- A=b  c") ==
        "ks -j8 --jobserver-auth=200,201 -- A=b  c");
  CHECK(Rewritten(" --jobserver-auth=3,4 --jobserver-auth=fifo:/a") ==
        " --jobserver-auth=3,4 --jobserver-auth=200,201");
  CHECK(Rewritten(" -j8 --jobserver-auth=fifo:/a", false) == " -j8 --jobserver-fds=200,201 -j");
  char small[16];
  Writer writer(small, sizeof(small));
  CHECK(!Rewrite(" -j8 --jobserver-auth=fifo:/a", Dialect(), 200, 201, &writer));
}

TEST_CASE("what a binary says about itself") {
  CHECK(ParseDialect("..--jobserver-auth..fifo:..").fifo);
  // "fifo:" as a comparison with numbers.
  CHECK(ParseDialect(View("\x81\x38"
                          "fifo"
                          "\x75\x04\x80\x78\x04\x3a",
                          12))
            .fifo);
  const Dialect make43 = ParseDialect("invalid --jobserver-auth string '%s'");
  CHECK(!make43.fifo);
  CHECK(make43.auth);
  CHECK(make43.any);
  const Dialect make41 = ParseDialect("internal error: invalid --jobserver-fds string");
  CHECK(!make41.auth);
  CHECK(make41.any);
  CHECK(!ParseDialect("no jobserver here").any);
  CHECK(!ParseDialect("").any);
}

}  // namespace
}  // namespace headroom::preload
