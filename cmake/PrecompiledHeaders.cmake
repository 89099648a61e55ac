# LibTorch's headers are most of what a source costs to compile (8 of 12 s): the ones that many sources include are parsed once.
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without; the debug and sanitizer presets do, so that no source relies on an
# include that is not its own.
#
#   ddprun_precompile_headers(<set> LINK <libraries> HEADERS <headers>)   what <set> holds; LINK: as the sources that use it
#   ddprun_use_precompiled_headers(<target> <set>)   its sources must be compiled with the same kind of flags
#
#   ddprun_precompiled_headers_if_seen(<target> <library>...)   for programs, by what they link
#
# GCC takes a precompiled header only where macros and code generation agree, hence -fPIC for programs as well; the level of
# optimisation may differ. OpenMP may not.

function(ddprun_precompile_headers set)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LINK;HEADERS")
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()
  endif()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${set}_headers.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "")
  add_library(ddprun_${set}_headers OBJECT EXCLUDE_FROM_ALL "${source}")
  set_target_properties(ddprun_${set}_headers PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_features(ddprun_${set}_headers PRIVATE cxx_std_20)
  target_link_libraries(ddprun_${set}_headers PRIVATE ${arg_LINK} ddprun_build_flags)
  list(TRANSFORM arg_HEADERS REPLACE "(.+)" "<\\1>")
  target_precompile_headers(ddprun_${set}_headers PRIVATE ${arg_HEADERS})
endfunction()

function(ddprun_use_precompiled_headers target set)
  if(NOT TARGET ddprun_${set}_headers)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_precompile_headers(${target} REUSE_FROM ddprun_${set}_headers)
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
  foreach(library IN LISTS ARGN)
    _ddprun_sees(${library} ddprun_gloo is_group)
    if(is_group)
      ddprun_use_precompiled_headers(${target} groups)
      return()
    endif()
  endforeach()
  foreach(library IN LISTS ARGN)
    _ddprun_sees(${library} LibTorch::cpu is_module)
    if(is_module)
      ddprun_use_precompiled_headers(${target} modules)
      return()
    endif()
  endforeach()
endfunction()
