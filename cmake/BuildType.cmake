# Says so where a project that uses ddprun is compiled without optimisation. The build and the installed package both
# include this file. Nothing is set: which build type a project has is its own business.

# Warns, once, when the calling project has no build type and no -O of its own. CMake's default then is neither optimised nor
# for debugging, which nobody who measures a training run wants.
function(ddprun_warn_without_build_type)
  get_property(has_many GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  get_property(has_warned GLOBAL PROPERTY DDPRUN_BUILD_TYPE_WARNING)
  if(CMAKE_BUILD_TYPE OR has_many OR has_warned OR "${CMAKE_CXX_FLAGS}" MATCHES "-O")
    return()
  endif()
  set_property(GLOBAL PROPERTY DDPRUN_BUILD_TYPE_WARNING TRUE)
  message(WARNING "ddprun: CMAKE_BUILD_TYPE is not set, so this project is compiled without optimisation. "
                  "Configure with -DCMAKE_BUILD_TYPE=Release for training and for measurements.")
endfunction()
