// The adapters: a GNU make up to 4.3 takes a `fifo:` in MAKEFLAGS for a fatal error; gcc up to 12
// takes it for a jobserver that is gone, and its driver removes it before lto-wrapper could look.
// Such a process gets inherited descriptors of the same fifo instead, before its main() looks. A
// program that knows `fifo:` is left alone.
#ifndef HEADROOM_CLIENT_PRELOAD_ADAPTER_H_
#define HEADROOM_CLIENT_PRELOAD_ADAPTER_H_

#include "client/preload/text.h"

namespace headroom::preload {

enum class Client : uint8_t {
  kNone,
  kMake,  // or lto-wrapper: a client itself
  kGcc,   // gcc's driver: one only where it links with -flto
};
// Which of those is this program, by its file's base name?
Client ClientByName(View program);

// Does a gcc driver with these arguments (each ended by NUL) link with -flto?
bool LinksWithLto(View arguments);

// The fifo's path in the value of MAKEFLAGS: of the last --jobserver-auth, if it is a fifo. Empty
// if there is none.
View FindFifo(View makeflags);

// What a client's own binary says about what it understands.
struct Dialect {
  bool fifo = false;  // nothing to do
  bool auth = false;  // --jobserver-auth=R,W; else --jobserver-fds=R,W (make <= 4.1)
  bool any = false;   // a jobserver at all
};
Dialect ParseDialect(View binary);

// MAKEFLAGS with every --jobserver-auth=fifo: replaced by `--jobserver-...=read,write`. False if it
// did not fit.
bool Rewrite(View makeflags, const Dialect& dialect, int read, int write, Writer* out);

// Does it all for this process, which is a `client`: *entry is "MAKEFLAGS=..." in the environment.
// Changes nothing where anything fails.
void Adapt(Client client, char** entry);

}  // namespace headroom::preload

#endif  // HEADROOM_CLIENT_PRELOAD_ADAPTER_H_
