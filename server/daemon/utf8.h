// Names of files, cgroups and programs may be any bytes, but a protobuf string must be UTF-8: a
// peer's parser refuses the whole message otherwise.
#ifndef HEADROOM_SERVER_DAEMON_UTF8_H_
#define HEADROOM_SERVER_DAEMON_UTF8_H_

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace headroom::daemon {

// Every byte that belongs to no valid sequence becomes U+FFFD (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF).
std::string ToUtf8(std::string_view text);

// Does so in all string fields of the message and of those in it.
void MakeUtf8(google::protobuf::Message& message);

}  // namespace headroom::daemon

#endif  // HEADROOM_SERVER_DAEMON_UTF8_H_
