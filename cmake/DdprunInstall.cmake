# Install rules: the launcher with its manual page and completions, one library and the public headers per folder, the CUDA part, and the package `ddprun` with
# ddprun::ddp, the other folders' targets and the executable ddprun::ddprun.
#
# Targets are exported in three parts, so that a component asks for no more than it needs: ddprunCoreTargets needs neither
# LibTorch nor image libraries but PNG, ddprunImageTargets needs the image libraries, ddprunTargets LibTorch as well.
#
# What is built with LibTorch is installed into a folder per version of it, lib/ddprun/torch-2.15 (torch-2.15-cpu without CUDA),
# so that several live in one place; the rest is the same in each.

include(CMakePackageConfigHelpers)

set(_ddprun_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ddprun")

# Whether a library of ours, or one that it links, links LibTorch.
function(_ddprun_needs_libtorch library out)
  set(needs FALSE)
  foreach(property IN ITEMS LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
    get_target_property(links ${library} ${property})
    foreach(link IN LISTS links)
      if(link MATCHES "^LibTorch::")
        set(needs TRUE)
      elseif(NOT needs AND link MATCHES "^ddprun" AND TARGET ${link})
        _ddprun_needs_libtorch(${link} needs)
      endif()
    endforeach()
  endforeach()
  set(${out} ${needs} PARENT_SCOPE)
endfunction()

# Which of the package's components need what; the configured package file lists them.
set(DDPRUN_CORE_COMPONENTS "")
set(DDPRUN_IMAGE_COMPONENTS "")
set(DDPRUN_LIBTORCH_COMPONENTS "")

if(DDPRUN_BUILD_LIBRARY)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" DDPRUN_LIBTORCH_MAJOR_MINOR "${DDPRUN_LIBTORCH_VERSION}")
  set(_ddprun_flavour "torch-${DDPRUN_LIBTORCH_MAJOR_MINOR}")
  set(_ddprun_cuda_text "with CUDA")
  if(NOT DDPRUN_LIBTORCH_IS_CUDA)
    string(APPEND _ddprun_flavour "-cpu")
    set(_ddprun_cuda_text "without CUDA")
  endif()
  set(_ddprun_flavour_libraries "${CMAKE_INSTALL_LIBDIR}/ddprun/${_ddprun_flavour}")
  set(_ddprun_flavour_package "${_ddprun_package_dir}/${_ddprun_flavour}")
endif()

if(DDPRUN_BUILD_LAUNCHER)
  list(APPEND DDPRUN_CORE_COMPONENTS launcher)
  install(TARGETS ddprun EXPORT ddprunCoreTargets RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT launcher)
  install(TARGETS ddprun-timeline EXPORT ddprunCoreTargets RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT launcher)
  # Where the launcher could be run: launcher/CMakeLists.txt. The folders are those in which man and the shells look.
  set(_ddprun_pages "${PROJECT_BINARY_DIR}/launcher/pages")
  set(_ddprun_bash_folder "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(FILES "${_ddprun_pages}/ddprun.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT launcher OPTIONAL)
  install(FILES "${_ddprun_pages}/ddprun.bash" RENAME ddprun DESTINATION "${_ddprun_bash_folder}" COMPONENT launcher OPTIONAL)
  install(FILES "${_ddprun_pages}/_ddprun" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" COMPONENT launcher OPTIONAL)
  install(FILES "${_ddprun_pages}/ddprun.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT launcher OPTIONAL)
endif()

if(DDPRUN_BUILD_LIBRARY)
  set(DDPRUN_IMAGE_COMPONENTS data_core)
  install(TARGETS ddprun_checkpoint_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  install(TARGETS ddprun-curves EXPORT ddprunCoreTargets RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  get_property(_ddprun_installed GLOBAL PROPERTY DDPRUN_LIBRARIES)
  list(REMOVE_ITEM _ddprun_installed ddprun_launcher) # inside the executable
  foreach(_ddprun_library IN LISTS _ddprun_installed)
    get_target_property(_ddprun_header_sets ${_ddprun_library} INTERFACE_HEADER_SETS)
    set(_ddprun_headers "")
    if(_ddprun_header_sets)
      set(_ddprun_headers FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
    endif()
    get_target_property(_ddprun_component ${_ddprun_library} EXPORT_NAME)
    _ddprun_needs_libtorch(${_ddprun_library} _ddprun_needs)
    set(_ddprun_destination "${CMAKE_INSTALL_LIBDIR}")
    if(_ddprun_component IN_LIST DDPRUN_IMAGE_COMPONENTS)
      set(_ddprun_export ddprunImageTargets)
    elseif(_ddprun_needs)
      set(_ddprun_export ddprunTargets)
      set(_ddprun_destination "${_ddprun_flavour_libraries}")
      list(APPEND DDPRUN_LIBTORCH_COMPONENTS ${_ddprun_component})
    else()
      set(_ddprun_export ddprunCoreTargets)
      list(APPEND DDPRUN_CORE_COMPONENTS ${_ddprun_component})
    endif()
    # CMake before 3.23 (Ubuntu 22.04's) knows no file sets, which tell newer ones the include folder.
    install(TARGETS ${_ddprun_library} EXPORT ${_ddprun_export} ARCHIVE DESTINATION "${_ddprun_destination}"
            ${_ddprun_headers} INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  endforeach()

  if(TARGET ddprun_comm_cuda)
    # Opened at run time by name, so nothing links it: programs get a run path to its folder instead. Its own run path
    # leads to the LibTorch it was built with, which a package for other machines cannot know: there the program's serves, whose
    # other half is loaded beside the one in use.
    if(NOT DDPRUN_PACKAGE)
      set_target_properties(ddprun_comm_cuda PROPERTIES INSTALL_RPATH_USE_LINK_PATH TRUE)
    endif()
    install(TARGETS ddprun_comm_cuda LIBRARY DESTINATION "${_ddprun_flavour_libraries}")
    target_link_options(ddprun_comm INTERFACE
                        "$<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${_ddprun_flavour_libraries}>")
  endif()
  include(DdprunPkgConfig)
  # What Python programs import.
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/" DESTINATION "${CMAKE_INSTALL_DATADIR}/ddprun/python"
          FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
  install(TARGETS ddprun_python_shm LIBRARY DESTINATION "${CMAKE_INSTALL_DATADIR}/ddprun/python/ddprun")
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/LibTorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/FindWebP.cmake"
          DESTINATION "${_ddprun_package_dir}")
  install(EXPORT ddprunTargets NAMESPACE ddprun:: DESTINATION "${_ddprun_flavour_package}")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/ddprunFlavour.cmake.in" "${PROJECT_BINARY_DIR}/package/ddprunFlavour.cmake" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/package/ddprunFlavour.cmake" DESTINATION "${_ddprun_flavour_package}")
  # The headers are those of the last installation: of what others have installed there before, ddprunConfig.cmake takes only what
  # was compiled with the same.
  set(_ddprun_headers "${PROJECT_BINARY_DIR}/package/ddprunHeaders.cmake")
  install(CODE "set(headers_file \"${_ddprun_headers}\")\nset(headers_folder \"${PROJECT_SOURCE_DIR}/include\")")
  install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/HashHeaders.cmake")
  install(FILES "${_ddprun_headers}" DESTINATION "${_ddprun_package_dir}")
  install(FILES "${_ddprun_headers}" DESTINATION "${_ddprun_flavour_package}")
  install(EXPORT ddprunImageTargets NAMESPACE ddprun:: DESTINATION "${_ddprun_package_dir}")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/cmake/BuildType.cmake" DESTINATION "${_ddprun_package_dir}")

if(DDPRUN_PACKAGE)
  include(Packages)
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(EXPORT ddprunCoreTargets NAMESPACE ddprun:: DESTINATION "${_ddprun_package_dir}")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/ddprunConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/package/ddprunConfig.cmake" INSTALL_DESTINATION "${_ddprun_package_dir}"
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/ddprunConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/ddprunConfig.cmake" "${PROJECT_BINARY_DIR}/package/ddprunConfigVersion.cmake"
        DESTINATION "${_ddprun_package_dir}")
