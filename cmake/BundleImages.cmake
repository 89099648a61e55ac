# The libraries that read pictures, inside the package: machines that it is installed on need neither them nor their headers.
# Static, and with names of their own (ddprun_images_inflate), so that a program which links its own libpng or OpenCV has two
# copies that cannot meet. A distribution's static libraries are made for programs; a shared library of a user's that reads
# pictures needs an ordinary build.
#
# Included by ImageLibraries.cmake, it defines ddprun_images, which stands in their place, and ddprun_rename_image_symbols(<library>)
# for those that call them. As a script (-P) it does the work: -D DO=merge or DO=rename.

if(CMAKE_SCRIPT_MODE_FILE)
  function(run)
    execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
  endfunction()

  if(DO STREQUAL "merge")
    # (Such a script knows no blanks in names, so the folder of ours is not named.)
    cmake_path(GET LIBRARY PARENT_PATH folder)
    cmake_path(GET LIBRARY FILENAME name)
    string(REPLACE ";" "\nADDLIB " script "CREATE ${name}.merged\nADDLIB ${ARCHIVES}\nSAVE\nEND\n")
    file(WRITE "${LIBRARY}.script" "${script}")
    execute_process(COMMAND "${AR}" -M WORKING_DIRECTORY "${folder}" INPUT_FILE "${LIBRARY}.script" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND "${NM}" -g --defined-only -f posix "${LIBRARY}.merged" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_]+ [A-Z]" symbols "${symbols}")
    list(TRANSFORM symbols REPLACE "^\n?([A-Za-z0-9_]+) .*" "\\1")
    list(FILTER symbols EXCLUDE REGEX "^_Z") # C++ has namespaces
    list(REMOVE_DUPLICATES symbols)
    list(TRANSFORM symbols REPLACE "(.+)" "\\1 ddprun_images_\\1")
    list(JOIN symbols "\n" map)
    file(WRITE "${MAP}" "${map}\n")
    # (GNU ar keeps members of equal names apart; it writes no times and no owners with D.)
    run("${OBJCOPY}" -D --strip-debug "--redefine-syms=${MAP}" "${LIBRARY}.merged" "${LIBRARY}")
    file(REMOVE "${LIBRARY}.merged" "${LIBRARY}.script")
  else()
    run("${OBJCOPY}" -D "--redefine-syms=${MAP}" "${LIBRARY}")
  endif()
  return()
endif()

find_program(DDPRUN_OBJCOPY objcopy REQUIRED)
find_program(DDPRUN_NM nm REQUIRED)
mark_as_advanced(DDPRUN_OBJCOPY DDPRUN_NM)

# What a static libtiff calls depends on how it was built: these where they are there.
set(_ddprun_archives "${ZLIB_LIBRARIES}" "${PNG_LIBRARIES}" "${JPEG_LIBRARIES}")
if(DDPRUN_HAS_TIFF)
  list(APPEND _ddprun_archives "${TIFF_LIBRARIES}")
  foreach(name IN ITEMS zstd lzma Lerc jbig deflate)
    find_library(DDPRUN_STATIC_${name} "lib${name}.a")
    mark_as_advanced(DDPRUN_STATIC_${name})
    if(DDPRUN_STATIC_${name})
      list(APPEND _ddprun_archives "${DDPRUN_STATIC_${name}}")
    endif()
  endforeach()
endif()
if(DDPRUN_HAS_WEBP)
  list(APPEND _ddprun_archives "${WebP_LIBRARY}" "${WebP_DEMUX_LIBRARY}")
  if(WebP_SHARPYUV_LIBRARY)
    list(APPEND _ddprun_archives "${WebP_SHARPYUV_LIBRARY}")
  endif()
endif()
set(_ddprun_files "")
foreach(archive IN LISTS _ddprun_archives)
  if(archive MATCHES "\\.a$")
    list(APPEND _ddprun_files "${archive}")
  elseif(NOT archive STREQUAL "m" AND NOT archive MATCHES "/libm\\.so$")
    message(FATAL_ERROR "ddprun: DDPRUN_PACKAGE needs static image libraries, and ${archive} is none")
  endif()
endforeach()
list(REMOVE_DUPLICATES _ddprun_files)

set(_ddprun_empty "${PROJECT_BINARY_DIR}/images/images.cpp")
set(_ddprun_image_symbols "${PROJECT_BINARY_DIR}/images/symbols")
file(CONFIGURE OUTPUT "${_ddprun_empty}" CONTENT "")
ddprun_library(images SOURCES "${_ddprun_empty}" PUBLIC Threads::Threads m)
target_include_directories(
  ddprun_images SYSTEM
  INTERFACE "$<BUILD_INTERFACE:${ZLIB_INCLUDE_DIRS};${PNG_INCLUDE_DIRS};${JPEG_INCLUDE_DIRS};${TIFF_INCLUDE_DIR};${WebP_INCLUDE_DIR}>")
set(_ddprun_bundle "${CMAKE_COMMAND}" -D "OBJCOPY=${DDPRUN_OBJCOPY}" -D "MAP=${_ddprun_image_symbols}")
add_custom_command(
  TARGET ddprun_images
  POST_BUILD
  COMMAND ${_ddprun_bundle} -D DO=merge -D "LIBRARY=$<TARGET_FILE:ddprun_images>" -D "ARCHIVES=${_ddprun_files}" -D "NM=${DDPRUN_NM}" -D
          "AR=${CMAKE_AR}" -P "${CMAKE_CURRENT_LIST_FILE}"
  VERBATIM)
set(_ddprun_bundle ${_ddprun_bundle} -D DO=rename)
set(_ddprun_bundle_script "${CMAKE_CURRENT_LIST_FILE}")

function(ddprun_rename_image_symbols library)
  add_dependencies(${library} ddprun_images)
  add_custom_command(
    TARGET ${library}
    POST_BUILD
    COMMAND ${_ddprun_bundle} -D "LIBRARY=$<TARGET_FILE:${library}>" -P "${_ddprun_bundle_script}"
    VERBATIM)
endfunction()

set_property(GLOBAL APPEND PROPERTY DDPRUN_OTHERS_FILES ${_ddprun_files}) # whose notices travel with them: Notices.cmake
