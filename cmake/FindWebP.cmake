# libwebp with its decoder of animations: WebP::webp and WebP::webpdemux, from its own CMake package where that is installed,
# else from headers and libraries (Debian's has no package). Also part of the installed ddprun.
find_package(WebP CONFIG QUIET)
if(NOT TARGET WebP::webp OR NOT TARGET WebP::webpdemux)
  find_path(WebP_INCLUDE_DIR webp/demux.h)
  find_library(WebP_LIBRARY webp)
  find_library(WebP_DEMUX_LIBRARY webpdemux)
  find_library(WebP_SHARPYUV_LIBRARY sharpyuv) # what a static libwebp from 1.3 on needs
  mark_as_advanced(WebP_INCLUDE_DIR WebP_LIBRARY WebP_DEMUX_LIBRARY WebP_SHARPYUV_LIBRARY)
  include(FindPackageHandleStandardArgs)
  find_package_handle_standard_args(WebP REQUIRED_VARS WebP_LIBRARY WebP_DEMUX_LIBRARY WebP_INCLUDE_DIR)
  if(WebP_FOUND)
    add_library(WebP::webp UNKNOWN IMPORTED)
    set_target_properties(WebP::webp PROPERTIES IMPORTED_LOCATION "${WebP_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                                                    "${WebP_INCLUDE_DIR}")
    if(WebP_SHARPYUV_LIBRARY)
      set_property(TARGET WebP::webp PROPERTY INTERFACE_LINK_LIBRARIES "${WebP_SHARPYUV_LIBRARY}")
    endif()
    add_library(WebP::webpdemux UNKNOWN IMPORTED)
    set_target_properties(WebP::webpdemux PROPERTIES IMPORTED_LOCATION "${WebP_DEMUX_LIBRARY}"
                                                     INTERFACE_LINK_LIBRARIES WebP::webp)
  endif()
else()
  set(WebP_FOUND TRUE)
endif()
