// Columns of a terminal, against what wcwidth() of a UTF-8 locale tells where the machine has one.
#include "monitor/text_width.h"

#include <gtest/gtest.h>
#include <wchar.h>

#include <clocale>
#include <string>

namespace ddp {
namespace {

TEST(TextWidth, east_asian_characters_and_emoji_take_two_columns) {
  EXPECT_EQ(text_columns("loss"), 4);
  EXPECT_EQ(text_columns("größe"), 5);
  EXPECT_EQ(text_columns("训练"), 4);
  EXPECT_EQ(text_columns("テスト"), 6);
  EXPECT_EQ(text_columns("학습"), 4);
  EXPECT_EQ(text_columns("ＡＢ"), 4) << "full-width letters";
  EXPECT_EQ(text_columns("🚀"), 2);
  EXPECT_EQ(text_columns("█▏…→µ"), 5);
}

TEST(TextWidth, what_combines_with_the_character_before_takes_none) {
  EXPECT_EQ(text_columns("e\u0301"), 1);
  EXPECT_EQ(text_columns("a\u200Db"), 2) << "zero-width joiner";
  EXPECT_EQ(text_columns("\u1112\u1161\u11AB"), 2) << "a Hangul syllable in three parts";
}

TEST(TextWidth, bytes_that_are_no_utf8_take_one_each) {
  EXPECT_EQ(text_columns("a\xFF\xC3"), 3);
  EXPECT_EQ(cut_to_columns("a\xFF\xC3", 2), "a\xFF");
}

TEST(TextWidth, a_cut_never_divides_a_character) {
  EXPECT_EQ(cut_to_columns("训练", 3), "训");
  EXPECT_EQ(cut_to_columns("训练", 4), "训练");
  EXPECT_EQ(cut_to_columns("e\u0301x", 1), "e\u0301");
  EXPECT_EQ(cut_to_columns("abc", 0), "");
  EXPECT_EQ(cut_to_columns("abc", -1), "");
}

TEST(TextWidth, agrees_with_the_c_library) {
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) GTEST_SKIP() << "no C.UTF-8 locale here";
  int64_t compared = 0;
  int64_t different = 0;
  for (char32_t character = 0xA0; character < 0x20000; ++character) {
    const int expected = ::wcwidth(static_cast<wchar_t>(character));
    if (expected < 0) continue;  // not assigned, or a control character
    ++compared;
    if (column_width(character) != expected) ++different;
  }
  EXPECT_GT(compared, 50'000);
  EXPECT_LT(different, compared / 100)
      << "newer versions of Unicode know more characters, and a few are a matter of taste";
}

}  // namespace
}  // namespace ddp
