// The adapters: a GNU make up to 4.3 takes a `fifo:` in MAKEFLAGS for a fatal error, gcc's
// lto-wrapper up to 12 ignores it. Such a process gets inherited descriptors of the same fifo
// instead, before its main() looks. A program that knows `fifo:` is left alone.
#ifndef HEADROOM_CLIENT_PRELOAD_ADAPTER_H_
#define HEADROOM_CLIENT_PRELOAD_ADAPTER_H_

#include "client/preload/text.h"

namespace headroom::preload {

// Is this program (a file's base name) one that may need it?
bool NeedsAdapterByName(View program);

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

// Does it all for this process: *entry is "MAKEFLAGS=..." in the environment. Changes nothing where
// anything fails.
void Adapt(char** entry);

}  // namespace headroom::preload

#endif  // HEADROOM_CLIENT_PRELOAD_ADAPTER_H_
