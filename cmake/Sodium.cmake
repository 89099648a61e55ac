# libsodium proves to each other that launchers know a job's secret (--rdzv_secret_file). Its static library alone, so that ddprun
# needs no library where it runs; without it the launcher is built without that option.
find_path(DDPRUN_SODIUM_INCLUDE sodium.h)
find_library(DDPRUN_SODIUM_LIBRARY NAMES libsodium.a)
mark_as_advanced(DDPRUN_SODIUM_INCLUDE DDPRUN_SODIUM_LIBRARY)
if(DDPRUN_SODIUM_INCLUDE AND DDPRUN_SODIUM_LIBRARY)
  set(DDPRUN_HAS_SODIUM ON)
else()
  set(DDPRUN_HAS_SODIUM OFF)
  message(STATUS "ddprun: no static libsodium (libsodium-dev, libsodium-static): ddprun is built without --rdzv_secret_file")
endif()
