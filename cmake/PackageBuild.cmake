# What a build for others needs beyond an ordinary one (-D DDPRUN_PACKAGE=ON, scripts/package): its bytes tell neither where they
# were made nor by which route, so that the same sources give the same files anywhere.

# Sources are named from the project's root and LibTorch's headers from `torch`, in assertions' messages for instance. ccache may
# hand the compiler paths that are relative to the build folder.
file(RELATIVE_PATH _ddprun_from_build "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
string(REGEX REPLACE "/$" "" _ddprun_from_build "${_ddprun_from_build}")
target_compile_options(ddprun_build_flags INTERFACE "-ffile-prefix-map=${_ddprun_from_build}=."
                                                    "-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.")
if(DDPRUN_BUILD_LIBRARY)
  target_compile_options(ddprun_build_flags INTERFACE "-ffile-prefix-map=${DDPRUN_LIBTORCH_ROOT}=torch")
endif()
