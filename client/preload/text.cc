#include "client/preload/text.h"

namespace headroom::preload {
namespace {

bool Blank(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}
bool Digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

Quotient Divide(uint64_t number, uint32_t by) {
#if defined(__LP64__)
  return {number / by, static_cast<uint32_t>(number % by)};
#else
  // By hand, bit by bit: rest stays below `by`, so it fits 33 bits.
  uint64_t rest = 0;
  uint64_t value = 0;
  for (int bit = 63; bit >= 0; --bit) {
    rest = rest << 1 | (number >> bit & 1);
    if (rest >= by) {
      rest -= by;
      value |= uint64_t{1} << bit;
    }
  }
  return {value, static_cast<uint32_t>(rest)};
#endif
}

bool Equal(View a, View b) {
  if (a.size != b.size) return false;
  for (size_t i = 0; i < a.size; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

bool StartsWith(View text, View start) {
  return Equal(text.Before(start.size), start);
}

bool EndsWith(View text, View end) {
  return text.size >= end.size && Equal(text.From(text.size - end.size), end);
}

size_t Find(View text, char c) {
  for (size_t i = 0; i < text.size; ++i) {
    if (text[i] == c) return i;
  }
  return kNotFound;
}

size_t FindLast(View text, char c) {
  for (size_t i = text.size; i > 0; --i) {
    if (text[i - 1] == c) return i - 1;
  }
  return kNotFound;
}

size_t Find(View text, View part) {
  for (size_t i = 0; i + part.size <= text.size; ++i) {
    if (Equal(View(text.data + i, part.size), part)) return i;
  }
  return kNotFound;
}

View BaseName(View path) {
  const size_t slash = FindLast(path, '/');
  return slash == kNotFound ? path : path.From(slash + 1);
}

bool NextPart(View* rest, char separator, View* part) {
  if (rest->empty()) return false;
  const size_t end = Find(*rest, separator);
  *part = rest->Before(end);
  *rest = end == kNotFound ? View() : rest->From(end + 1);
  return true;
}

uint64_t ParseNumber(View text) {
  size_t i = 0;
  while (i < text.size && Blank(text[i])) ++i;
  uint64_t number = 0;
  for (; i < text.size && Digit(text[i]); ++i) {
    const uint64_t digit = static_cast<uint64_t>(text[i] - '0');
    constexpr uint64_t kMost = ~uint64_t{0};
    constexpr uint64_t kLimit = 1844674407370955161;  // kMost / 10
    if (number > kLimit || (number == kLimit && digit > 5)) return kMost;
    number = number * 10 + digit;
  }
  return number;
}

View Field(View text, size_t index) {
  size_t i = 0;
  for (;;) {
    while (i < text.size && Blank(text[i])) ++i;
    const size_t start = i;
    while (i < text.size && !Blank(text[i])) ++i;
    if (index-- == 0 || start == i) return View(text.data + start, i - start);
  }
}

bool LineNumber(View text, View key, uint64_t* number) {
  View line;
  while (NextPart(&text, '\n', &line)) {
    if (!StartsWith(line, key)) continue;
    const View rest = line.From(key.size);
    if (Field(rest, 0).empty() || !Digit(Field(rest, 0)[0])) continue;
    *number = ParseNumber(rest);
    return true;
  }
  return false;
}

Writer& Writer::operator<<(View text) {
  for (size_t i = 0; i < text.size; ++i) {
    if (size_ + 1 >= capacity_) {
      cut_ = true;
      break;
    }
    data_[size_++] = text[i];
  }
  if (capacity_ > 0) data_[size_] = '\0';
  return *this;
}

Writer& Writer::operator<<(uint64_t number) {
  char digits[20];
  size_t count = 0;
  do {
    const Quotient next = Divide(number, 10);
    digits[sizeof(digits) - ++count] = static_cast<char>('0' + next.rest);
    number = next.value;
  } while (number != 0);
  return *this << View(digits + sizeof(digits) - count, count);
}

Writer& Writer::Size(uint64_t bytes) {
  constexpr uint32_t kHundredMega = 100'000'000;
  constexpr uint32_t kMega = 1'000'000;
  if (bytes < uint64_t{10} * kHundredMega) return *this << Divide(bytes, kMega).value << " MB";
  const Quotient tenths = Divide(Divide(bytes + kHundredMega / 2, kHundredMega).value, 10);
  return *this << tenths.value << "." << uint64_t{tenths.rest} << " GB";
}

Writer& Writer::Printable(View text) {
  for (size_t i = 0; i < text.size; ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    *this << (c < 0x20 || c == 0x7f ? View("?") : View(text.data + i, 1));
  }
  return *this;
}

}  // namespace headroom::preload
