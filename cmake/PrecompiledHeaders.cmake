# LibTorch's headers are most of what a source costs to compile (8 of 12 s): the ones that many sources include are parsed once.
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without; the debug and sanitizer presets do, so that no source relies on an
# include that is not its own.
#
#   ddprun_precompile_headers(<set> [LINK <libraries>] HEADERS <headers>)   what <set> holds; LINK: as the sources that use it
#   ddprun_use_precompiled_headers(<target> <set>)   its sources must be compiled with the same kind of flags
#   ddprun_use_precompiled_headers(<target> <set> SOURCES <sources>)   these alone, instead of the target's own set
#
#   ddprun_compile_texts(<target> <folder>...)   the target's sources in these folders read and write texts, and none often: a
#                                                Release build optimises them little, and a package's for size
#
#   ddprun_precompiled_headers_if_seen(<target> <library>... [AMONG <groups> <modules> <standard>])   for programs, by what they
#                                                                                    link; AMONG: the sets, if others than these
#
# The sets, from small to large: standard, tensors, modules, groups. The smaller one is the faster one: GCC instantiates what the
# headers of a set left open in every source that uses it (1 s with tensors, 2 s with modules).
#
# GCC takes a precompiled header only where macros and code generation agree, hence -fPIC for programs as well; the level of
# optimisation may differ. OpenMP may not, nor -O0 and -Os, of which macros tell.

# With DDPRUN_UNITY_BUILD, as scripts/demo builds from nothing, what is left open is instantiated once for many sources, and modules
# serve where tensors do.

option(DDPRUN_UNITY_BUILD "Compile many sources as one; hides missing includes, so not for development" OFF)
mark_as_advanced(DDPRUN_UNITY_BUILD)

function(ddprun_precompile_headers set)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK;HEADERS")
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS OR (DDPRUN_UNITY_BUILD AND set STREQUAL "tensors"))
    return()
  endif()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${set}_headers.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # CMake wants a source, of which nobody wants the object: compiling it takes 5 s with modules.
    set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "-E;-fpch-preprocess")
  endif()
  add_library(ddprun_${set}_headers OBJECT EXCLUDE_FROM_ALL "${source}")
  set_target_properties(ddprun_${set}_headers PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_features(ddprun_${set}_headers PRIVATE cxx_std_20)
  target_include_directories(ddprun_${set}_headers PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(ddprun_${set}_headers PRIVATE ${arg_LINK} ddprun_build_flags)
  list(TRANSFORM arg_HEADERS REPLACE "(.+)" "<\\1>")
  target_precompile_headers(ddprun_${set}_headers PRIVATE ${arg_HEADERS})
endfunction()

function(ddprun_use_precompiled_headers target set)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES")
  if(DDPRUN_UNITY_BUILD AND set STREQUAL "tensors")
    set(set modules)
  endif()
  if(NOT TARGET ddprun_${set}_headers OR (DDPRUN_UNITY_BUILD AND arg_SOURCES))
    return()
  endif()
  if(arg_SOURCES)
    get_target_property(folder ddprun_${set}_headers BINARY_DIR)
    set(header "${folder}/CMakeFiles/ddprun_${set}_headers.dir/cmake_pch.hxx")
    set_source_files_properties(
      ${arg_SOURCES} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "-Winvalid-pch;-include;${header}"
                                OBJECT_DEPENDS "${header}.gch")
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_compile_options(${target} PRIVATE -fPIC)
  else()
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  target_precompile_headers(${target} REUSE_FROM ddprun_${set}_headers)
  if(DDPRUN_UNITY_BUILD AND NOT type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
endfunction()

function(ddprun_compile_texts target)
  list(JOIN ARGN "|" folders)
  get_target_property(sources ${target} SOURCES)
  set(texts ${sources})
  list(FILTER texts INCLUDE REGEX "^(${folders})/")
  list(REMOVE_ITEM sources ${texts})
  set_property(TARGET ${target} PROPERTY SOURCES ${sources} $<TARGET_OBJECTS:${target}_texts>)
  add_library(${target}_texts OBJECT ${texts})
  target_include_directories(${target}_texts PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  target_link_libraries(${target}_texts PRIVATE ${libraries})
  if(DDPRUN_PACKAGE)
    set(set compact)
    set(flag "$<$<CONFIG:Release>:-Os>")
    ddprun_precompile_headers(compact HEADERS ${DDPRUN_STANDARD_HEADERS})
    if(TARGET ddprun_compact_headers)
      target_compile_options(ddprun_compact_headers PRIVATE "${flag}")
    endif()
  else()
    set(set standard)
    set(flag "$<$<CONFIG:Release>:-O1>")
  endif()
  target_compile_options(${target}_texts PRIVATE "${flag}" $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>) # false alarms with so little inlined
  ddprun_use_precompiled_headers(${target}_texts ${set})
endfunction()

function(_ddprun_sees library wanted out)
  set(found FALSE)
  if(library STREQUAL wanted)
    set(found TRUE)
  elseif(TARGET ${library})
    get_target_property(next ${library} INTERFACE_LINK_LIBRARIES)
    foreach(entry IN LISTS next)
      if(NOT found AND NOT entry MATCHES "^\\$<")
        _ddprun_sees(${entry} ${wanted} found)
      endif()
    endforeach()
  endif()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

function(ddprun_precompiled_headers_if_seen target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "AMONG")
  if(NOT arg_AMONG)
    set(arg_AMONG groups modules standard)
  endif()
  list(POP_FRONT arg_AMONG groups modules standard)
  set(set ${standard})
  foreach(library IN LISTS arg_UNPARSED_ARGUMENTS)
    _ddprun_sees(${library} ddprun_gloo is_group)
    _ddprun_sees(${library} LibTorch::cpu is_module)
    if(is_group)
      set(set ${groups})
      break()
    elseif(is_module)
      set(set ${modules})
    endif()
  endforeach()
  ddprun_use_precompiled_headers(${target} ${set})
endfunction()
