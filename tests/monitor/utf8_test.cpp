#include "monitor/utf8.h"

#include "tests/support/catch.h"

namespace ddp {
namespace {

TEST_CASE("Utf8: keeps what is valid") {
  for (const char* text : {"", "loss/train", "Größe", "損失", "\xF0\x9F\x94\xA5", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
    CHECK(valid_utf8(text) == text);
  }
}

TEST_CASE("Utf8: replaces each byte that is no part of a character") {
  const std::string mark = "\xEF\xBF\xBD";
  CHECK(valid_utf8("a\xFF"
                   "b") == "a" + mark + "b");
  INFO("cut short");
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
}  // namespace ddp
