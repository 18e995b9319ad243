// Writes and reads a struct by its own description: Fields(), the tuple of member pointers that
// every struct of server/policy/state.h has. A member that is added there is in the next snapshot
// without a change here.
//
// The form is protobuf's wire format: member n (from 1) of a struct is field n; numbers are varints
// (signed ones zigzag), doubles 8 bytes, the rest is length-delimited. A member that has its
// default is left out, so members may be added at the end: older bytes read as the default.
// Containers are a count and their elements; an optional is nothing, or a 1 and the value.
//
// Pure. Decoding takes hostile bytes: it fails, and never reads outside or makes containers that
// the bytes can't fill.
#ifndef HEADROOM_SERVER_TRACE_FIELDS_H_
#define HEADROOM_SERVER_TRACE_FIELDS_H_

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/policy/types.h"

namespace headroom::trace {

template <typename T>
concept HasFields = requires {
  T::Fields();
};

namespace fields {

// Protobuf's wire types: 0 varint, 1 eight bytes, 2 length-delimited.
enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kDelimited = 2 };

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsArray : std::false_type {};
template <typename T, size_t n>
struct IsArray<std::array<T, n>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsMap : std::false_type {};
template <typename K, typename V>
struct IsMap<std::map<K, V>> : std::true_type {};

// Quantities that are one number.
template <typename T>
inline constexpr bool kIsQuantity =
    std::is_same_v<T, policy::Bytes> || std::is_same_v<T, policy::Permyriad> ||
    std::is_same_v<T, policy::Duration> || std::is_same_v<T, policy::Time>;

template <typename T>
inline constexpr bool kIsVarint = std::is_integral_v<T> || std::is_enum_v<T> || kIsQuantity<T>;

template <typename T>
constexpr Wire WireOf() {
  if constexpr (kIsVarint<T>) {
    return Wire::kVarint;
  } else if constexpr (std::is_same_v<T, double>) {
    return Wire::kFixed64;
  } else {
    return Wire::kDelimited;
  }
}

inline void PutVarint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

constexpr uint64_t Zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
constexpr int64_t Unzigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

// --- Writing ------------------------------------------------------------------------------------

template <typename T>
void Put(std::string& out, const T& value);

// With the length in front where the wire type needs one.
template <typename T>
void PutElement(std::string& out, const T& value) {
  if constexpr (WireOf<T>() == Wire::kDelimited) {
    std::string inner;
    Put(inner, value);
    PutVarint(out, inner.size());
    out += inner;
  } else {
    Put(out, value);
  }
}

template <typename T>
void PutStruct(std::string& out, const T& value) {
  static const T kDefaults{};
  uint64_t number = 0;
  const auto put = [&](auto member) {
    ++number;
    if (value.*member == kDefaults.*member) return;
    using Member = std::remove_cvref_t<decltype(value.*member)>;
    PutVarint(out, number << 3 | static_cast<uint64_t>(WireOf<Member>()));
    PutElement(out, value.*member);
  };
  std::apply([&](auto... members) { (put(members), ...); }, T::Fields());
}

template <typename T>
void Put(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    out += value;
  } else if constexpr (std::is_same_v<T, double>) {
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(bits >> shift));
  } else if constexpr (std::is_same_v<T, policy::Bytes> || std::is_same_v<T, policy::Permyriad>) {
    PutVarint(out, Zigzag(value.count));
  } else if constexpr (std::is_same_v<T, policy::Duration>) {
    PutVarint(out, Zigzag(value.count()));
  } else if constexpr (std::is_same_v<T, policy::Time>) {
    PutVarint(out, Zigzag(value.time_since_epoch().count()));
  } else if constexpr (std::is_enum_v<T>) {
    static_assert(std::is_unsigned_v<std::underlying_type_t<T>>);
    PutVarint(out, static_cast<uint64_t>(value));
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>) {
      PutVarint(out, Zigzag(value));
    } else {
      PutVarint(out, value);
    }
  } else if constexpr (std::is_same_v<T, policy::ProcId>) {
    PutVarint(out, Zigzag(value.pid));
    PutVarint(out, value.start);
  } else if constexpr (IsOptional<T>::value) {
    if (!value) return;
    out.push_back(1);
    Put(out, *value);
  } else if constexpr (IsMap<T>::value) {
    PutVarint(out, value.size());
    for (const auto& [key, mapped] : value) {
      PutElement(out, key);
      PutElement(out, mapped);
    }
  } else if constexpr (IsVector<T>::value || IsArray<T>::value) {
    PutVarint(out, value.size());
    for (const auto& element : value) PutElement(out, element);
  } else {
    static_assert(HasFields<T>, "a kind of member that snapshots can't hold yet");
    PutStruct(out, value);
  }
}

// --- Reading ------------------------------------------------------------------------------------

// What is left to read; after the first failure nothing more is read.
class Source {
 public:
  explicit Source(std::string_view bytes) : bytes_(bytes) {}

  bool failed() const { return failed_; }
  bool AtEnd() const { return bytes_.empty(); }
  size_t left() const { return bytes_.size(); }
  bool Fail() {
    failed_ = true;
    bytes_ = {};
    return false;
  }

  bool Varint(uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return Fail();
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      // The tenth byte holds the last bit alone.
      if (shift == 63 && byte > 1) return Fail();
      value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return true;
    }
    return Fail();
  }

  bool Take(uint64_t size, std::string_view& taken) {
    if (size > bytes_.size()) return Fail();
    taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }

 private:
  std::string_view bytes_;
  bool failed_ = false;
};

template <typename T>
bool Get(Source& in, T& value);

template <typename T>
bool GetElement(Source& in, T& value) {
  if constexpr (WireOf<T>() == Wire::kDelimited) {
    uint64_t size = 0;
    std::string_view inner;
    if (!in.Varint(size) || !in.Take(size, inner)) return false;
    Source source(inner);
    return Get(source, value) && source.AtEnd() ? true : in.Fail();
  } else {
    return Get(in, value);
  }
}

inline bool Skip(Source& in, uint64_t wire) {
  uint64_t number = 0;
  std::string_view skipped;
  switch (wire) {
    case 0:
      return in.Varint(number);
    case 1:
      return in.Take(8, skipped);
    case 2:
      return in.Varint(number) && in.Take(number, skipped);
    default:
      return in.Fail();
  }
}

template <typename T>
bool GetStruct(Source& in, T& value) {
  value = T{};
  while (!in.AtEnd()) {
    uint64_t tag = 0;
    if (!in.Varint(tag)) return false;
    uint64_t number = 0;
    bool known = false;
    const auto get = [&](auto member) {
      ++number;
      if (tag >> 3 != number) return;
      known = true;
      using Member = std::remove_cvref_t<decltype(value.*member)>;
      if ((tag & 7) == static_cast<uint64_t>(WireOf<Member>())) {
        GetElement(in, value.*member);
      } else {
        in.Fail();
      }
    };
    std::apply([&](auto... members) { (get(members), ...); }, T::Fields());
    // A field of a newer layout.
    if (!known) Skip(in, tag & 7);
    if (in.failed()) return false;
  }
  return !in.failed();
}

template <typename Integer>
bool GetInteger(Source& in, Integer& value) {
  uint64_t raw = 0;
  if (!in.Varint(raw)) return false;
  if constexpr (std::is_signed_v<Integer>) {
    const int64_t number = Unzigzag(raw);
    if (number < std::numeric_limits<Integer>::min() ||
        number > std::numeric_limits<Integer>::max())
      return in.Fail();
    value = static_cast<Integer>(number);
  } else {
    if (raw > std::numeric_limits<Integer>::max()) return in.Fail();
    value = static_cast<Integer>(raw);
  }
  return true;
}

template <typename T>
bool Get(Source& in, T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    std::string_view all;
    in.Take(in.left(), all);
    value = all;
    return true;
  } else if constexpr (std::is_same_v<T, double>) {
    std::string_view eight;
    if (!in.Take(8, eight)) return false;
    uint64_t bits = 0;
    for (unsigned i = 0; i < 8; ++i) bits |= uint64_t{static_cast<uint8_t>(eight[i])} << (8 * i);
    value = std::bit_cast<double>(bits);
    return true;
  } else if constexpr (std::is_same_v<T, policy::Bytes> || std::is_same_v<T, policy::Permyriad>) {
    return GetInteger(in, value.count);
  } else if constexpr (std::is_same_v<T, policy::Duration>) {
    int64_t count = 0;
    if (!GetInteger(in, count)) return false;
    value = policy::Duration(count);
    return true;
  } else if constexpr (std::is_same_v<T, policy::Time>) {
    int64_t count = 0;
    if (!GetInteger(in, count)) return false;
    value = policy::Time(policy::Duration(count));
    return true;
  } else if constexpr (std::is_enum_v<T>) {
    std::underlying_type_t<T> number{};
    if (!GetInteger(in, number)) return false;
    value = static_cast<T>(number);
    return true;
  } else if constexpr (std::is_integral_v<T>) {
    return GetInteger(in, value);
  } else if constexpr (std::is_same_v<T, policy::ProcId>) {
    return GetInteger(in, value.pid) && GetInteger(in, value.start);
  } else if constexpr (IsOptional<T>::value) {
    value.reset();
    if (in.AtEnd()) return true;
    uint64_t set = 0;
    if (!in.Varint(set) || set != 1) return in.Fail();
    return Get(in, value.emplace());
  } else if constexpr (IsMap<T>::value) {
    uint64_t count = 0;
    if (!in.Varint(count)) return false;
    value.clear();
    for (; count > 0; --count) {
      typename T::key_type key{};
      typename T::mapped_type mapped{};
      if (!GetElement(in, key) || !GetElement(in, mapped)) return false;
      value.insert_or_assign(std::move(key), std::move(mapped));
    }
    return true;
  } else if constexpr (IsVector<T>::value) {
    uint64_t count = 0;
    // Every element has at least one byte.
    if (!in.Varint(count) || count > in.left()) return in.Fail();
    value.clear();
    for (; count > 0; --count) {
      typename T::value_type element{};
      if (!GetElement(in, element)) return false;
      value.push_back(std::move(element));
    }
    return true;
  } else if constexpr (IsArray<T>::value) {
    uint64_t count = 0;
    if (!in.Varint(count) || count != value.size()) return in.Fail();
    for (auto& element : value) {
      if (!GetElement(in, element)) return false;
    }
    return true;
  } else {
    static_assert(HasFields<T>, "a kind of member that snapshots can't hold yet");
    return GetStruct(in, value);
  }
}

// --- The layout ---------------------------------------------------------------------------------

// The kinds of a struct's members in their order, as text: two layouts that differ in it can't read
// each other fully.
template <typename T>
void Describe(std::string& out) {
  if constexpr (IsOptional<T>::value) {
    out += '?';
    Describe<typename T::value_type>(out);
  } else if constexpr (IsVector<T>::value) {
    out += '*';
    Describe<typename T::value_type>(out);
  } else if constexpr (IsArray<T>::value) {
    out += '#';
    out += std::to_string(std::tuple_size_v<T>);
    Describe<typename T::value_type>(out);
  } else if constexpr (IsMap<T>::value) {
    out += '@';
    Describe<typename T::key_type>(out);
    Describe<typename T::mapped_type>(out);
  } else if constexpr (std::is_same_v<T, std::string>) {
    out += 's';
  } else if constexpr (std::is_same_v<T, double>) {
    out += 'd';
  } else if constexpr (std::is_same_v<T, policy::ProcId>) {
    out += 'p';
  } else if constexpr (kIsVarint<T>) {
    out += std::is_integral_v<T> || std::is_enum_v<T> ? 'i' : 'q';
    out += std::to_string(sizeof(T));
  } else {
    out += '{';
    const T value{};
    std::apply(
        [&](auto... members) {
          (Describe<std::remove_cvref_t<decltype(value.*members)>>(out), ...);
        },
        T::Fields());
    out += '}';
  }
}

}  // namespace fields

template <HasFields T>
std::string EncodeFields(const T& value) {
  std::string out;
  fields::Put(out, value);
  return out;
}

// Unset: the bytes are none of EncodeFields<T>.
template <HasFields T>
std::optional<T> DecodeFields(std::string_view bytes) {
  fields::Source in(bytes);
  T value{};
  if (!fields::Get(in, value)) return std::nullopt;
  return value;
}

template <HasFields T>
std::string DescribeFields() {
  std::string out;
  fields::Describe<T>(out);
  return out;
}

}  // namespace headroom::trace

#endif  // HEADROOM_SERVER_TRACE_FIELDS_H_
