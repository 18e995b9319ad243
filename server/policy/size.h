// SIZE, as the command line and the configuration write it: a whole number with K, M or G (1024)
// behind it, a plain number of bytes, or a percentage ("5%", "2.5%"). One grammar for all programs.
#ifndef HEADROOM_SERVER_POLICY_SIZE_H_
#define HEADROOM_SERVER_POLICY_SIZE_H_

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "server/policy/types.h"

namespace headroom::policy {

// What people are told when a SIZE is wrong: the grammar, in a form that ends a sentence.
inline constexpr std::string_view kSizeGrammar =
    "a number of bytes, or one with K, M or G (1024), or a percentage such as 5%";

// Bytes are 0 to 2^60 - 1; percentages 0 to 100 with at most two decimals.
using Size = std::variant<Bytes, Permyriad>;

// Unset: not a SIZE. Nothing may stand before or after it, not even a blank.
std::optional<Size> ParseSize(std::string_view text);

// The shortest SIZE that means exactly this.
std::string FormatSize(const Size& size);

}  // namespace headroom::policy

#endif  // HEADROOM_SERVER_POLICY_SIZE_H_
