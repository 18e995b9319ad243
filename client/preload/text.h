// Text without a library: views, numbers, and a writer into a fixed buffer. Pure; no system call.
#ifndef HEADROOM_CLIENT_PRELOAD_TEXT_H_
#define HEADROOM_CLIENT_PRELOAD_TEXT_H_

#include <stddef.h>
#include <stdint.h>

namespace headroom::preload {

// 64-bit division by a small number. On 32-bit processors the compiler would call its own library
// for `/`, which we don't have.
struct Quotient {
  uint64_t value;
  uint32_t rest;
};
Quotient Divide(uint64_t number, uint32_t by);

// Bytes that someone else owns.
struct View {
  const char* data = "";
  size_t size = 0;

  constexpr View() = default;
  constexpr View(const char* text, size_t length) : data(text), size(length) {}
  // Of a NUL-terminated text; null is empty.
  constexpr View(const char* text) : data(text == nullptr ? "" : text) {
    while (data[size] != '\0') ++size;
  }
  constexpr char operator[](size_t i) const { return data[i]; }
  constexpr bool empty() const { return size == 0; }
  constexpr View From(size_t start) const {
    return start >= size ? View(data + size, 0) : View(data + start, size - start);
  }
  constexpr View Before(size_t end) const { return View(data, end < size ? end : size); }
};

inline constexpr size_t kNotFound = ~size_t{0};

bool Equal(View a, View b);
bool StartsWith(View text, View start);
bool EndsWith(View text, View end);
size_t Find(View text, char c);
size_t FindLast(View text, char c);
size_t Find(View text, View part);
// After the last slash.
View BaseName(View path);
// Cuts the text before the separator off `rest` and returns it; false when `rest` is used up.
bool NextPart(View* rest, char separator, View* part);

// Decimal digits at the start of the text, after blanks; 0 if there are none. Larger than 64 bits:
// the largest number.
uint64_t ParseNumber(View text);
// Field `index` (from 0) of text separated by blanks; empty if there are fewer.
View Field(View text, size_t index);
// The number after `key` at the start of a line ("MemAvailable:"); false where there is none.
bool LineNumber(View text, View key, uint64_t* number);

// Appends to a fixed buffer, keeps it NUL-terminated, cuts what doesn't fit.
class Writer {
 public:
  Writer(char* data, size_t capacity) : data_(data), capacity_(capacity) {
    if (capacity_ > 0) data_[0] = '\0';
  }
  Writer& operator<<(View text);
  Writer& operator<<(const char* text) { return *this << View(text); }
  Writer& operator<<(uint64_t number);
  // "3.2 GB": 10^9 and 10^6 bytes, as people buy memory.
  Writer& Size(uint64_t bytes);
  // As `text`, with control characters replaced: it came from someone's command line and goes to a
  // terminal.
  Writer& Printable(View text);
  size_t size() const { return size_; }
  bool cut() const { return cut_; }
  const char* text() const { return data_; }
  View view() const { return View(data_, size_); }

 private:
  char* data_;
  size_t capacity_;
  size_t size_ = 0;
  bool cut_ = false;
};

// Copies into a fixed, NUL-filled array; false if it was cut.
template <size_t kSize>
bool Copy(View from, char (&to)[kSize]) {
  size_t i = 0;
  for (; i < from.size && i + 1 < kSize; ++i) to[i] = from[i];
  const bool whole = i == from.size;
  for (; i < kSize; ++i) to[i] = '\0';
  return whole;
}

}  // namespace headroom::preload

#endif  // HEADROOM_CLIENT_PRELOAD_TEXT_H_
