#include "monitor/utf8.h"

#include <gtest/gtest.h>

namespace ddp {
namespace {

TEST(Utf8, keeps_what_is_valid) {
  for (const char* text : {"", "loss/train", "Größe", "損失", "\xF0\x9F\x94\xA5", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(valid_utf8(text), text);
  }
}

TEST(Utf8, replaces_each_byte_that_is_no_part_of_a_character) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(valid_utf8("a\xFF"
                       "b"),
            "a" + mark + "b");
  EXPECT_EQ(valid_utf8("\xC3"), mark) << "cut short";
  EXPECT_EQ(valid_utf8("\xE2\x82"), mark + mark) << "cut short";
  EXPECT_EQ(valid_utf8("\xC0\x80"), mark + mark) << "overlong";
  EXPECT_EQ(valid_utf8("\xE0\x80\x80"), mark + mark + mark) << "overlong";
  EXPECT_EQ(valid_utf8("\xF0\x80\x80\x80"), mark + mark + mark + mark) << "overlong";
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"), mark + mark + mark) << "surrogate";
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80"), mark + mark + mark + mark) << "beyond U+10FFFF";
  EXPECT_EQ(valid_utf8("\x80z"), mark + "z");
}

}  // namespace
}  // namespace ddp
