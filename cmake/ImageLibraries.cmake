# The system's libraries for image files. They are found, never downloaded: libjpeg-turbo's CMake project refuses to be part
# of another one, and every distribution has them.
find_package(PNG 1.6)
if(NOT PNG_FOUND)
  message(FATAL_ERROR "ddprun: libpng's headers were not found. Install libpng-dev (Debian, Ubuntu) or libpng-devel (Fedora); "
                      "scripts/setup does. The launcher alone, -DDDPRUN_BUILD_LIBRARY=OFF, does not need them.")
endif()
