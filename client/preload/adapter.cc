#include "client/preload/adapter.h"

#include "client/preload/proc.h"
#include "client/preload/syscalls.h"

namespace headroom::preload {
namespace {

constexpr char kAuth[] = "--jobserver-auth=";
constexpr char kFifo[] = "fifo:";

// Out of the way of redirections that recipes number by hand, and of what make opens itself.
constexpr int kLowestDescriptor = 200;
constexpr int kLowestDescriptorOfFew = 10;  // Where the limit on descriptors is small.

// Where `text` has this needle, whose first bytes are rare in a binary.
bool Contains(View text, View needle) {
  const char first = needle[0];
  for (size_t i = 0; i + needle.size <= text.size; ++i) {
    if (text[i] == first && Equal(View(text.data + i, needle.size), needle)) return true;
  }
  return false;
}

int Raise(int fd) {
  sys::Word high = sys::Fcntl(fd, F_DUPFD, kLowestDescriptor);
  if (high < 0) high = sys::Fcntl(fd, F_DUPFD, kLowestDescriptorOfFew);
  sys::Close(fd);
  return static_cast<int>(high);
}

}  // namespace

Client ClientByName(View program) {
  if (Equal(program, "make") || Equal(program, "gmake") || Equal(program, "gnumake") ||
      Equal(program, "lto-wrapper") || StartsWith(program, "make-") ||
      EndsWith(program, "-lto-wrapper")) {
    return Client::kMake;
  }
  // "x86_64-linux-gnu-g++-12": the last part that is not a number.
  View name = program;
  for (;;) {
    const size_t dash = FindLast(name, '-');
    const View last = dash == kNotFound ? name : name.From(dash + 1);
    if (Equal(last, "gcc") || Equal(last, "g++") || Equal(last, "c++") || Equal(last, "cc") ||
        Equal(last, "gfortran")) {
      return Client::kGcc;
    }
    if (dash == kNotFound || last.empty() || last[0] < '0' || last[0] > '9') return Client::kNone;
    name = name.Before(dash);
  }
}

bool LinksWithLto(View arguments) {
  bool lto = false;
  View word;
  while (NextPart(&arguments, '\0', &word)) {
    if (Equal(word, "-c") || Equal(word, "-S") || Equal(word, "-E")) return false;
    lto |= StartsWith(word, "-flto");
  }
  return lto;
}

View FindFifo(View makeflags) {
  View found;
  View word;
  while (NextPart(&makeflags, ' ', &word)) {
    if (!StartsWith(word, kAuth)) continue;
    const View value = word.From(sizeof(kAuth) - 1);
    found = StartsWith(value, kFifo) ? value.From(sizeof(kFifo) - 1) : View();
  }
  return found;
}

Dialect ParseDialect(View binary) {
  Dialect dialect;
  // "fifo", not "fifo:": a compiler may turn the comparison into one of a four-byte number, which
  // still has these bytes in this order, and one of ':'.
  dialect.fifo = Contains(binary, "fifo");
  dialect.auth = Contains(binary, "jobserver-auth");
  dialect.any = dialect.auth || Contains(binary, "jobserver-fds");
  return dialect;
}

bool Rewrite(View makeflags, const Dialect& dialect, int read, int write, Writer* out) {
  bool first = true;
  View word;
  // A leading blank means "no single-letter flags" to make, so empty parts are kept.
  while (NextPart(&makeflags, ' ', &word)) {
    if (!first) *out << " ";
    first = false;
    if (StartsWith(word, kAuth) && StartsWith(word.From(sizeof(kAuth) - 1), kFifo)) {
      *out << (dialect.auth ? kAuth : "--jobserver-fds=") << static_cast<uint64_t>(read) << ","
           << static_cast<uint64_t>(write);
      // The oldest also want -j to know that they are one of several.
      if (!dialect.auth) *out << " -j";
    } else {
      *out << word;
    }
  }
  return !out->cut();
}

void Adapt(Client client, char** entry) {
  constexpr char kName[] = "MAKEFLAGS=";
  const View old(*entry);
  const View flags = old.From(sizeof(kName) - 1);
  const View fifo = FindFifo(flags);
  char path[1024];
  Writer path_writer(path, sizeof(path));
  path_writer << fifo;
  if (fifo.empty() || path_writer.cut()) return;
  if (client == Client::kGcc) {
    // A link's options come before its objects, mostly: a beginning is enough.
    char arguments[16384];
    if (!LinksWithLto(ReadFile("/proc/self/cmdline", arguments, sizeof(arguments)))) return;
  }

  const int program = sys::Open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (program < 0) return;
  sys::FileInfo info;
  // A make is a few hundred KB, an lto-wrapper 1 MB; what is far larger is something else.
  constexpr uint64_t kLargest = 64u << 20;
  Dialect dialect;
  dialect.fifo = true;  // Unknown: leave it alone.
  if (sys::StatDescriptor(program, &info) == 0 && info.size > 0 && info.size < kLargest) {
    const size_t size = static_cast<size_t>(info.size);
    if (void* text = sys::Map(size, sys::kProtRead, sys::kMapPrivate, program)) {
      dialect = ParseDialect(View(static_cast<const char*>(text), size));
      sys::Unmap(text, size);
    }
  }
  sys::Close(program);
  if (dialect.fifo || !dialect.any) return;

  // Two ends, as of a pipe: make closes each by itself. The reading end opens at once only without
  // blocking; blocking reads are what a client expects of a pipe.
  int read = sys::Open(path, O_RDONLY | O_NONBLOCK);
  if (read < 0) return;
  sys::FileInfo opened;
  if (sys::StatDescriptor(read, &opened) != 0 || (opened.mode & sys::kTypeMask) != sys::kTypeFifo) {
    sys::Close(read);
    return;
  }
  int write = sys::Open(path, O_WRONLY | O_NONBLOCK);
  read = Raise(read);
  write = write < 0 ? write : Raise(write);
  const size_t room = old.size + 64;
  char* text = read < 0 || write < 0
                   ? nullptr
                   : static_cast<char*>(sys::Map(room, sys::kProtRead | sys::kProtWrite,
                                                 sys::kMapPrivate | sys::kMapAnonymous));
  bool done = false;
  if (text != nullptr) {
    Writer out(text, room);
    out << kName;
    done = Rewrite(flags, dialect, read, write, &out);
  }
  if (!done) {
    if (read >= 0) sys::Close(read);
    if (write >= 0) sys::Close(write);
    if (text != nullptr) sys::Unmap(text, room);
    return;
  }
  sys::Fcntl(read, F_SETFL, 0);
  sys::Fcntl(write, F_SETFL, 0);
  *entry = text;
}

}  // namespace headroom::preload
