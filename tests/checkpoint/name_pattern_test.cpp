#include "checkpoint/core/name_pattern.h"

#include <string>

#include "tests/support/catch.h"

namespace ddp {
namespace {

TEST_CASE("NamePattern: a plain name means it and everything below") {
  CHECK(matches("layer1", "layer1"));
  CHECK(matches("layer1.0.conv.weight", "layer1"));
  CHECK_FALSE(matches("layer10.0.conv.weight", "layer1"));
  CHECK_FALSE(matches("layer", "layer1"));
}

TEST_CASE("NamePattern: stars and question marks are those of a shell") {
  CHECK(matches("layer1.0.conv.weight", "layer?.*"));
  CHECK(matches("layer1.0.conv.weight", "*.weight"));
  CHECK(matches("layer1.0.conv.weight", "*conv*"));
  CHECK(matches("", "*"));
  CHECK_FALSE(matches("layer1.0.conv.bias", "*.weight"));
  CHECK_FALSE(matches("fc.weight", "?.weight"));
  CHECK_FALSE(matches("fc.weight.extra", "*.weight"));
}

TEST_CASE("NamePattern: a hostile pattern takes no exponential time") {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "a*";
  CHECK_FALSE(matches(std::string(2000, 'a') + "b", pattern + "c"));
}

TEST_CASE("NamePattern: any of several suffices") {
  CHECK(matches_any("fc.bias", {"conv*", "fc"}));
  CHECK_FALSE(matches_any("bn.bias", {"conv*", "fc"}));
  CHECK_FALSE(matches_any("bn.bias", {}));
}

}  // namespace
}  // namespace ddp
