# How every target of ours is built: language level, warnings, sanitizers, ccache, linker, output folders, and the two
# functions that folders use: ddprun_library() and ddprun_executable().

include(BuildType)
include(CheckCXXCompilerFlag)
include(PrecompiledHeaders)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  else()
    ddprun_warn_without_build_type()
    set(CMAKE_BUILD_TYPE Release) # in this folder: the other project's own targets stay as it wants them
  endif()
endif()
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

  find_program(DDPRUN_CCACHE ccache)
  mark_as_advanced(DDPRUN_CCACHE)
  if(DDPRUN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${DDPRUN_CCACHE}")
  endif()
endif()

# What all our targets share, privately: a consumer never inherits our warnings or sanitizers.
add_library(ddprun_build_flags INTERFACE)
target_compile_features(ddprun_build_flags INTERFACE cxx_std_20)
target_compile_options(ddprun_build_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wcast-align
                                                    -Woverloaded-virtual -Wvla -fvisibility-inlines-hidden)
if(DDPRUN_WARNINGS_AS_ERRORS)
  target_compile_options(ddprun_build_flags INTERFACE -Werror)
elseif(NOT PROJECT_IS_TOP_LEVEL)
  # The other project's flags hold here as well, and its -Wconversion -Werror must not end the build of what it cannot mend.
  target_compile_options(ddprun_build_flags INTERFACE -w)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Its collections of garbage take an eighth of the time of a source that sees LibTorch, for a quarter less memory.
  target_compile_options(ddprun_build_flags INTERFACE --param=ggc-min-heapsize=1000000)
  # From GCC 13 on these follow from the level of optimisation, and keep a precompiled header to sources of the same one.
  check_cxx_compiler_flag(-munroll-only-small-loops DDPRUN_HAS_UNROLL_ONLY_SMALL_LOOPS)
  if(DDPRUN_HAS_UNROLL_ONLY_SMALL_LOOPS)
    target_compile_options(ddprun_build_flags INTERFACE -munroll-only-small-loops -mvzeroupper)
  endif()
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    # False alarms about the standard library's own vectors and strings, once they are inlined.
    target_compile_options(ddprun_build_flags INTERFACE -Wno-array-bounds -Wno-maybe-uninitialized)
  endif()
endif()
# Sources that are compiled as one look like headers, see each other's names and are inlined into each other: false alarms.
target_compile_options(
  ddprun_build_flags
  INTERFACE $<$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>:-Wno-shadow>
            $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wno-subobject-linkage;-Wno-maybe-uninitialized>)
set(CMAKE_UNITY_BUILD OFF) # DDPRUN_UNITY_BUILD does what helps
if(DDPRUN_SANITIZE)
  target_compile_options(ddprun_build_flags INTERFACE -fsanitize=${DDPRUN_SANITIZE} -fno-omit-frame-pointer
                                                      -fno-sanitize-recover=all)
  target_link_options(ddprun_build_flags INTERFACE -fsanitize=${DDPRUN_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC's own checks lead it to values that it takes for uninitialized, such as those of an empty std::optional.
    target_compile_options(ddprun_build_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
if(DDPRUN_TRY_NEWER_LIBTORCH)
  target_compile_definitions(ddprun_build_flags INTERFACE DDPRUN_TRY_NEWER_LIBTORCH)
endif()
if(DDPRUN_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "DDPRUN_FUZZ needs clang (CMAKE_CXX_COMPILER=clang++): libFuzzer is a part of it")
  endif()
  target_compile_options(ddprun_build_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
# lld links ten times faster than GNU ld. Not mold: before 2.4 a program with thread-locals may not load, depending on sizes
# and so on the length of the path (a RELRO segment that begins in a page that nothing maps).
find_program(DDPRUN_LLD ld.lld)
mark_as_advanced(DDPRUN_LLD)
if(DDPRUN_LLD AND NOT DDPRUN_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_link_options(ddprun_build_flags INTERFACE -fuse-ld=lld)
endif()

# ddprun_public_headers(<name> <PUBLIC|INTERFACE> <folder> <header>...): makes headers of include/ddprun/<folder> the library's, to be
# installed with it.
function(ddprun_public_headers name scope folder)
  set(root "${PROJECT_SOURCE_DIR}/include")
  list(TRANSFORM ARGN PREPEND "${root}/ddprun/${folder}/")
  target_sources(ddprun_${name} ${scope} FILE_SET HEADERS BASE_DIRS "${root}" FILES ${ARGN})
endfunction()

# ddprun_library(<name> SOURCES ... [HEADERS ...] [DETAIL ...] [PUBLIC <libraries>] [PRIVATE <libraries>])
# One static library ddprun_<name>, alias ddprun::<name>, of the calling folder. HEADERS are its public ones, in
# include/ddprun/<folder>/; DETAIL are those that public templates and inline functions need, in include/ddprun/detail/<folder>/.
# Both are installed. Private headers are included from the project's root.
function(ddprun_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;HEADERS;DETAIL;PUBLIC;PRIVATE")
  add_library(ddprun_${name} STATIC ${arg_SOURCES})
  add_library(ddprun::${name} ALIAS ddprun_${name})
  set_target_properties(ddprun_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(ddprun_${name} PUBLIC cxx_std_20)
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  if(arg_HEADERS)
    ddprun_public_headers(${name} PUBLIC ${folder} ${arg_HEADERS})
  endif()
  if(arg_DETAIL)
    ddprun_public_headers(${name} PUBLIC detail/${folder} ${arg_DETAIL})
  endif()
  target_include_directories(ddprun_${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(
    ddprun_${name}
    PUBLIC ${arg_PUBLIC}
    PRIVATE $<BUILD_INTERFACE:ddprun_build_flags> ${arg_PRIVATE})
  set_property(GLOBAL APPEND PROPERTY DDPRUN_LIBRARIES ddprun_${name})
endfunction()

# ddprun_targets_below(<folder> <out>): what `all` builds of a folder and of all folders in it.
function(ddprun_targets_below folder out)
  set(all "")
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(is_excluded ${target} EXCLUDE_FROM_ALL)
    if(NOT is_excluded)
      list(APPEND all ${target})
    endif()
  endforeach()
  get_property(inner DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(next IN LISTS inner)
    ddprun_targets_below("${next}" more)
    list(APPEND all ${more})
  endforeach()
  set(${out} ${all} PARENT_SCOPE)
endfunction()

# ddprun_executable(<name> SOURCES ... [LINK <libraries>]): a program in build/<preset>/bin. A folder whose
# flags don't fit the usual sets of precompiled headers names others in DDPRUN_PROGRAM_HEADERS.
function(ddprun_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_executable(${name} ${arg_SOURCES})
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_LINK} ddprun_build_flags)
  ddprun_precompiled_headers_if_seen(${name} ${arg_LINK} AMONG ${DDPRUN_PROGRAM_HEADERS})
endfunction()

# ddprun_stands_alone(<program>): nothing but the C library is needed where it runs, so the Debian package has it. Half of the
# start-up time of a small program is the dynamic linking of the C++ library; and with every address resolved beforehand, a
# forked rank touches (and so copies) less memory before its exec. What of the static C++ library nobody calls is left out,
# and with it the newest functions of glibc that only such code wants.
include(CheckLinkerFlag)
check_linker_flag(CXX "-static-libstdc++" DDPRUN_HAVE_STATIC_LIBSTDCXX)
check_linker_flag(CXX "-static-libgcc" DDPRUN_HAVE_STATIC_LIBGCC)
check_linker_flag(CXX "-Wl,-z,now" DDPRUN_HAVE_BIND_NOW)
check_linker_flag(CXX "-Wl,--gc-sections" DDPRUN_HAVE_GC_SECTIONS)
function(ddprun_stands_alone program)
  if(NOT DDPRUN_SANITIZE)
    target_link_options(
      ${program} PRIVATE $<$<BOOL:${DDPRUN_HAVE_STATIC_LIBSTDCXX}>:-static-libstdc++>
      $<$<BOOL:${DDPRUN_HAVE_STATIC_LIBGCC}>:-static-libgcc> $<$<BOOL:${DDPRUN_HAVE_BIND_NOW}>:-Wl,-z,now>
      $<$<BOOL:${DDPRUN_HAVE_GC_SECTIONS}>:-Wl,--gc-sections>)
  endif()
endfunction()
