#include "base/text_table.h"

#include <sstream>
#include <string>
#include <vector>

#include "base/text_width.h"
#include "base/utf8.h"
#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

const std::vector<std::vector<std::string>> kRows{{"rank", "host", "collective", "process"},
                                                  {"0", "größe", "in all_reduce #4711 of 25.0 MB", "sleeping"},
                                                  {"1", "学", "", "running, 100 % CPU"}};

TEST_CASE("TextTable: columns stand below each other, whatever their characters") {
  CHECK(text_table(kRows) ==
        "  rank  host   collective                      process\n"
        "  0     größe  in all_reduce #4711 of 25.0 MB  sleeping\n"
        "  1     学                                     running, 100 % CPU\n");
  CHECK(text_table(kRows, 80) == text_table(kRows));
  CHECK(text_table({}).empty());
}

TEST_CASE("TextTable: what does not fit a terminal follows below its row") {
  CHECK(text_table(kRows, 40) ==
        "  rank  host\n"
        "  0     größe\n"
        "    collective in all_reduce #4711 of\n"
        "    25.0 MB, process sleeping\n"
        "  1     学\n"
        "    process running, 100 % CPU\n");
}

TEST_CASE("TextTable: no line is wider than the terminal, and no word is lost") {
  for (std::size_t columns = 1; columns < 70; ++columns) {
    const std::string text = text_table(kRows, columns);
    std::istringstream lines(text);
    std::string seen;
    for (std::string line; std::getline(lines, line);) {
      INFO(columns << ": " << line);
      if (columns > 3) CHECK(text_columns(line) <= static_cast<int64_t>(columns));  // else a wide character may be
      for (const char c : line) seen += c == ' ' ? "" : std::string(1, c);
    }
    if (columns < 12) continue;  // of the first column the beginning is left
    for (const char* word : {"größe", "学", "all_reduce", "#4711", "25.0", "sleeping", "running,100"}) {
      INFO(columns << ": " << word << " in " << seen);
      CHECK(seen.find(word) != std::string::npos);
    }
  }
}

TEST_CASE("TextTable: text is broken between words") {
  CHECK(wrapped_text("one two three", 80) == "one two three\n");
  CHECK(wrapped_text("one two three", 7) == "one two\nthree\n");
  CHECK(wrapped_text("one two three", 4, " ") == " one\n two\n thr\n ee\n");
  CHECK(wrapped_text("", 10).empty());
}

TEST_CASE("Utf8: a character that was cut off at the end is none") {
  CHECK(whole_characters("abc") == 3);
  CHECK(whole_characters("größe") == 7);
  CHECK(whole_characters("gr\xc3") == 2);
  CHECK(whole_characters("a\xe5\xad") == 1);
  CHECK(whole_characters("a\xf0\x9f\x99") == 1);
  CHECK(whole_characters("a\xf0\x9f\x99\x82") == 5);
  CHECK(whole_characters("") == 0);
}

TEST_CASE("Utf8: what a terminal cannot show within a line is a blank") {
  CHECK(shown_text("größe 学 🙂") == "größe 学 🙂");
  CHECK(shown_text("a\x1b[2J\n\tb\x7f\xc2\x9b") == "a [2J  b  ");
  CHECK(shown_text("\u202eevil\u2066 \u200f") == " evil   ");
  CHECK(shown_text("a\xff\xe5\xad") == "a\uFFFD\uFFFD\uFFFD");
}

}  // namespace
}  // namespace ddp::detail
