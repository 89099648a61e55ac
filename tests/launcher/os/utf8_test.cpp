#include "launcher/os/system/utf8.h"

#include <random>
#include <string>

#include "tests/support/catch.h"

namespace launcher {
namespace {

// One that every other program would write as these bytes.
std::string encoded(std::uint32_t code) {
  const auto tail = [code](unsigned shift) { return static_cast<char>(0x80U | (code >> shift & 0x3fU)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0U | code >> 6U), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0U | code >> 12U), tail(6), tail(0)};
  return {static_cast<char>(0xf0U | code >> 18U), tail(12), tail(6), tail(0)};
}

TEST_CASE("Utf8: every character is one, and shown unless it controls the terminal") {
  bool all_are_characters = true;
  bool all_are_shown = true;
  for (std::uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;  // halves of a pair, which UTF-8 does not have
    const std::string bytes = encoded(code);
    const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    all_are_characters =
        all_are_characters && is_character(bytes) && static_cast<std::size_t>(utf8_length(bytes[0])) == bytes.size();
    all_are_shown = all_are_shown && shown_character(bytes + "x") == (is_control ? 0 : bytes.size());
  }
  CHECK(all_are_characters);
  CHECK(all_are_shown);
}

TEST_CASE("Utf8: parts of a character and more than one are none") {
  for (const std::string bytes :
       {"", "\x80", "\xff", "\xc3", "\xe4\xb8", "\xc0\x80", "\xf5\x80\x80\x80", "ab", "\xc3\xa4x"}) {
    CAPTURE(bytes);
    CHECK_FALSE(is_character(bytes));
  }
  // Half of a surrogate pair, forms that are too long, and what is beyond the last character: nobody may write these.
  for (const std::string bytes : {"\xed\xa0\x80", "\xed\xbf\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xf0\x80\x80\x80",
                                  "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80"}) {
    CAPTURE(bytes);
    CHECK_FALSE(is_character(bytes));
    CHECK(shown_character(bytes) == 0);
    CHECK(printable(bytes).size() == 3 * bytes.size());  // a sign for each byte
  }
  CHECK(shown_character("") == 0);
  CHECK(shown_character("\xe4\xb8x") == 0);
}

TEST_CASE("Utf8: what is printable keeps its characters and has nothing else") {
  CHECK(printable("") == "");
  CHECK(printable("plain \xc3\xa4 \xe4\xb8\xad") == "plain \xc3\xa4 \xe4\xb8\xad");
  CHECK(printable("a\x1b[2J\r\n\tb\x7f") == "a [2J   b ");
  CHECK(printable("a\xc2\x9b"
                  "2J") == "a 2J");
  CHECK(printable("\xff\xe4\xb8") == "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(printable(std::string("a\0b", 3)) == "a b");
}

TEST_CASE("Utf8: a beginning is as long as it may be without half a character") {
  const std::string text = "a\xc3\xa4\xe4\xb8\xad\xf0\x9f\x98\x80z";  // 1, 2, 3, 4 and 1 bytes
  const std::size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
  for (std::size_t most = 0; most < std::size(expected); ++most) {
    CAPTURE(most);
    CHECK(beginning(text, most) == text.substr(0, expected[most]));
  }
  CHECK(beginning("\x80\x80\x80\x80", 2) == "\x80\x80");  // no characters: cut anywhere
}

TEST_CASE("Utf8: whatever the bytes, what is printable is UTF-8 without control characters") {
  std::mt19937 random(2);
  for (int round = 0; round < 2'000; ++round) {
    std::string bytes(random() % 20, ' ');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const std::string shown = printable(bytes);
    for (std::string_view left = shown; !left.empty();) {
      const std::size_t length = shown_character(left);
      REQUIRE(length > 0);
      left.remove_prefix(length);
    }
    CHECK(printable(shown) == shown);
    CHECK(beginning(bytes, 7).size() >= std::min<std::size_t>(bytes.size(), 4));
  }
}

}  // namespace
}  // namespace launcher
