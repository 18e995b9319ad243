// What the dynamic loader will do with a program, read from its file. Pure.
#ifndef HEADROOM_CLIENT_CLI_ELF_H_
#define HEADROOM_CLIENT_CLI_ELF_H_

#include <string_view>

namespace headroom::cli {

enum class Loading {
  kNotElf,  // a script, or no program
  kStatic,  // no interpreter (PT_INTERP): LD_PRELOAD is not read
  kMusl,    // ld-musl-*.so: takes LD_PRELOAD
  kOther,   // glibc's ld-linux and the like
};

// `image`: the first bytes of the file, at least up to its program headers and interpreter's name
// (some KiB). What points outside of it counts as not there. Both word sizes, this machine's byte
// order.
Loading LoadingOf(std::string_view image);

}  // namespace headroom::cli

#endif  // HEADROOM_CLIENT_CLI_ELF_H_
