# The system's libraries for image files. They are found, never downloaded: libjpeg-turbo's CMake project refuses to be part
# of another one, and every distribution has them.
find_package(ZLIB)
find_package(PNG 1.6)
find_package(JPEG)
if(NOT ZLIB_FOUND OR NOT PNG_FOUND OR NOT JPEG_FOUND)
  message(
    FATAL_ERROR
      "ddprun: the headers of zlib, libpng or libjpeg-turbo were not found. Install zlib1g-dev, libpng-dev and "
      "libjpeg62-turbo-dev (Debian; libjpeg-turbo8-dev on Ubuntu), or zlib-devel, libpng-devel and libjpeg-turbo-devel (Fedora); "
      "scripts/setup does on Debian and Ubuntu. The launcher alone, -DDDPRUN_BUILD_LIBRARY=OFF, does not need them.")
endif()
