# ddprun_fuzz_target(<name> LABEL <folder> ROUNDS <n> SOURCES ... [LINK <libraries>] [LENIENT] [MEMORY <MiB>])
# A fuzz target (see fuzz.h). Everywhere: a program fuzz_driver_<name> and the test `<folder>.fuzz_<name>`, which gives it
# the same <n> inputs every time. With DDPRUN_FUZZ (clang only) the libFuzzer program fuzz_<name> as well; the target
# `fuzzers` builds them all. LENIENT: the code refuses hardly anything.
# MEMORY: what an input may make the code take.
function(ddprun_fuzz_target name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LENIENT" "LABEL;ROUNDS;MEMORY" "SOURCES;LINK")
  set(options "")
  if(arg_LENIENT)
    set(options --lenient)
  endif()
  if(arg_MEMORY)
    list(APPEND options --memory ${arg_MEMORY})
  endif()
  if(NOT TARGET ddprun_fuzz_driver)
    add_library(ddprun_fuzz_driver STATIC "${PROJECT_SOURCE_DIR}/tests/fuzz/driver.cpp")
    target_include_directories(ddprun_fuzz_driver PRIVATE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(ddprun_fuzz_driver PRIVATE ddprun_build_flags)
  endif()
  # Thousands of inputs, most of them through headers of others: optimised, unlike other tests.
  set(DDPRUN_PROGRAM_HEADERS "")
  ddprun_executable(fuzz_driver_${name} SOURCES ${arg_SOURCES} LINK ddprun_fuzz_driver ${arg_LINK})
  target_compile_options(fuzz_driver_${name} PRIVATE $<$<CONFIG:Release>:-O2>)
  ddprun_test(fuzz_${name} LABEL ${arg_LABEL} FUZZ TIMEOUT 120 COMMAND fuzz_driver_${name} --rounds ${arg_ROUNDS} ${options})
  set_property(GLOBAL APPEND PROPERTY DDPRUN_FUZZ_TARGETS_${arg_LABEL} ${name})
  if(DDPRUN_FUZZ)
    ddprun_executable(fuzz_${name} SOURCES ${arg_SOURCES} "${PROJECT_SOURCE_DIR}/tests/fuzz/libfuzzer.cpp" LINK ${arg_LINK})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    if(NOT TARGET fuzzers)
      add_custom_target(fuzzers)
    endif()
    add_dependencies(fuzzers fuzz_${name} fuzz_driver_${name})
  endif()
endfunction()

# ddprun_libfuzzer_test(<folder>): libFuzzer itself, for some seconds per target of the folder, where clang is: in a build
# of its own, with the library where this build has it.
function(ddprun_libfuzzer_test folder)
  get_property(targets GLOBAL PROPERTY DDPRUN_FUZZ_TARGETS_${folder})
  list(JOIN targets "," targets)
  find_program(DDPRUN_CLANG clang++)
  mark_as_advanced(DDPRUN_CLANG)
  if(NOT DDPRUN_CLANG OR DDPRUN_FUZZ OR DDPRUN_SANITIZE)
    return()
  endif()
  ddprun_test(
    libfuzzer LABEL ${folder} SLOW FUZZ SERIAL SKIPPABLE TIMEOUT 900
    COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tests/fuzz/libfuzzer_test.py"
    ENVIRONMENT "SOURCE=${PROJECT_SOURCE_DIR}" "BUILD=${PROJECT_BINARY_DIR}/libfuzzer" "CLANG=${DDPRUN_CLANG}"
                "LIBRARY=${DDPRUN_BUILD_LIBRARY}" "LIBTORCH=${DDPRUN_LIBTORCH_ROOT}" "TARGETS=${targets}")
endfunction()
