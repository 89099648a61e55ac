// Bytes as text and back.
#include "checkpoint/core/latin1.h"

#include <algorithm>
#include <random>
#include <string>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using namespace std::string_literals;

TEST_CASE("Latin1: every byte is a character of its own number") {
  for (int number = 0; number < 256; ++number) {
    const std::string byte(1, static_cast<char>(number));
    const auto text = latin1_to_utf8(byte);
    INFO(number);
    CHECK(text.size() == (number < 128 ? 1 : 2));
    CHECK(utf8_to_latin1(text) == byte);
  }
  CHECK(latin1_to_utf8("a\xe4\0\xff"s) == "a\xc3\xa4\0\xc3\xbf"s);
}

TEST_CASE("Latin1: what is written comes back, whatever it is") {
  std::mt19937_64 random(5);
  for (size_t size = 0; size < 300; ++size) {
    std::string bytes(size, '\0');
    std::ranges::generate(bytes, [&] { return static_cast<char>(random()); });
    REQUIRE(utf8_to_latin1(latin1_to_utf8(bytes)) == bytes);
  }
}

TEST_CASE("Latin1: a text with other characters or damaged ones is none") {
  const auto* bad = GENERATE("\xc4\x80", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\xa0\x80", "\xc3", "\xc3\x41",
                             "\xc2\xc2", "\x80", "\xc0\x80", "\xc1\xbf", "\xff");
  CHECK(utf8_to_latin1(bad) == std::nullopt);
  CHECK(utf8_to_latin1("before"s + bad) == std::nullopt);
  CHECK(utf8_to_latin1(bad + "\xc3\xa4"s) == std::nullopt);
}

}  // namespace
}  // namespace ddp
