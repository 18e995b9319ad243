// Included in front of everything under ThreadSanitizer: protobuf's maps as the installed library has them.
//
// Where a compiler says that it has ThreadSanitizer on, protobuf's header gives a map two more members. The library of
// the system was compiled without it, and reflection, which is the library's code, then finds nothing where it looks.
#ifndef HEADROOM_PROTO_TSAN_MAPS_H_
#define HEADROOM_PROTO_TSAN_MAPS_H_

#include <atomic>  // the standard library's own view of it stays
#include <memory>
#include <string>

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")

#endif  // HEADROOM_PROTO_TSAN_MAPS_H_
