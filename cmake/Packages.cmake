# What scripts/package gives away, besides the wheel: CPack's .tar.gz of everything that is installed, and its .deb of the launcher
# alone. Bytes depend on the sources only: times are SOURCE_DATE_EPOCH's.

include(Notices)
set(CPACK_PACKAGE_NAME ddprun)
set(CPACK_PACKAGE_VENDOR "the ddprun authors")
include(ProjectAddresses)
set(DDPRUN_MAINTAINER "${DDPRUN_AUTHORS}" CACHE STRING "Name and address in the Debian package")
set(CPACK_PACKAGE_CONTACT "${DDPRUN_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "launcher of distributed training programs")
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 1)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/FinishPackage.cmake")

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_FILE_NAME "ddprun-${PROJECT_VERSION}")
if(DDPRUN_BUILD_LIBRARY)
  string(APPEND CPACK_PACKAGE_FILE_NAME "+torch${DDPRUN_LIBTORCH_MAJOR_MINOR}")
endif()
string(APPEND CPACK_PACKAGE_FILE_NAME "-linux-${CMAKE_SYSTEM_PROCESSOR}")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL launcher debian)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz) # as dpkg-deb does: a quarter less than gzip
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE "${DDPRUN_REPOSITORY}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "ddprun starts one process per GPU or CPU share, as torchrun and mpirun do,
hosts the store that they meet at, prefixes and collects their output, and
stops all when one of them fails. It runs programs of any language, on one
node or several, and needs neither Python nor LibTorch itself.
ddprun-timeline reads the timelines that it records.")

# Debian's own files; the time of the changelog is SOURCE_DATE_EPOCH's.
string(TIMESTAMP _ddprun_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(READ "${PROJECT_SOURCE_DIR}/LICENSE" _ddprun_licence)
foreach(notice IN LISTS DDPRUN_PROGRAM_NOTICES)
  file(READ "${DDPRUN_NOTICES}/${notice}" text)
  string(APPEND _ddprun_licence "\n\nOf ${notice}, parts of which are in the programs:\n\n${text}")
endforeach()
file(WRITE "${PROJECT_BINARY_DIR}/debian/copyright" "${_ddprun_licence}")
file(
  CONFIGURE
  OUTPUT "${PROJECT_BINARY_DIR}/debian/changelog"
  CONTENT "ddprun (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md among the sources.\n\n -- ${DDPRUN_MAINTAINER}  ${_ddprun_date}\n"
  @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/debian/copyright" "${PROJECT_BINARY_DIR}/debian/changelog" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        COMPONENT debian EXCLUDE_FROM_ALL)
install(DIRECTORY "${DDPRUN_NOTICES}/" DESTINATION "${CMAKE_INSTALL_DOCDIR}/notices")

if(SKBUILD_PLATLIB_DIR)
  # In the wheel alone: then `import ddprun` works in its environment.
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/" DESTINATION "${SKBUILD_PLATLIB_DIR}" COMPONENT python_modules EXCLUDE_FROM_ALL
          FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
  install(TARGETS ddprun_python_shm LIBRARY DESTINATION "${SKBUILD_PLATLIB_DIR}/ddprun" COMPONENT python_modules EXCLUDE_FROM_ALL)
endif()
include(CPack)
