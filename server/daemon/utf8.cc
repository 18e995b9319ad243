#include "server/daemon/utf8.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/map_field.h>
#include <google/protobuf/reflection.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::daemon {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Length of the valid sequence at the text's beginning; 0: none.
size_t SequenceLength(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  size_t length = 0;
  uint8_t least = 0x80;  // of the second byte
  uint8_t most = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) least = 0xa0;
    if (lead == 0xed) most = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) least = 0x90;
    if (lead == 0xf4) most = 0x8f;
  } else {
    return 0;
  }
  if (text.size() < length || at(1) < least || at(1) > most) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((at(i) & 0xc0U) != 0x80) return 0;
  }
  return length;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

std::string ToUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

void MakeUtf8(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> set;
  reflection.ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      if (field->is_repeated()) {
        for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
          const std::string text = reflection.GetRepeatedString(message, field, i);
          if (!IsUtf8(text)) reflection.SetRepeatedString(&message, field, i, ToUtf8(text));
        }
      } else {
        const std::string text = reflection.GetString(message, field);
        if (!IsUtf8(text)) reflection.SetString(&message, field, ToUtf8(text));
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (field->is_repeated()) {
        for (int i = 0; i < reflection.FieldSize(message, field); ++i)
          MakeUtf8(*reflection.MutableRepeatedMessage(&message, field, i));
      } else {
        MakeUtf8(*reflection.MutableMessage(&message, field));
      }
    }
  }
}

}  // namespace headroom::daemon
