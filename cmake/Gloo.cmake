# gloo's headers, which c10d's ProcessGroupGloo.hpp includes. Only headers: the code is inside libtorch_cpu.
# The installed ones (Debian: libgloo-dev) are used, else they are downloaded.
find_path(DDPRUN_GLOO_INCLUDE_DIR gloo/context.h)
if(NOT DDPRUN_GLOO_INCLUDE_DIR)
  message(STATUS "ddprun: gloo's headers are not installed (Debian: libgloo-dev); fetching them")
  FetchContent_Declare(
    gloo_headers
    GIT_REPOSITORY https://github.com/pytorch/gloo.git
    GIT_TAG 5b143513263133af2b95547e97c07cebeb72bf72
    SOURCE_SUBDIR no-cmake-project-wanted)
  FetchContent_MakeAvailable(gloo_headers)
  if(NOT gloo_headers_SOURCE_DIR)
    message(FATAL_ERROR "ddprun: gloo's headers are missing: install libgloo-dev or set DDPRUN_GLOO_INCLUDE_DIR")
  endif()
  set(DDPRUN_GLOO_INCLUDE_DIR "${gloo_headers_SOURCE_DIR}" CACHE PATH "Folder that holds gloo/" FORCE)
endif()
add_library(ddprun_gloo INTERFACE)
target_include_directories(ddprun_gloo SYSTEM INTERFACE $<BUILD_INTERFACE:${DDPRUN_GLOO_INCLUDE_DIR}>)
target_compile_definitions(ddprun_gloo INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
