# The one place that finds LibTorch: PyTorch's wheel, an unzipped LibTorch, or whatever Torch_DIR or CMAKE_PREFIX_PATH
# name. The build and the installed package both include this file.
#
# Targets are made from the folder's own headers and libraries instead of calling find_package(Torch): that call insists on
# an installed CUDA toolkit, while C++ code against a CUDA LibTorch needs none. LibTorch::cpu never brings in libtorch_cuda,
# so a CPU run does not pay for loading it; LibTorch::cuda does, and carries the CUDA and NCCL headers.
#
#   ddprun_find_libtorch([FOR_PACKAGE] [ERROR <variable>])
#     sets DDPRUN_LIBTORCH_VERSION, DDPRUN_LIBTORCH_ROOT,
#          DDPRUN_LIBTORCH_IS_CUDA    this LibTorch was built with CUDA
#          DDPRUN_LIBTORCH_HAS_CUDA   … and CUDA is not switched off (DDPRUN_CUDA=OFF, FOR_PACKAGE): LibTorch::cuda exists
#          DDPRUN_LIBTORCH_PYTHON     the interpreter of a wheel's environment, else empty
#     FOR_PACKAGE: for users of an installed ddprun, whose CUDA part is compiled already.
#     A failure ends the configuration, or is stored in the variable that ERROR names.
#   targets   LibTorch::cpu; LibTorch::cuda and LibTorch::nccl with DDPRUN_LIBTORCH_HAS_CUDA
#
# The cache variable DDPRUN_LIBTORCH names the folder, and keeps it over configurations. What was found without it gives way to
# another LibTorch that is named later: whoever is told to correct CMAKE_PREFIX_PATH does that in the same build folder.

include_guard(GLOBAL)

# Results and the first error are global properties: the functions below are several calls deep.
function(_ddprun_libtorch_set name value)
  set_property(GLOBAL PROPERTY DDPRUN_LIBTORCH_${name} "${value}")
endfunction()

# The arguments are one text. (ARGN would split it at semicolons.)
function(_ddprun_libtorch_error)
  set(message "")
  math(EXPR last "${ARGC} - 1")
  foreach(i RANGE ${last})
    string(APPEND message "${ARGV${i}}")
  endforeach()
  _ddprun_libtorch_set(ERROR "${message}")
endfunction()

# Whether DDPRUN_LIBTORCH is the user's, not what an earlier configuration found by itself.
function(_ddprun_libtorch_is_given out)
  set(given FALSE)
  if(DDPRUN_LIBTORCH AND NOT DDPRUN_LIBTORCH STREQUAL "$CACHE{DDPRUN_LIBTORCH_FOUND}")
    set(given TRUE)
  endif()
  set(${out} ${given} PARENT_SCOPE)
endfunction()

# Folders that the user names; the first that holds a LibTorch is taken, whatever its version.
function(_ddprun_libtorch_named out)
  set(roots "")
  _ddprun_libtorch_is_given(given)
  if(given)
    list(APPEND roots "${DDPRUN_LIBTORCH}" "${DDPRUN_LIBTORCH}/torch" "${DDPRUN_LIBTORCH}/libtorch")
  else()
    foreach(dir IN ITEMS "${Torch_DIR}" "$ENV{Torch_DIR}")
      if(dir)
        list(APPEND roots "${dir}/../../..")
      endif()
    endforeach()
    foreach(dir IN ITEMS "${Torch_ROOT}" "$ENV{Torch_ROOT}")
      if(dir)
        list(APPEND roots "${dir}")
      endif()
    endforeach()
    string(REPLACE ":" ";" prefixes "$ENV{CMAKE_PREFIX_PATH}")
    foreach(prefix IN LISTS CMAKE_PREFIX_PATH prefixes)
      # torch.utils.cmake_prefix_path is <root>/share/cmake.
      list(APPEND roots "${prefix}" "${prefix}/../.." "${prefix}/libtorch")
    endforeach()
    list(APPEND roots ${DDPRUN_LIBTORCH})
  endif()
  set(${out} "${roots}" PARENT_SCOPE)
endfunction()

# Folders where a wheel may be; another version there is passed over.
function(_ddprun_libtorch_found out)
  set(roots "")
  if(DEFINED ENV{VIRTUAL_ENV})
    file(GLOB wheel "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages/torch")
    list(APPEND roots ${wheel})
  endif()
  if(NOT "$ENV{DDPRUN_CACHE}" STREQUAL "")
    set(cache "$ENV{DDPRUN_CACHE}")
  else()
    set(cache "$ENV{HOME}/.cache/ddprun")
  endif()
  # scripts/setup's, the newest first; the one without a version in its name is an earlier release's.
  file(GLOB wheels "${cache}/venv-*/lib/python3*/site-packages/torch")
  list(SORT wheels COMPARE NATURAL ORDER DESCENDING)
  file(GLOB earlier "${cache}/venv/lib/python3*/site-packages/torch")
  list(APPEND roots ${wheels} ${earlier})
  set(${out} "${roots}" PARENT_SCOPE)
endfunction()

# The version of the LibTorch in a folder; empty when there is none.
function(_ddprun_libtorch_version root out)
  set(version "")
  if(EXISTS "${root}/include/torch/csrc/api/include/torch/torch.h" AND EXISTS "${root}/lib/libtorch_cpu.so")
    set(header "${root}/include/torch/headeronly/version.h")
    if(NOT EXISTS "${header}")
      set(header "${root}/include/torch/csrc/api/include/torch/version.h")
    endif()
    file(STRINGS "${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" version "${lines}")
  endif()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# comm/versions/ has what differs between them; comm/backends/c10d_compat.h repeats the numbers for the compiler.
set(_ddprun_libtorch_versions "2.11 to 2.15")
set(_ddprun_libtorch_unknown 2.16) # and newer
function(_ddprun_libtorch_supported version out)
  set(result FALSE)
  # What an installed ddprun was built with, it was built with, though it be newer.
  get_property(built_with GLOBAL PROPERTY DDPRUN_LIBTORCH_BUILT_WITH)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  if(minor AND minor IN_LIST built_with)
    set(result TRUE)
  endif()
  if(version VERSION_GREATER_EQUAL 2.11 AND (version VERSION_LESS _ddprun_libtorch_unknown OR DDPRUN_TRY_NEWER_LIBTORCH))
    set(result TRUE)
  endif()
  set(${out} ${result} PARENT_SCOPE)
endfunction()

# The CUDA headers: a toolkit that the user names, else those that came with the wheel, else a toolkit in its usual place.
# torch's packages leave out two parts that their own headers include (NVIDIA's packages nvidia-cuda-crt and
# nvidia-cuda-cccl), so a folder counts only when it is complete: nv/target is of the second.
function(_ddprun_cuda_headers root)
  file(GLOB wheel_headers "${root}/../nvidia/cu*/include" "${root}/../nvidia/cuda_runtime/include")
  find_path(
    DDPRUN_CUDA_INCLUDE_DIR nv/target
    HINTS ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} ${wheel_headers} ${root}
    PATHS /usr/local/cuda /opt/cuda
    PATH_SUFFIXES include targets/x86_64-linux/include)
  set(complete FALSE)
  if(EXISTS "${DDPRUN_CUDA_INCLUDE_DIR}/cuda_runtime_api.h" AND EXISTS "${DDPRUN_CUDA_INCLUDE_DIR}/crt/host_defines.h")
    set(complete TRUE)
  endif()
  set(DDPRUN_CUDA_HEADERS_COMPLETE ${complete} PARENT_SCOPE)
endfunction()

# nccl.h must be the version that LibTorch was built with: c10d::ProcessGroupNCCL is laid out by it.
function(_ddprun_nccl_headers root)
  find_path(
    DDPRUN_NCCL_INCLUDE_DIR nccl.h
    HINTS ${NCCL_ROOT} $ENV{NCCL_ROOT} "${root}/../nvidia/nccl" ${root}
    PATHS /usr/local/cuda /usr
    PATH_SUFFIXES include targets/x86_64-linux/include)
  if(NOT DDPRUN_NCCL_INCLUDE_DIR)
    return()
  endif()
  file(STRINGS "${DDPRUN_NCCL_INCLUDE_DIR}/nccl.h" lines REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*NCCL_MAJOR ([0-9]+).*NCCL_MINOR ([0-9]+).*NCCL_PATCH ([0-9]+).*" "\\1.\\2.\\3" header "${lines}")

  set(binary "${root}/../nvidia/nccl/lib/libnccl.so.2") # the wheel's; a zipped LibTorch has NCCL inside libtorch_cuda
  if(NOT EXISTS "${binary}")
    set(binary "${root}/lib/libtorch_cuda.so")
  endif()
  if(NOT DDPRUN_NCCL_BINARY_CHECKED STREQUAL binary OR NOT DDPRUN_NCCL_BINARY_VERSION)
    # The banner's text, "NCCL version 2.30.7+cuda13.3". libtorch_cuda has texts of its own that name other versions of NCCL.
    execute_process(
      COMMAND grep -a -o -m 1 "NCCL version [0-9][0-9.]*[+]cuda" "${binary}"
      OUTPUT_VARIABLE banner
      ERROR_QUIET)
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${banner}")
    set(DDPRUN_NCCL_BINARY_VERSION "${version}" CACHE INTERNAL "NCCL version inside LibTorch")
    set(DDPRUN_NCCL_BINARY_CHECKED "${binary}" CACHE INTERNAL "File that the NCCL version was read from")
  endif()
  if(DDPRUN_NCCL_BINARY_VERSION AND NOT header VERSION_EQUAL DDPRUN_NCCL_BINARY_VERSION)
    _ddprun_libtorch_error(
      "${DDPRUN_NCCL_INCLUDE_DIR}/nccl.h is NCCL ${header}, but this LibTorch was built with "
      "${DDPRUN_NCCL_BINARY_VERSION}. Objects of LibTorch's ProcessGroupNCCL are laid out by that header, so another one "
      "corrupts memory. Set NCCL_ROOT to NCCL ${DDPRUN_NCCL_BINARY_VERSION} (pip: the nvidia-nccl package that torch "
      "depends on), or build without CUDA: -DDDPRUN_CUDA=OFF.")
  endif()
  _ddprun_libtorch_set(NCCL_VERSION "${header}")
endfunction()

function(_ddprun_imported_library name location)
  add_library(${name} SHARED IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION "${location}")
endfunction()

# Finds the folder; sets the properties ROOT and VERSION, or ERROR.
function(_ddprun_libtorch_locate for_package)
  set(root "")
  set(passed_over "")
  _ddprun_libtorch_named(named)
  foreach(candidate IN LISTS named)
    _ddprun_libtorch_version("${candidate}" version)
    if(version)
      set(root "${candidate}")
      break()
    endif()
  endforeach()
  _ddprun_libtorch_is_given(given)
  if(NOT root AND given)
    _ddprun_libtorch_error("DDPRUN_LIBTORCH=${DDPRUN_LIBTORCH} holds no LibTorch (include/torch and lib/libtorch_cpu.so). "
                           "Correct it, or forget it with -UDDPRUN_LIBTORCH.")
    return()
  endif()
  # Also where an earlier configuration of the folder has found one.
  foreach(name IN ITEMS Torch_DIR Torch_ROOT)
    set(place "${${name}}")
    if(NOT place)
      set(place "$ENV{${name}}")
    endif()
    if(given OR NOT place)
      continue()
    endif()
    set(folder "${place}")
    if(name STREQUAL "Torch_DIR")
      string(APPEND folder "/../../..")
    endif()
    _ddprun_libtorch_version("${folder}" version_there)
    if(NOT version_there)
      _ddprun_libtorch_error("${name}=${place} leads to no LibTorch (include/torch and lib/libtorch_cpu.so). Correct it, or unset it.")
      return()
    endif()
  endforeach()
  if(NOT root)
    _ddprun_libtorch_found(found)
    foreach(candidate IN LISTS found)
      _ddprun_libtorch_version("${candidate}" version)
      _ddprun_libtorch_supported("${version}" supported)
      if(supported)
        set(root "${candidate}")
        if(passed_over)
          message(STATUS "ddprun:${passed_over}")
        endif()
        break()
      elseif(version)
        string(APPEND passed_over " LibTorch ${version} at ${candidate} was passed over: this release needs ${_ddprun_libtorch_versions}.")
        if(version VERSION_GREATER_EQUAL _ddprun_libtorch_unknown)
          string(APPEND passed_over " -DDDPRUN_TRY_NEWER_LIBTORCH=ON takes it all the same.")
        endif()
      endif()
    endforeach()
  endif()
  if(NOT root)
    set(setup "  scripts/setup                                      installs torch into a virtual environment and builds\n")
    set(launcher "\n  -DDDPRUN_BUILD_LIBRARY=OFF                         the launcher alone, which needs no LibTorch")
    set(beside "")
    if(for_package)
      set(setup "")
      set(launcher "")
      set(beside "${PACKAGE_PREFIX_DIR};") # else CMake would find LibTorch and this package no more
    endif()
    _ddprun_libtorch_error(
      "LibTorch was not found.${passed_over} Choose one:\n"
      "${setup}"
      "  -DCMAKE_PREFIX_PATH=\"${beside}$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')\"   an installed wheel\n"
      "  -DCMAKE_PREFIX_PATH=\"${beside}/path/to/libtorch\"            an unzipped LibTorch\n"
      "  -DTorch_DIR=/path/to/share/cmake/Torch             any TorchConfig.cmake"
      "${launcher}")
    return()
  endif()
  _ddprun_libtorch_supported("${version}" supported)
  if(NOT supported)
    get_filename_component(root "${root}" REALPATH) # not by way of share/cmake
    set(try "")
    if(version VERSION_GREATER_EQUAL _ddprun_libtorch_unknown)
      set(try " -DDDPRUN_TRY_NEWER_LIBTORCH=ON (for scripts/setup DDPRUN_TRY_NEWER_LIBTORCH=ON in the environment) builds with it all the same, as if it were 2.15.")
      if(for_package)
        set(try " ddprun's sources build with it all the same, as if it were 2.15, given -DDDPRUN_TRY_NEWER_LIBTORCH=ON, or by DDPRUN_TRY_NEWER_LIBTORCH=ON scripts/setup; a project that takes what is installed from there needs no switch.")
      endif()
    endif()
    _ddprun_libtorch_error(
      "LibTorch ${version} at ${root} is not supported: this release is built for ${_ddprun_libtorch_versions} (the C++ headers of "
      "torch.distributed change between versions). Install such a torch, or point CMAKE_PREFIX_PATH at one.${try}")
    return()
  endif()
  get_filename_component(root "${root}" REALPATH)
  if(NOT given)
    set(DDPRUN_LIBTORCH "${root}" CACHE PATH "The LibTorch in use: a folder with include/torch and lib/libtorch_cpu.so" FORCE)
    set(DDPRUN_LIBTORCH_FOUND "${root}" CACHE INTERNAL "DDPRUN_LIBTORCH as it was found, where nobody gave it")
  endif()
  _ddprun_libtorch_set(ROOT "${root}")
  _ddprun_libtorch_set(VERSION "${version}")
endfunction()

function(_ddprun_libtorch_cpu_targets root)
  # One C++ ABI for everything: LibTorch before 2.6 could be built with the old one.
  set(abi "")
  if(EXISTS "${root}/share/cmake/Torch/TorchConfig.cmake")
    file(STRINGS "${root}/share/cmake/Torch/TorchConfig.cmake" abi REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
    string(REGEX MATCH "_GLIBCXX_USE_CXX11_ABI=[01]" abi "${abi}")
  endif()
  _ddprun_imported_library(LibTorch::c10 "${root}/lib/libc10.so")
  target_include_directories(LibTorch::c10 SYSTEM INTERFACE "${root}/include" "${root}/include/torch/csrc/api/include")
  if(abi)
    target_compile_definitions(LibTorch::c10 INTERFACE ${abi})
  endif()
  _ddprun_imported_library(LibTorch::cpu "${root}/lib/libtorch_cpu.so")
  target_link_libraries(LibTorch::cpu INTERFACE LibTorch::c10)
  # libtorch_cpu's own dependencies (cudart, cupti, gomp) are found through its run path, not by the linker.
  target_link_options(LibTorch::cpu INTERFACE -Wl,--allow-shlib-undefined)
endfunction()

# LibTorch::openmp, for sources that call at::parallel_for: its body is inline, and without OpenMP it is a plain loop. The
# runtime is LibTorch's own copy where it brings one, so that a process has one pool of threads.
function(_ddprun_libtorch_openmp_target root)
  add_library(LibTorch::openmp INTERFACE IMPORTED GLOBAL)
  file(GLOB runtime "${root}/lib/libgomp*.so*")
  if(runtime AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(GET runtime 0 runtime)
    _ddprun_imported_library(LibTorch::gomp "${runtime}")
    target_compile_options(LibTorch::openmp INTERFACE -fopenmp)
    target_link_libraries(LibTorch::openmp INTERFACE LibTorch::gomp)
    return()
  endif()
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(LibTorch::openmp INTERFACE OpenMP::OpenMP_CXX)
  elseif(CMAKE_CXX_COMPILER_ID)
    message(STATUS "ddprun: no OpenMP for ${CMAKE_CXX_COMPILER_ID}: loops of ours run on one thread")
  endif()
endfunction()

# LibTorch uses the shared C++ runtime. A compiler that has none to link with (its libstdc++.so is missing, or it was built
# so) takes its static one for programs, and two in one process free each other's memory: "free(): invalid pointer" at the
# end. The shared one, named, comes first.
function(_ddprun_libtorch_runtime)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libstdc++.so OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(IS_ABSOLUTE "${found}")
    return()
  endif()
  find_library(DDPRUN_LIBSTDCXX NAMES libstdc++.so.6)
  mark_as_advanced(DDPRUN_LIBSTDCXX)
  if(DDPRUN_LIBSTDCXX)
    target_link_libraries(LibTorch::cpu INTERFACE "${DDPRUN_LIBSTDCXX}")
  else()
    message(WARNING "ddprun: ${CMAKE_CXX_COMPILER} has no shared libstdc++, which LibTorch uses: programs with both end with "
                    "'free(): invalid pointer'. Name one: -DDDPRUN_LIBSTDCXX=/folder/libstdc++.so.6")
  endif()
endfunction()

# Sets the property HAS_CUDA, or ERROR.
function(_ddprun_libtorch_cuda_targets root)
  _ddprun_cuda_headers("${root}")
  _ddprun_nccl_headers("${root}")
  if(DDPRUN_CUDA_HEADERS_COMPLETE AND DDPRUN_NCCL_INCLUDE_DIR)
    _ddprun_imported_library(LibTorch::c10_cuda "${root}/lib/libc10_cuda.so")
    _ddprun_imported_library(LibTorch::cuda "${root}/lib/libtorch_cuda.so")
    target_include_directories(LibTorch::cuda SYSTEM INTERFACE "${DDPRUN_CUDA_INCLUDE_DIR}")
    target_link_libraries(LibTorch::cuda INTERFACE LibTorch::c10_cuda LibTorch::cpu)
    add_library(LibTorch::nccl INTERFACE IMPORTED GLOBAL)
    target_include_directories(LibTorch::nccl SYSTEM INTERFACE "${DDPRUN_NCCL_INCLUDE_DIR}")
    _ddprun_libtorch_set(HAS_CUDA TRUE)
    return()
  endif()
  string(CONCAT why "the CUDA or NCCL headers for the LibTorch at ${root} are missing or incomplete. For a wheel, "
                    "install nvidia-cuda-crt and nvidia-cuda-cccl of its CUDA version with pip (scripts/setup does); or name a "
                    "toolkit with CUDAToolkit_ROOT and NCCL with NCCL_ROOT; or build for the CPU with -DDDPRUN_CUDA=OFF.")
  if(DDPRUN_CUDA STREQUAL "ON")
    _ddprun_libtorch_error("DDPRUN_CUDA=ON, but ${why}")
  else()
    message(WARNING "ddprun: built for the CPU only: ${why}")
  endif()
endfunction()

# Sets the properties, makes the targets.
function(_ddprun_libtorch_make for_package)
  foreach(name IN ITEMS ROOT VERSION PYTHON NCCL_VERSION ERROR)
    _ddprun_libtorch_set(${name} "")
  endforeach()
  _ddprun_libtorch_set(IS_CUDA FALSE)
  _ddprun_libtorch_set(HAS_CUDA FALSE)
  _ddprun_libtorch_locate(${for_package})
  get_property(root GLOBAL PROPERTY DDPRUN_LIBTORCH_ROOT)
  if(NOT root)
    return()
  endif()
  file(GLOB python "${root}/../../../../bin/python3")
  _ddprun_libtorch_set(PYTHON "${python}")
  set(is_cuda FALSE)
  if(EXISTS "${root}/lib/libtorch_cuda.so")
    set(is_cuda TRUE)
  endif()
  _ddprun_libtorch_set(IS_CUDA ${is_cuda})

  if(NOT for_package AND DDPRUN_CUDA STREQUAL "ON" AND NOT is_cuda)
    _ddprun_libtorch_error("DDPRUN_CUDA=ON, but the LibTorch at ${root} has no libtorch_cuda.so")
    return()
  endif()
  _ddprun_libtorch_cpu_targets("${root}")
  _ddprun_libtorch_openmp_target("${root}")
  _ddprun_libtorch_runtime()
  if(is_cuda AND NOT for_package AND NOT DDPRUN_CUDA STREQUAL "OFF")
    _ddprun_libtorch_cuda_targets("${root}")
  endif()

  get_property(version GLOBAL PROPERTY DDPRUN_LIBTORCH_VERSION)
  get_property(has_cuda GLOBAL PROPERTY DDPRUN_LIBTORCH_HAS_CUDA)
  get_property(nccl GLOBAL PROPERTY DDPRUN_LIBTORCH_NCCL_VERSION)
  get_property(error GLOBAL PROPERTY DDPRUN_LIBTORCH_ERROR)
  if(error)
    return()
  elseif(has_cuda)
    set(kind " with CUDA, NCCL ${nccl}")
  elseif(is_cuda AND for_package)
    set(kind " with CUDA")
  elseif(is_cuda)
    set(kind " with CUDA, which ddprun is built without")
  else()
    set(kind ", CPU")
  endif()
  message(STATUS "ddprun: LibTorch ${version}${kind}: ${root}")
endfunction()

function(ddprun_find_libtorch)
  cmake_parse_arguments(PARSE_ARGV 0 arg "FOR_PACKAGE" "ERROR" "")
  if(NOT TARGET LibTorch::cpu)
    _ddprun_libtorch_make(${arg_FOR_PACKAGE})
  endif()
  get_property(error GLOBAL PROPERTY DDPRUN_LIBTORCH_ERROR)
  if(arg_ERROR)
    set(${arg_ERROR} "${error}" PARENT_SCOPE)
  elseif(error)
    message(FATAL_ERROR "ddprun: ${error}")
  endif()
  foreach(name IN ITEMS ROOT VERSION IS_CUDA HAS_CUDA PYTHON)
    get_property(value GLOBAL PROPERTY DDPRUN_LIBTORCH_${name})
    set(DDPRUN_LIBTORCH_${name} "${value}" PARENT_SCOPE)
  endforeach()
endfunction()
