// Columns of a terminal, against what wcwidth() of a UTF-8 locale tells where the machine has one.
#include "base/text_width.h"

#include <wchar.h>

#include <clocale>
#include <string>

#include "tests/support/catch.h"

namespace ddp {
namespace {

TEST_CASE("TextWidth: east asian characters and emoji take two columns") {
  CHECK(text_columns("loss") == 4);
  CHECK(text_columns("größe") == 5);
  CHECK(text_columns("训练") == 4);
  CHECK(text_columns("テスト") == 6);
  CHECK(text_columns("학습") == 4);
  UNSCOPED_INFO("full-width letters");
  CHECK(text_columns("ＡＢ") == 4);
  CHECK(text_columns("🚀") == 2);
  CHECK(text_columns("█▏…→µ") == 5);
}

TEST_CASE("TextWidth: what combines with the character before takes none") {
  CHECK(text_columns("e\u0301") == 1);
  UNSCOPED_INFO("zero-width joiner");
  CHECK(text_columns("a\u200Db") == 2);
  INFO("a Hangul syllable in three parts");
  CHECK(text_columns("\u1112\u1161\u11AB") == 2);
}

TEST_CASE("TextWidth: bytes that are no UTF-8 take one each") {
  CHECK(text_columns("a\xFF\xC3") == 3);
  CHECK(cut_to_columns("a\xFF\xC3", 2) == "a\xFF");
}

TEST_CASE("TextWidth: a cut never divides a character") {
  CHECK(cut_to_columns("训练", 3) == "训");
  CHECK(cut_to_columns("训练", 4) == "训练");
  CHECK(cut_to_columns("e\u0301x", 1) == "e\u0301");
  CHECK(cut_to_columns("abc", 0) == "");
  CHECK(cut_to_columns("abc", -1) == "");
}

TEST_CASE("TextWidth: agrees with the c library") {
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) SKIP("no C.UTF-8 locale here");
  int64_t compared = 0;
  int64_t different = 0;
  for (char32_t character = 0xA0; character < 0x20000; ++character) {
    const int expected = ::wcwidth(static_cast<wchar_t>(character));
    if (expected < 0) continue;  // not assigned, or a control character
    ++compared;
    if (column_width(character) != expected) ++different;
  }
  CHECK(compared > 50'000);
  INFO("newer versions of Unicode know more characters, and a few are a matter of taste");
  CHECK(different < compared / 100);
}

}  // namespace
}  // namespace ddp
