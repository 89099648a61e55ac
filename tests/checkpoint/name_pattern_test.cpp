#include "checkpoint/name_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace ddp {
namespace {

TEST(NamePattern, APlainNameMeansItAndEverythingBelow) {
  EXPECT_TRUE(matches("layer1", "layer1"));
  EXPECT_TRUE(matches("layer1.0.conv.weight", "layer1"));
  EXPECT_FALSE(matches("layer10.0.conv.weight", "layer1"));
  EXPECT_FALSE(matches("layer", "layer1"));
}

TEST(NamePattern, StarsAndQuestionMarksAreThoseOfAShell) {
  EXPECT_TRUE(matches("layer1.0.conv.weight", "layer?.*"));
  EXPECT_TRUE(matches("layer1.0.conv.weight", "*.weight"));
  EXPECT_TRUE(matches("layer1.0.conv.weight", "*conv*"));
  EXPECT_TRUE(matches("", "*"));
  EXPECT_FALSE(matches("layer1.0.conv.bias", "*.weight"));
  EXPECT_FALSE(matches("fc.weight", "?.weight"));
  EXPECT_FALSE(matches("fc.weight.extra", "*.weight"));
}

TEST(NamePattern, AHostilePatternTakesNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "a*";
  EXPECT_FALSE(matches(std::string(2000, 'a') + "b", pattern + "c"));
}

TEST(NamePattern, AnyOfSeveralSuffices) {
  EXPECT_TRUE(matches_any("fc.bias", {"conv*", "fc"}));
  EXPECT_FALSE(matches_any("bn.bias", {"conv*", "fc"}));
  EXPECT_FALSE(matches_any("bn.bias", {}));
}

}  // namespace
}  // namespace ddp
