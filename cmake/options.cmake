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
    # The checks of every single pointer are left out: they take as long to compile as all the rest, and what they look
    # for AddressSanitizer sees when memory is touched (null, too small an object). A misaligned access and a wrong
    # downcast are not looked for; the few buffers that are read as something else say alignas.
    add_compile_options(-fno-sanitize-recover=undefined
      -fno-sanitize=null,alignment,object-size,vptr,nonnull-attribute,returns-nonnull-attribute)
  endif()
  # Half the time of ld.bfd, which fifty programs with the sanitizers' code in them make worth it.
  find_program(HEADROOM_LLD ld.lld)
  if(HEADROOM_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# Half of the time that a source takes to compile goes to the headers of Asio, protobuf and Catch2. Where everything is
# compiled once and nothing again (the sanitizers' presets; HEADROOM_UNITY=ON scripts/build), several sources share one
# reading of them. Not where one edits and compiles again: there it would be a whole batch for one changed line.
if(HEADROOM_SANITIZE AND NOT DEFINED CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
endif()
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
if(CMAKE_UNITY_BUILD)
  # A source that is included looks like a header to this one.
  target_compile_options(headroom_options INTERFACE -Wno-subobject-linkage)
endif()

# headroom_library(NAME SOURCES...): a static library of ours.
function(headroom_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC headroom_options)
endfunction()
