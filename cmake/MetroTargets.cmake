# Compile options shared by all targets, and the function that declares a room (a folder of src/ or kernels/).
add_library(metro_options INTERFACE)

# Options for the compiler of the host: given as they are to C++, and through nvcc where that compiles a unit.
function(metro_options_of_hosts)
  target_compile_options(metro_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>")
  if(METRO_DEVICE STREQUAL "cuda")
    list(REMOVE_ITEM ARGN -Wpedantic)  # what nvcc generates around the code of a unit is not
    list(TRANSFORM ARGN PREPEND -Xcompiler=)
    target_compile_options(metro_options INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${ARGN}>")
  endif()
endfunction()

target_compile_features(metro_options INTERFACE cxx_std_20)
metro_options_of_hosts(-Wall -Wextra -Wpedantic -Wshadow -Wconversion
  # Results must have the same bits on every machine: no contraction that the source does not spell out, and
  # fused multiply-add in hardware (x86-64-v3 has it; everything else is emulated exactly but slowly).
  -ffp-contract=off -fno-fast-math
  # Messages about bugs name files; what is installed shall not name the folder where it was built.
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  metro_options_of_hosts(-march=x86-64-v3)
endif()
if(METRO_WERROR)
  metro_options_of_hosts(-Werror)
endif()
if(METRO_SANITIZE)
  target_compile_options(metro_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
    # Sanitizers make GCC see uninitialised variables where there are none, std::regex inside Catch2 for one.
    -Wno-maybe-uninitialized)
  target_link_options(metro_options INTERFACE -fsanitize=address,undefined)
endif()
if(METRO_FUZZ)
  target_compile_options(metro_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer)
  target_link_options(metro_options INTERFACE -fsanitize=address,undefined)
endif()
if(METRO_DEVICE STREQUAL "cuda")
  target_compile_options(metro_options INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${METRO_CUDA_OPTIONS}>")
endif()
# "room/file.hpp" for the rooms of src/, "kernels/file.hpp" and "mpi_launch/file.hpp" for the other two.
target_include_directories(metro_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})

# metro_add_room(NAME SOURCES file... [USES room...] [LIBRARIES target...])
#   USES: rooms whose headers this room includes; they are the arrows of the design.
#   LIBRARIES: libraries used in source files only.
function(metro_add_room name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;USES;LIBRARIES")
  add_library(metro_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(metro_${name} PUBLIC metro_options PRIVATE ${ARG_LIBRARIES})
  foreach(room ${ARG_USES})
    target_link_libraries(metro_${name} PUBLIC metro_${room})
  endforeach()
endfunction()
