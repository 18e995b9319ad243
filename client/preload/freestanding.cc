// The four functions that the compiler may call by itself, since there is no C library to bring
// them. Hidden, so the program's own are untouched. Compiled without loop-to-call optimisation: it
// would turn each into a call of itself.
#include <stddef.h>

extern "C" {

void* memcpy(void* to, const void* from, size_t size) {
  char* out = static_cast<char*>(to);
  const char* in = static_cast<const char*>(from);
  for (size_t i = 0; i < size; ++i) out[i] = in[i];
  return to;
}

void* memmove(void* to, const void* from, size_t size) {
  char* out = static_cast<char*>(to);
  const char* in = static_cast<const char*>(from);
  if (out < in) return memcpy(to, from, size);
  for (size_t i = size; i > 0; --i) out[i - 1] = in[i - 1];
  return to;
}

void* memset(void* to, int value, size_t size) {
  char* out = static_cast<char*>(to);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(value);
  return to;
}

int memcmp(const void* a, const void* b, size_t size) {
  const unsigned char* left = static_cast<const unsigned char*>(a);
  const unsigned char* right = static_cast<const unsigned char*>(b);
  for (size_t i = 0; i < size; ++i) {
    if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
  }
  return 0;
}

}  // extern "C"
