// The version's macros say the same.
#include <string>

#include <ddprun/version.h>

#include "tests/support/catch.h"

TEST_CASE("Version: the text and the numbers agree") {
  CHECK(DDPRUN_VERSION_STRING == std::to_string(DDPRUN_VERSION_MAJOR) + "." + std::to_string(DDPRUN_VERSION_MINOR) +
                                     "." + std::to_string(DDPRUN_VERSION_PATCH));
  CHECK(DDPRUN_VERSION / 10000 == DDPRUN_VERSION_MAJOR);
  CHECK(DDPRUN_VERSION / 100 % 100 == DDPRUN_VERSION_MINOR);
  CHECK(DDPRUN_VERSION % 100 == DDPRUN_VERSION_PATCH);
}
