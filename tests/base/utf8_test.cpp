#include "base/utf8.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

// The encoding of `code`, as its bits are spread over `length` bytes.
std::string encoded(std::uint32_t code, std::size_t length) {
  if (length == 1) return {static_cast<char>(code)};
  std::string text(length, '\0');
  for (std::size_t i = length; i-- > 1; code >>= 6) text[i] = static_cast<char>(0x80 | (code & 0x3F));
  text[0] = static_cast<char>((0xF00 >> length & 0xFF) | code);
  return text;
}

bool is_character(std::uint32_t code) {
  return code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

std::size_t shortest(std::uint32_t code) {
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

TEST_CASE("Utf8Length: every character has the length of its encoding, and no other bytes are one") {
  std::size_t wrong = 0;
  for (std::size_t length = 1; length <= 4; ++length) {
    const std::uint32_t end = length == 1 ? 0x80 : std::uint32_t{1} << (5 * length + 1);
    for (std::uint32_t code = 0; code < end; ++code) {
      const std::size_t expected = is_character(code) && shortest(code) == length ? length : 0;
      wrong += utf8_length(encoded(code, length) + "x") != expected;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Utf8Length: what is truncated or continues nothing is not a character") {
  CHECK(utf8_length("") == 0);
  for (const std::string text : {"\x80", "\xBF", "\xF8\x80\x80\x80\x80", "\xFF"}) CHECK(utf8_length(text) == 0);
  for (const std::string text : {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
    CHECK(utf8_length(text) == text.size());
    for (std::size_t size = 1; size < text.size(); ++size) {
      CHECK(utf8_length(text.substr(0, size)) == 0);
      CHECK(utf8_length(text.substr(0, size) + "xyz") == 0);
    }
  }
}

TEST_CASE("Utf8: keeps what is valid") {
  for (const char* text : {"", "loss/train", "Größe", "損失", "\xF0\x9F\x94\xA5", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
    CHECK(valid_utf8(text) == text);
  }
}

TEST_CASE("Utf8: replaces each byte that is not part of a character") {
  const std::string mark = "\xEF\xBF\xBD";
  CHECK(valid_utf8("a\xFF"
                   "b") == "a" + mark + "b");
  INFO("truncated");
  CHECK(valid_utf8("\xC3") == mark);
  CHECK(valid_utf8("\xE2\x82") == mark + mark);
  INFO("overlong");
  CHECK(valid_utf8("\xC0\x80") == mark + mark);
  CHECK(valid_utf8("\xE0\x80\x80") == mark + mark + mark);
  CHECK(valid_utf8("\xF0\x80\x80\x80") == mark + mark + mark + mark);
  UNSCOPED_INFO("surrogate");
  CHECK(valid_utf8("\xED\xA0\x80") == mark + mark + mark);
  UNSCOPED_INFO("beyond U+10FFFF");
  CHECK(valid_utf8("\xF4\x90\x80\x80") == mark + mark + mark + mark);
  CHECK(valid_utf8("\x80z") == mark + "z");
}

}  // namespace
}  // namespace ddp::detail
