# Install rules: the launcher, one library and the public headers per folder, the CUDA part, and the package `ddprun` with
# ddprun::ddp, the other folders' targets and the executable ddprun::ddprun.

include(CMakePackageConfigHelpers)

set(_ddprun_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ddprun")

if(DDPRUN_BUILD_LAUNCHER)
  install(TARGETS ddprun EXPORT ddprunTargets RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

if(DDPRUN_BUILD_LIBRARY)
  install(TARGETS ddprun_checkpoint_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  install(TARGETS ddprun-curves EXPORT ddprunTargets RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  get_property(_ddprun_installed GLOBAL PROPERTY DDPRUN_LIBRARIES)
  list(REMOVE_ITEM _ddprun_installed ddprun_launcher) # inside the executable
  foreach(_ddprun_library IN LISTS _ddprun_installed)
    get_target_property(_ddprun_header_sets ${_ddprun_library} INTERFACE_HEADER_SETS)
    set(_ddprun_headers "")
    if(_ddprun_header_sets)
      set(_ddprun_headers FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/ddprun")
    endif()
    install(TARGETS ${_ddprun_library} EXPORT ddprunTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY
            DESTINATION "${CMAKE_INSTALL_LIBDIR}" ${_ddprun_headers})
  endforeach()

  if(TARGET ddprun_comm_cuda)
    # Opened at run time by name, so nothing links it: programs get a run path to its folder instead. Its own run path
    # leads to the LibTorch it was built with; where that has moved, the program's LibTorch is loaded already and serves.
    set_target_properties(ddprun_comm_cuda PROPERTIES INSTALL_RPATH_USE_LINK_PATH TRUE)
    install(TARGETS ddprun_comm_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    target_link_options(ddprun_comm INTERFACE
                        "$<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>")
  endif()
  # What Python programs import to exchange checkpoints with C++ ones.
  file(GLOB _ddprun_python CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/*.py")
  install(FILES ${_ddprun_python} DESTINATION "${CMAKE_INSTALL_DATADIR}/ddprun/python")
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/LibTorch.cmake" "${PROJECT_SOURCE_DIR}/cmake/FindWebP.cmake"
          DESTINATION "${_ddprun_package_dir}")
endif()

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(EXPORT ddprunTargets NAMESPACE ddprun:: DESTINATION "${_ddprun_package_dir}")

string(REGEX MATCH "^[0-9]+\\.[0-9]+" DDPRUN_LIBTORCH_MAJOR_MINOR "${DDPRUN_LIBTORCH_VERSION}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/ddprunConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/package/ddprunConfig.cmake" INSTALL_DESTINATION "${_ddprun_package_dir}"
                              NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/ddprunConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/package/ddprunConfig.cmake" "${PROJECT_BINARY_DIR}/package/ddprunConfigVersion.cmake"
        DESTINATION "${_ddprun_package_dir}")
