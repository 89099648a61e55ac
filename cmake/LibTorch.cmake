# The one place that finds LibTorch: PyTorch's wheel, an unzipped LibTorch, or whatever Torch_DIR or CMAKE_PREFIX_PATH
# name. The build and the installed package both include this file.
#
# Targets are made from the folder's own headers and libraries instead of calling find_package(Torch): that call insists on
# an installed CUDA toolkit, while C++ code against a CUDA LibTorch needs none. LibTorch::cpu never brings in libtorch_cuda,
# so a CPU run does not pay for loading it; LibTorch::cuda does, and carries the CUDA and NCCL headers.
#
#   ddprun_find_libtorch()   sets DDPRUN_LIBTORCH_VERSION, DDPRUN_LIBTORCH_HAS_CUDA, DDPRUN_LIBTORCH_PYTHON
#   targets                  LibTorch::cpu; LibTorch::cuda and LibTorch::nccl when LibTorch has CUDA

include_guard(GLOBAL)

# Candidate roots: folders that hold include/torch and lib/libtorch_cpu.so.
function(_ddprun_libtorch_candidates out)
  set(roots "")
  if(DDPRUN_LIBTORCH)
    list(APPEND roots "${DDPRUN_LIBTORCH}" "${DDPRUN_LIBTORCH}/torch" "${DDPRUN_LIBTORCH}/libtorch")
  endif()
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
  if(DEFINED ENV{VIRTUAL_ENV})
    file(GLOB wheel "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages/torch")
    list(APPEND roots ${wheel})
  endif()
  if(DEFINED ENV{DDPRUN_CACHE})
    set(cache "$ENV{DDPRUN_CACHE}")
  else()
    set(cache "$ENV{HOME}/.cache/ddprun")
  endif()
  file(GLOB wheel "${cache}/venv/lib/python3*/site-packages/torch")
  list(APPEND roots ${wheel})
  set(${out} "${roots}" PARENT_SCOPE)
endfunction()

# The CUDA headers: a toolkit that the user names, else those that came with the wheel, else a toolkit in its usual place.
function(_ddprun_cuda_headers root)
  file(GLOB wheel_headers "${root}/../nvidia/cu*/include" "${root}/../nvidia/cuda_runtime/include")
  find_path(
    DDPRUN_CUDA_INCLUDE_DIR cuda_runtime_api.h
    HINTS ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} ${wheel_headers} ${root}
    PATHS /usr/local/cuda /opt/cuda
    PATH_SUFFIXES include targets/x86_64-linux/include)
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
    # The banner's text; the pattern asks for the digits because the bare format string is in there as well.
    execute_process(
      COMMAND grep -a -o -m 1 "NCCL version [0-9][0-9.]*" "${binary}"
      OUTPUT_VARIABLE banner
      ERROR_QUIET)
    string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${banner}")
    set(DDPRUN_NCCL_BINARY_VERSION "${version}" CACHE INTERNAL "NCCL version inside LibTorch")
    set(DDPRUN_NCCL_BINARY_CHECKED "${binary}" CACHE INTERNAL "File that the NCCL version was read from")
  endif()
  if(DDPRUN_NCCL_BINARY_VERSION AND NOT header VERSION_EQUAL DDPRUN_NCCL_BINARY_VERSION)
    message(
      FATAL_ERROR
        "ddprun: ${DDPRUN_NCCL_INCLUDE_DIR}/nccl.h is NCCL ${header}, but this LibTorch was built with "
        "${DDPRUN_NCCL_BINARY_VERSION}. Objects of LibTorch's ProcessGroupNCCL are laid out by that header, so another one "
        "corrupts memory. Set NCCL_ROOT to NCCL ${DDPRUN_NCCL_BINARY_VERSION} (pip: the nvidia-nccl package that torch "
        "depends on), or build without CUDA: -DDDPRUN_CUDA=OFF.")
  endif()
  set(DDPRUN_NCCL_VERSION "${header}" PARENT_SCOPE)
endfunction()

function(_ddprun_imported_library name location)
  add_library(${name} SHARED IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION "${location}")
endfunction()

function(ddprun_find_libtorch)
  if(TARGET LibTorch::cpu)
    return()
  endif()
  _ddprun_libtorch_candidates(candidates)
  set(root "")
  foreach(candidate IN LISTS candidates)
    if(EXISTS "${candidate}/include/torch/csrc/api/include/torch/torch.h" AND EXISTS "${candidate}/lib/libtorch_cpu.so")
      get_filename_component(root "${candidate}" REALPATH)
      break()
    endif()
  endforeach()
  if(NOT root)
    message(
      FATAL_ERROR
        "ddprun: LibTorch was not found. Choose one:\n"
        "  scripts/setup                                      installs torch into a virtual environment and builds\n"
        "  -DCMAKE_PREFIX_PATH=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)')   an installed wheel\n"
        "  -DCMAKE_PREFIX_PATH=/path/to/libtorch              an unzipped LibTorch\n"
        "  -DTorch_DIR=/path/to/share/cmake/Torch             any TorchConfig.cmake\n"
        "  -DDDPRUN_BUILD_LIBRARY=OFF                         the launcher alone, which needs no LibTorch")
  endif()

  set(version_header "${root}/include/torch/headeronly/version.h")
  if(NOT EXISTS "${version_header}")
    set(version_header "${root}/include/torch/csrc/api/include/torch/version.h")
  endif()
  file(STRINGS "${version_header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" version "${lines}")
  if(version VERSION_LESS 2.11 OR version VERSION_GREATER_EQUAL 2.12)
    message(
      FATAL_ERROR
        "ddprun: LibTorch ${version} at ${root} is not supported: this release is built for 2.11 (the C++ headers of "
        "torch.distributed change between versions). Install torch 2.11, or point CMAKE_PREFIX_PATH at one.")
  endif()

  set(has_cuda FALSE)
  if(EXISTS "${root}/lib/libtorch_cuda.so" AND NOT DDPRUN_CUDA STREQUAL "OFF")
    set(has_cuda TRUE)
  elseif(DDPRUN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ddprun: DDPRUN_CUDA=ON, but the LibTorch at ${root} has no libtorch_cuda.so")
  endif()

  # One C++ ABI for everything: LibTorch before 2.6 could be built with the old one.
  file(STRINGS "${root}/share/cmake/Torch/TorchConfig.cmake" abi REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
  string(REGEX MATCH "_GLIBCXX_USE_CXX11_ABI=[01]" abi "${abi}")

  _ddprun_imported_library(LibTorch::c10 "${root}/lib/libc10.so")
  target_include_directories(LibTorch::c10 SYSTEM INTERFACE "${root}/include" "${root}/include/torch/csrc/api/include")
  if(abi)
    target_compile_definitions(LibTorch::c10 INTERFACE ${abi})
  endif()
  _ddprun_imported_library(LibTorch::cpu "${root}/lib/libtorch_cpu.so")
  target_link_libraries(LibTorch::cpu INTERFACE LibTorch::c10)
  # libtorch_cpu's own dependencies (cudart, cupti, gomp) are found through its run path, not by the linker.
  target_link_options(LibTorch::cpu INTERFACE -Wl,--allow-shlib-undefined)

  if(has_cuda)
    _ddprun_cuda_headers("${root}")
    _ddprun_nccl_headers("${root}")
    if(DDPRUN_CUDA_INCLUDE_DIR AND DDPRUN_NCCL_INCLUDE_DIR)
      _ddprun_imported_library(LibTorch::c10_cuda "${root}/lib/libc10_cuda.so")
      _ddprun_imported_library(LibTorch::cuda "${root}/lib/libtorch_cuda.so")
      target_include_directories(LibTorch::cuda SYSTEM INTERFACE "${DDPRUN_CUDA_INCLUDE_DIR}")
      target_link_libraries(LibTorch::cuda INTERFACE LibTorch::c10_cuda LibTorch::cpu)
      add_library(LibTorch::nccl INTERFACE IMPORTED GLOBAL)
      target_include_directories(LibTorch::nccl SYSTEM INTERFACE "${DDPRUN_NCCL_INCLUDE_DIR}")
    elseif(DDPRUN_CUDA STREQUAL "ON")
      message(
        FATAL_ERROR
          "ddprun: DDPRUN_CUDA=ON, but ${root} brings no CUDA or NCCL headers. Name a toolkit with CUDAToolkit_ROOT and NCCL "
          "with NCCL_ROOT.")
    else()
      message(STATUS "ddprun: no CUDA or NCCL headers for the LibTorch at ${root}: building for the CPU "
                     "(CUDAToolkit_ROOT and NCCL_ROOT name them)")
      set(has_cuda FALSE)
    endif()
  endif()

  # The interpreter of a wheel's environment, for the tests that compare with Python.
  file(GLOB python "${root}/../../../../bin/python3")
  if(has_cuda)
    message(STATUS "ddprun: LibTorch ${version} with CUDA, NCCL ${DDPRUN_NCCL_VERSION}: ${root}")
  else()
    message(STATUS "ddprun: LibTorch ${version}, CPU: ${root}")
  endif()
  set(DDPRUN_LIBTORCH_ROOT "${root}" PARENT_SCOPE)
  set(DDPRUN_LIBTORCH_VERSION "${version}" PARENT_SCOPE)
  set(DDPRUN_LIBTORCH_HAS_CUDA ${has_cuda} PARENT_SCOPE)
  set(DDPRUN_LIBTORCH_PYTHON "${python}" PARENT_SCOPE)
endfunction()
