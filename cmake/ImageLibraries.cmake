# The system's libraries for image files. They are found, never downloaded: libjpeg-turbo's CMake project refuses to be part
# of another one, and every distribution has them.
#
# ddprun_link_image_libraries(<library> <imported target>...) links them; scripts/package puts them into the package instead.
if(DDPRUN_PACKAGE)
  set(_ddprun_suffixes "${CMAKE_FIND_LIBRARY_SUFFIXES}")
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
endif()
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

# These two serve image folders alone, so the library is built without them as well: then it names them where it meets such a
# file. (CMAKE_DISABLE_FIND_PACKAGE_TIFF and CMAKE_DISABLE_FIND_PACKAGE_WebP leave them out.) TIFF 4.5 is the first that reports errors
# to whom it may concern, instead of to the whole process, and limits what it allocates.
find_package(TIFF 4.5)
find_package(WebP)
set(DDPRUN_HAS_TIFF "${TIFF_FOUND}")
set(DDPRUN_HAS_WEBP "${WebP_FOUND}")
set(DDPRUN_PICTURE_PACKAGES "") # those found, for the installed package
if(DDPRUN_HAS_TIFF)
  list(APPEND DDPRUN_PICTURE_PACKAGES TIFF)
else()
  message(STATUS "ddprun: no libtiff 4.5 (libtiff-dev, libtiff-devel): image folders are read without their TIFF files")
endif()
if(DDPRUN_HAS_WEBP)
  list(APPEND DDPRUN_PICTURE_PACKAGES WebP)
else()
  message(STATUS "ddprun: no libwebp (libwebp-dev, libwebp-devel): image folders are read without their WebP files")
endif()

# And these two what is read by itself or from shards. Packages have neither. Their own CMake files want programs of theirs
# too, so the libraries are linked by name.
find_path(DDPRUN_AVIF_INCLUDE avif/avif.h)
find_library(DDPRUN_AVIF_LIBRARY avif)
find_path(DDPRUN_OPENJPEG_INCLUDE openjpeg.h PATH_SUFFIXES openjpeg-2.5 openjpeg-2.4 openjpeg-2.3)
find_library(DDPRUN_OPENJPEG_LIBRARY openjp2)
mark_as_advanced(DDPRUN_AVIF_INCLUDE DDPRUN_AVIF_LIBRARY DDPRUN_OPENJPEG_INCLUDE DDPRUN_OPENJPEG_LIBRARY)
set(DDPRUN_HAS_AVIF OFF)
set(DDPRUN_HAS_JPEG2000 OFF)
set(DDPRUN_PICTURE_LIBRARIES "") # those found, for the installed package
if(DDPRUN_AVIF_INCLUDE AND DDPRUN_AVIF_LIBRARY AND NOT DDPRUN_PACKAGE AND NOT CMAKE_DISABLE_FIND_PACKAGE_AVIF)
  set(DDPRUN_HAS_AVIF ON)
  list(APPEND DDPRUN_PICTURE_LIBRARIES avif)
endif()
if(DDPRUN_OPENJPEG_INCLUDE AND DDPRUN_OPENJPEG_LIBRARY AND NOT DDPRUN_PACKAGE AND NOT CMAKE_DISABLE_FIND_PACKAGE_OpenJPEG)
  set(DDPRUN_HAS_JPEG2000 ON)
  list(APPEND DDPRUN_PICTURE_LIBRARIES openjp2)
endif()

if(DDPRUN_PACKAGE)
  include(BundleImages)
  set(CMAKE_FIND_LIBRARY_SUFFIXES "${_ddprun_suffixes}")
endif()

function(ddprun_link_image_libraries library)
  if(NOT DDPRUN_PACKAGE)
    target_link_libraries(${library} PRIVATE ${ARGN})
    return()
  endif()
  target_link_libraries(${library} PRIVATE ddprun_images)
  ddprun_rename_image_symbols(${library})
endfunction()
