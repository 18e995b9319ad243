# headroom_options: what every target of ours compiles with. An interface library, so that no
# flag reaches generated or third-party code by accident.
add_library(headroom_options INTERFACE)
target_compile_options(headroom_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast
  -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough -Wformat=2 -Wcast-align
  -Wduplicated-cond -Wlogical-op -Wundef)
# Not with the sanitizers: their instrumentation makes g++ 12 see uninitialised values that are not there.
if(NOT HEADROOM_SANITIZE)
  target_compile_options(headroom_options INTERFACE -Werror)
endif()
target_include_directories(headroom_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_definitions(headroom_options INTERFACE HEADROOM_VERSION="${PROJECT_VERSION}")

# Line numbers for stack traces, nothing more: full debug information doubles the time that the
# templates of Asio and protobuf take to compile.
add_compile_options(-g1)

# Sanitizers apply to all code of a build tree, generated code too: a mixed link reports falsely.
if(HEADROOM_SANITIZE)
  add_compile_options(-fsanitize=${HEADROOM_SANITIZE} -fno-omit-frame-pointer -O1)
  add_link_options(-fsanitize=${HEADROOM_SANITIZE})
  if(HEADROOM_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# headroom_library(NAME SOURCES...): a static library of ours.
function(headroom_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC headroom_options)
endfunction()
