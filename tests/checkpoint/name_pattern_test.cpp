#include "checkpoint/core/name_pattern.h"

#include <string>
#include <string_view>

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

TEST_CASE("NamePattern: a question mark is one character however many bytes it has") {
  for (const auto* letter : {"x", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x9a\x80"}) {
    const auto name = std::string("layer") + letter + ".weight";
    INFO(name);
    CHECK(matches(name, "layer?.weight"));
    CHECK(matches(name, "*?.weight"));
    CHECK(matches(name, "layer?*"));
    CHECK_FALSE(matches(name, "layer??.weight"));
    CHECK_FALSE(matches(name, "*r??.*"));
    CHECK(matches(name, std::string("*") + letter + "*"));
  }
  // Bytes that are no UTF-8 count one by one.
  CHECK(matches("a\xff\xc3z", "a??z"));
  CHECK(matches("\xe2\x82", "??"));
}

TEST_CASE("NamePattern: nothing matches nothing else") {
  CHECK(matches("", ""));
  CHECK_FALSE(matches("a", ""));
  CHECK_FALSE(matches("", "?"));
  CHECK(matches("", "***"));
  CHECK_FALSE(matches("", "a"));
  CHECK(matches("a.b.c", "a.b"));
  CHECK_FALSE(matches("a.b", "a.b.c"));
  CHECK_FALSE(matches("a.b", "A.b"));
}

// The plainest matcher there is, as a reference.
bool matches_slowly(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return matches_slowly(name, pattern.substr(1)) || (!name.empty() && matches_slowly(name.substr(1), pattern));
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         matches_slowly(name.substr(1), pattern.substr(1));
}

TEST_CASE("NamePattern: agrees with a recursive matcher on every short name and pattern") {
  const std::string_view letters = "a.*?";
  const auto word = [&](size_t number, size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i, number /= 4) text += letters[number % 4];
    return text;
  };
  for (size_t pattern_length = 1; pattern_length <= 4; ++pattern_length) {
    for (size_t p = 0; p < size_t{1} << (2 * pattern_length); ++p) {
      const auto pattern = word(p, pattern_length);
      if (pattern.find_first_of("*?") == std::string::npos) continue;
      for (size_t length = 0; length <= 4; ++length) {
        for (size_t n = 0; n < size_t{1} << (2 * length); ++n) {
          const auto name = word(n, length);
          if (matches(name, pattern) != matches_slowly(name, pattern)) FAIL("'" << name << "' and '" << pattern << "'");
        }
      }
    }
  }
  SUCCEED();
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
