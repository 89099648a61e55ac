# Third-party packages. The installed one is used; FetchContent downloads only where it is missing, and with
# FETCHCONTENT_FULLY_DISCONNECTED=ON a missing one is an error at once. Headers stay private: no consumer needs them.

include(FetchContent)

FetchContent_Declare(
  CLI11
  GIT_REPOSITORY https://github.com/CLIUtils/CLI11.git
  GIT_TAG v2.4.2
  SYSTEM
  FIND_PACKAGE_ARGS)
FetchContent_Declare(
  nlohmann_json
  GIT_REPOSITORY https://github.com/nlohmann/json.git
  GIT_TAG v3.11.3
  SYSTEM
  FIND_PACKAGE_ARGS 3.11)
if(DDPRUN_BUILD_TESTS)
  FetchContent_Declare(
    Catch2
    GIT_REPOSITORY https://github.com/catchorg/Catch2.git
    GIT_TAG v3.7.1
    SYSTEM
    FIND_PACKAGE_ARGS 3)
  FetchContent_MakeAvailable(Catch2)
endif()
FetchContent_MakeAvailable(CLI11 nlohmann_json)

find_package(Threads REQUIRED)
